/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress_bar.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A terminal, and what is drawn on it. */
struct terminal {
  int watcher;
  FILE *file;
};

static struct terminal open_terminal(void) {
  struct terminal t = {.watcher = posix_openpt(O_RDWR | O_NOCTTY)};
  assert_true(t.watcher >= 0);
  assert_int_equal(grantpt(t.watcher), 0);
  assert_int_equal(unlockpt(t.watcher), 0);
  const char *name = ptsname(t.watcher);
  const int own = name ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
  assert_true(own >= 0);
  t.file = fdopen(own, "w");
  assert_non_null(t.file);
  setenv("TERM", "xterm", 1);
  return t;
}

/* What has been drawn since the last time. */
static const char *drawn(const struct terminal *t) {
  static char text[512];
  struct pollfd ready = {.fd = t->watcher, .events = POLLIN};
  size_t length = 0;
  while (poll(&ready, 1, 0) == 1 && ready.revents & POLLIN && length + 1 < sizeof text) {
    const ssize_t got = read(t->watcher, text + length, sizeof text - 1 - length);
    if (got <= 0)
      break;
    length += (size_t)got;
  }
  text[length] = '\0';
  return text;
}

static void close_terminal(struct terminal *t) {
  (void)fclose(t->file);
  close(t->watcher);
}

/* As if the first second, or the time between two pictures, were over. */
static void wait_for_next(struct nt_progress_bar *bar) {
  bar->next_ns = 0;
}

static void a_bar_is_drawn_after_a_second_and_wiped_in_the_end(void **state) {
  (void)state;
  struct terminal t = open_terminal();
  struct nt_progress_bar bar;
  nt_progress_bar_start(&bar, t.file, "reading", 1024);
  nt_progress_bar_at(&bar, 100);
  assert_string_equal(drawn(&t), "");
  wait_for_next(&bar);
  nt_progress_bar_at(&bar, 512);
  assert_string_equal(drawn(&t),
                      "\rreading [###############               ]  50 %  512 of 1024\033[K");
  nt_progress_bar_at(&bar, 513);
  assert_string_equal(drawn(&t), "");
  wait_for_next(&bar);
  nt_progress_bar_at(&bar, 1024);
  assert_string_equal(drawn(&t),
                      "\rreading [##############################] 100 %  1024 of 1024\033[K");
  nt_progress_bar_end(&bar);
  assert_string_equal(drawn(&t), "\r\033[K");
  close_terminal(&t);
}

static void a_part_of_work_that_has_lasted_a_second_has_its_bar_at_once(void **state) {
  (void)state;
  struct terminal t = open_terminal();
  struct nt_progress_bar bar;
  nt_progress_bar_start(&bar, t.file, "judging", 7);
  nt_progress_bar_since(&bar, bar.start_ns - INT64_C(1000000000));
  nt_progress_bar_at(&bar, 0);
  assert_string_equal(drawn(&t), "\rjudging [                              ]   0 %  0 of 7\033[K");
  nt_progress_bar_end(&bar);
  close_terminal(&t);
}

static void what_is_done_within_a_second_leaves_no_trace(void **state) {
  (void)state;
  struct terminal t = open_terminal();
  struct nt_progress_bar bar;
  nt_progress_bar_start(&bar, t.file, "reading", 10);
  for (uint64_t done = 1; done <= 10; done++)
    nt_progress_bar_at(&bar, done);
  nt_progress_bar_end(&bar);
  assert_string_equal(drawn(&t), "");
  close_terminal(&t);
}

static void no_bar_is_drawn_where_nobody_watches(void **state) {
  (void)state;
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const struct terminal t = {ends[0], fdopen(ends[1], "w")};
  assert_non_null(t.file);
  setenv("TERM", "xterm", 1);
  struct nt_progress_bar bar;
  nt_progress_bar_start(&bar, t.file, "reading", 10);
  wait_for_next(&bar);
  nt_progress_bar_at(&bar, 5);
  nt_progress_bar_end(&bar);
  assert_string_equal(drawn(&t), "");
  struct terminal copy = t;
  close_terminal(&copy);
}

static void a_terminal_that_cannot_draw_over_a_line_gets_none(void **state) {
  (void)state;
  struct terminal t = open_terminal();
  struct nt_progress_bar bar;
  for (int i = 0; i < 2; i++) {
    if (i)
      unsetenv("TERM");
    else
      setenv("TERM", "dumb", 1);
    nt_progress_bar_start(&bar, t.file, "reading", 10);
    wait_for_next(&bar);
    nt_progress_bar_at(&bar, 5);
    nt_progress_bar_end(&bar);
    assert_string_equal(drawn(&t), "");
  }
  close_terminal(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_bar_is_drawn_after_a_second_and_wiped_in_the_end),
      cmocka_unit_test(a_part_of_work_that_has_lasted_a_second_has_its_bar_at_once),
      cmocka_unit_test(what_is_done_within_a_second_leaves_no_trace),
      cmocka_unit_test(no_bar_is_drawn_where_nobody_watches),
      cmocka_unit_test(a_terminal_that_cannot_draw_over_a_line_gets_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
