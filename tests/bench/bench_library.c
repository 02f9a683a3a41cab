/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library costs a process that never calls NCCL: to open it, to run its constructors, to map it.
 *
 *   bench_library                prints NAME VALUE UNIT target VALUE ok|MISS lines
 *   bench_library load LIBRARY   opens the library, prints the microseconds that took
 *   bench_library init           prints the microseconds between the constructors of two libraries (init_clock.c) that are
 *                                loaded in front of the library and behind it
 */
#include <dlfcn.h>
#include <elf.h>
#include <libgen.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

enum { TURNS = 21 };

static const char *self, *library;
static char clocks[2][512]; /* paths of the two libraries */

static int load(const char *path) {
  double start = now_ns();
  if (!dlopen(path, RTLD_NOW))
    return 1;
  printf("%.1f\n", (now_ns() - start) / 1e3);
  return 0;
}

static double noted(const char *path) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  const double *at = handle ? dlsym(handle, "init_clock_ns") : NULL;
  return at ? *at : NAN;
}

static int init(void) {
  const double between = fabs(noted(clocks[0]) - noted(clocks[1])) / 1e3;
  printf("%.3f\n", between);
  return isnan(between);
}

/* Opening it, mapping and relocation included; without it in the page cache this would be the disk's time. */
static int loading(void) {
  char command[2048];
  double times[TURNS];
  snprintf(command, sizeof command, "'%s' load '%s'", self, library);
  for (int i = 0; i < TURNS; i++)
    if (!numbers_of(command, &times[i], 1))
      return 1;
  return report("library_load", median(times, TURNS), "us", 1000);
}

/* With their first touches of pages. */
static int constructors(void) {
  double times[2][TURNS];
  char command[2048];
  for (int i = 0; i < 2 * TURNS; i++) {
    snprintf(command, sizeof command, "LD_PRELOAD='%s:%s%s%s' '%s' init", clocks[0],
             i % 2 ? library : "", i % 2 ? ":" : "", clocks[1], self);
    if (!numbers_of(command, &times[i % 2][i / 2], 1))
      return 1;
  }
  return report("library_constructor", median(times[1], TURNS) - median(times[0], TURNS), "us",
                100);
}

/* What is mapped of the file: symbols and debug information are not. */
static int size(void) {
  Elf64_Ehdr header;
  double bytes = 0;
  FILE *file = fopen(library, "rb");
  if (!file || fread(&header, sizeof header, 1, file) != 1)
    return 1;
  for (int i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    fseek(file, (long)(header.e_phoff + (uint64_t)i * header.e_phentsize), SEEK_SET);
    if (fread(&segment, sizeof segment, 1, file) != 1)
      return 1;
    bytes += segment.p_type == PT_LOAD ? (double)segment.p_filesz : 0;
  }
  fclose(file);
  return report("library_size", bytes / (1 << 20), "MiB", 1.5);
}

int main(int argc, char **argv) {
  char own[400];
  snprintf(own, sizeof own, "%s", argv[0]);
  const char *directory = dirname(own);
  for (int i = 0; i < 2; i++)
    snprintf(clocks[i], sizeof clocks[i], "%s/init/%s.so", directory, i ? "last" : "first");
  if (argc == 3 && !strcmp(argv[1], "load"))
    return load(argv[2]);
  if (argc == 2 && !strcmp(argv[1], "init"))
    return init();
  self = argv[0];
  library = measured_library("bench_library");
  if (!library)
    return 1;
  return loading() | constructors() | size();
}
