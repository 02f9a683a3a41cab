/* SPDX-License-Identifier: Apache-2.0 */
/* Alive, on its way out, another program or gone: what the reader says of a process, and what it goes by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "emulated.h"
#include "trace/clock.h"
#include "trace_fixture.h"

#define SECOND UINT64_C(1000000000)

static struct fixture fixture;

static int begin(void **state) {
  *state = &fixture;
  memset(&fixture, 0, sizeof fixture);
  fixture_begin(&fixture);
  fixture_area(&fixture, 1 << 20);
  fixture_drain(&fixture, 1 << 20);
  atomic_store(&fixture.area.header->helper_tid, (uint32_t)getpid());
  atomic_store(&fixture.area.header->heartbeat_ns, nt_clock_ns(CLOCK_REALTIME));
  return 0;
}

static int end(void **state) {
  fixture_end(*state);
  return 0;
}

/* What another process makes of it: our own look would not see our own lock. */
struct seen {
  enum nt_process_state state;
  bool live, gpu_blocked;
  int exit_code;
  int64_t exit_ns;
  uint64_t oom_now;
};

static struct seen look(struct fixture *f) {
  int told[2];
  struct seen seen = {0};
  nt_drain_tick(f->drain, NT_DRAIN_FINAL);
  assert_int_equal(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    struct nt_trace *trace;
    struct nt_error err;
    if (nt_trace_open(f->area.header->file_path, 0, &trace, &err) == 0) {
      const struct nt_process_info *info = nt_trace_process(trace);
      seen = (struct seen){info->state,     info->live,    info->gpu_blocked,
                           info->exit_code, info->exit_ns, info->oom_now};
      (void)!write(told[1], &seen, sizeof seen);
    }
    _exit(0);
  }
  close(told[1]);
  assert_int_equal(read(told[0], &seen, sizeof seen), sizeof seen);
  close(told[0]);
  waitpid(child, NULL, 0);
  return seen;
}

static void called_exit(struct fixture *f, int code) {
  atomic_store(&f->area.header->exit_code, code);
  atomic_store(&f->area.header->exit_ns, nt_clock_ns(CLOCK_REALTIME) - 5 * SECOND);
  atomic_store(&f->area.header->run_state, NT_RUN_EXITING);
}

static void an_exit_that_has_not_finished_is_no_end(void **state) {
  struct fixture *f = *state;
  called_exit(f, 3);
  const struct seen seen = look(f);
  assert_int_equal(seen.state, NT_PROCESS_ENDING);
  assert_true(seen.live);
  assert_int_equal(seen.exit_code, 3);
  assert_int_equal(seen.exit_ns, atomic_load(&f->area.header->exit_ns));
}

/* From another node: the heart went on to beat. */
static void from_afar_a_heart_that_beats_on_tells_of_it(void **state) {
  struct fixture *f = *state;
  called_exit(f, 0);
  memset(f->area.header->boot_id, 'x', 36);
  nt_drain_close(f->drain, false);
  fixture_drain(f, 1 << 20);
  assert_int_equal(look(f).state, NT_PROCESS_ENDING);
  atomic_store(&f->area.header->exit_ns, atomic_load(&f->area.header->heartbeat_ns));
  assert_int_equal(look(f).state, NT_PROCESS_EXITED);
}

/* exec ends all threads and keeps the number. */
static void without_the_helper_it_is_another_program(void **state) {
  SKIP_IF_EMULATED("the start time in the emulator is not the one that others see");
  struct fixture *f = *state;
  const pid_t child = fork(); /* a number that is no thread of ours */
  if (child == 0)
    _exit(0);
  waitpid(child, NULL, 0);
  atomic_store(&f->area.header->helper_tid, (uint32_t)child);
  assert_int_equal(look(f).state, NT_PROCESS_RUNNING); /* the lock is held */
  close(f->area.fd);
  f->area.fd = -1;
  const struct seen seen = look(f);
  assert_int_equal(seen.state, NT_PROCESS_REPLACED);
  assert_false(seen.live);
  atomic_store(&f->area.header->helper_tid, (uint32_t)getpid());
  assert_int_equal(look(f).state, NT_PROCESS_RUNNING); /* it could not get the lock */
}

/* exec may come before the helper's first instruction. */
static void a_helper_that_never_began_was_replaced(void **state) {
  SKIP_IF_EMULATED("the start time in the emulator is not the one that others see");
  struct fixture *f = *state;
  atomic_store(&f->area.header->helper_tid, 0);
  close(f->area.fd);
  f->area.fd = -1;
  assert_int_equal(look(f).state, NT_PROCESS_RUNNING); /* it may be about to begin */
  f->area.header->clock_first.realtime_ns -= 10 * SECOND;
  assert_int_equal(look(f).state, NT_PROCESS_REPLACED);
}

static void a_look_that_lags_behind_the_heart_is_stuck(void **state) {
  struct fixture *f = *state;
  struct nt_area_header *header = f->area.header;
  const uint64_t beat = atomic_load(&header->heartbeat_ns);
  assert_false(look(f).gpu_blocked); /* nobody looks */
  atomic_store(&header->gpu_heartbeat_ns, beat - SECOND);
  assert_false(look(f).gpu_blocked);
  atomic_store(&header->gpu_heartbeat_ns, beat - 3 * SECOND);
  assert_true(look(f).gpu_blocked);
  /* It ends with exit, and is not stuck because the heart beats on. */
  called_exit(f, 0);
  atomic_store(&header->gpu_heartbeat_ns, atomic_load(&header->exit_ns) - SECOND / 10);
  assert_false(look(f).gpu_blocked);
}

static void a_living_process_was_not_killed_for_memory(void **state) {
  struct fixture *f = *state;
  atomic_store(&f->area.header->oom_kills, 0);
  assert_true(look(f).oom_now == NT_OOM_UNKNOWN);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(an_exit_that_has_not_finished_is_no_end, begin, end),
      cmocka_unit_test_setup_teardown(from_afar_a_heart_that_beats_on_tells_of_it, begin, end),
      cmocka_unit_test_setup_teardown(without_the_helper_it_is_another_program, begin, end),
      cmocka_unit_test_setup_teardown(a_helper_that_never_began_was_replaced, begin, end),
      cmocka_unit_test_setup_teardown(a_look_that_lags_behind_the_heart_is_stuck, begin, end),
      cmocka_unit_test_setup_teardown(a_living_process_was_not_killed_for_memory, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
