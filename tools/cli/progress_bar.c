/* SPDX-License-Identifier: Apache-2.0 */
/* The bar is one line that is drawn over itself and wiped at the end. */
#include "cli/progress_bar.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR_WIDTH = 30 };
static const int64_t first_after_ns = 1000000000, again_after_ns = 100000000;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void nt_progress_bar_start(struct nt_progress_bar *progress, FILE *file, const char *what,
                           uint64_t total) {
  const char *term = getenv("TERM");
  bool watched = isatty(fileno(file)) == 1 && term != NULL && strcmp(term, "dumb") != 0;
  *progress = (struct nt_progress_bar){.file = watched ? file : NULL, .what = what, .total = total};
  if (watched) {
    progress->start_ns = now_ns();
    progress->next_ns = progress->start_ns + first_after_ns;
  }
}

void nt_progress_bar_since(struct nt_progress_bar *progress, int64_t start_ns) {
  progress->start_ns = start_ns;
  progress->next_ns = start_ns + first_after_ns;
}

void nt_progress_bar_at(struct nt_progress_bar *progress, uint64_t done) {
  static const char full[] = "##############################";
  if (progress->file == NULL)
    return;
  int64_t now = now_ns();
  if (now < progress->next_ns)
    return;
  progress->next_ns = now + again_after_ns;
  progress->shown = true;
  double part = progress->total > 0 ? (double)done / (double)progress->total : 0;
  part = part > 1 ? 1 : part;
  int filled = (int)(part * BAR_WIDTH);
  fprintf(progress->file, "\r%s [%.*s%*s] %3d %%  %" PRIu64 " of %" PRIu64 "\033[K", progress->what,
          filled, full, BAR_WIDTH - filled, "", (int)(part * 100), done, progress->total);
  fflush(progress->file);
}

void nt_progress_bar_end(struct nt_progress_bar *progress) {
  if (progress->file != NULL && progress->shown) {
    fputs("\r\033[K", progress->file);
    fflush(progress->file);
  }
  progress->file = NULL;
}
