/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A main for fuzz targets without libFuzzer: calls the target once with each file named, files in
 * directories included, so that every input which ever mattered is tried again by `make check`.
 * A target that crashes ends the process; one that must not accept an input asserts so itself.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static long inputs;

static void replay_file(const char *path, size_t size) {
  FILE *file = fopen(path, "rb");
  /* An exact allocation, so that a sanitizer sees the first byte read past the end. */
  uint8_t *data = malloc(size ? size : 1);
  if (!file || !data || fread(data, 1, size, file) != size) {
    perror(path);
    exit(2);
  }
  fclose(file);
  LLVMFuzzerTestOneInput(data, size);
  free(data);
  inputs++;
}

static void replay(const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) {
    perror(path);
    exit(2);
  }
  if (!S_ISDIR(st.st_mode)) {
    replay_file(path, (size_t)st.st_size);
    return;
  }
  struct dirent **names;
  int n = scandir(path, &names, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    char child[4096];
    if (names[i]->d_name[0] != '.' &&
        snprintf(child, sizeof child, "%s/%s", path, names[i]->d_name) < (int)sizeof child)
      replay(child);
    free(names[i]);
  }
  if (n >= 0)
    free(names);
}

int main(int argc, char **argv) {
  /* The empty input and a few zeros need no file. */
  static const uint8_t zeros[64];
  LLVMFuzzerTestOneInput(zeros, 0);
  LLVMFuzzerTestOneInput(zeros, sizeof zeros);
  for (int i = 1; i < argc; i++)
    replay(argv[i]);
  printf("%ld inputs\n", inputs + 2);
  return 0;
}
