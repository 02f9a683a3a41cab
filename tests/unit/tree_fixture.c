/* SPDX-License-Identifier: Apache-2.0 */
#include "tree_fixture.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[256];

const char *tree_begin(void) {
  const char *temporary = getenv("TMPDIR");
  snprintf(root, sizeof root, "%s/nccltrace-tree-XXXXXX", temporary ? temporary : "/tmp");
  assert_non_null(mkdtemp(root));
  return root;
}

void tree_file(const char *path, const char *text) {
  char full[1024];
  snprintf(full, sizeof full, "%s%s", root, path);
  for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    mkdir(full, 0700);
    *at = '/';
  }
  FILE *file = fopen(full, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static int drop(const char *path, const struct stat *state, int kind, struct FTW *walk) {
  (void)state;
  (void)kind;
  (void)walk;
  return remove(path);
}

void tree_end(void) {
  nftw(root, drop, 16, FTW_DEPTH | FTW_PHYS);
  root[0] = 0;
}
