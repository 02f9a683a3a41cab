/* SPDX-License-Identifier: Apache-2.0 */
/* A directory tree that stands for /proc and /sys. */
#ifndef TREE_FIXTURE_H
#define TREE_FIXTURE_H

/* A new, empty one; its path lasts until the next. */
const char *tree_begin(void);
/* Makes a file with its directories; `path` is absolute within the tree. */
void tree_file(const char *path, const char *text);
void tree_end(void);

#endif
