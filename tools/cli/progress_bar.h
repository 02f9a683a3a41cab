/* SPDX-License-Identifier: Apache-2.0 */
/* A progress bar for work that lasts longer than a second, on a terminal only. */
#ifndef NT_CLI_PROGRESS_BAR_H
#define NT_CLI_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct nt_progress_bar {
  FILE *file; /* NULL: nobody is watching */
  const char *what;
  uint64_t total;
  int64_t start_ns, next_ns; /* CLOCK_MONOTONIC */
  bool shown;
};

/* `what` ("reading traces") must outlive the bar. Pass stderr, so that output stays clean. */
void nt_progress_bar_start(struct nt_progress_bar *progress, FILE *file, const char *what,
                           uint64_t total);
/* It is part of work that began then (CLOCK_MONOTONIC): the second counts from there. */
void nt_progress_bar_since(struct nt_progress_bar *progress, int64_t start_ns);
/* Cheap enough for every item; draws at most ten times a second. One thread. */
void nt_progress_bar_at(struct nt_progress_bar *progress, uint64_t done);
/* Wipes the bar. Call it before anything else is printed. */
void nt_progress_bar_end(struct nt_progress_bar *progress);

#endif
