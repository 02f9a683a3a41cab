/* SPDX-License-Identifier: Apache-2.0 */
/* Draining: from a ring that is being written to, from dead processes, to disks that are full. */
#include <setjmp.h>
#include <signal.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "nccl/nccl_api.h"
#include "trace/drain_parts.h"
#include "trace_fixture.h"

static int begin(void **state) {
  static struct fixture f;
  fixture_begin(&f);
  *state = &f;
  return 0;
}

static int end(void **state) {
  fixture_end(*state);
  return 0;
}

static void every_closed_call_reaches_the_file(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_calls(f, 1000);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_FLUSH), 1000);
  fixture_expect(f->area.header->file_path, NT_OPEN_NO_AREA, 1, 1000, false);
}

static void a_lazy_tick_waits_for_more(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_calls(f, 10);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_LAZY), 0);
  int64_t moved = 0;
  for (int tick = 0; tick < 200 && !moved; tick++) {
    usleep(10000);
    moved = nt_drain_tick(f->drain, NT_DRAIN_LAZY);
  }
  assert_int_equal(moved, 10);
}

static void the_ring_can_be_used_for_ever(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 512 << 10);
  fixture_drain(f, 16 << 20);
  uint32_t total = 0;
  for (int round = 0; round < 200; round++) {
    fixture_calls(f, 977);
    total += 977;
    assert_true(nt_drain_tick(f->drain, NT_DRAIN_LAZY) >= 0);
  }
  assert_true(nt_drain_tick(f->drain, NT_DRAIN_FLUSH) >= 0);
  assert_int_equal(atomic_load(&f->area.header->lost), 0);
  fixture_expect(f->area.header->file_path, NT_OPEN_NO_AREA, 1, total, false);
}

static void chunks_of_ended_threads_are_emptied_before_they_run_out(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 512 << 10);
  fixture_drain(f, 8 << 20);
  const uint32_t threads = 4 * f->area.header->chunk_count;
  for (uint32_t i = 0; i < threads; i++) {
    fixture_call(f, false);
    nt_ring_retire(&f->area, &f->writer);
    assert_true(nt_drain_tick(f->drain, NT_DRAIN_LAZY) >= 0);
  }
  assert_int_equal(atomic_load(&f->area.header->lost), 0);
}

static void an_open_call_is_in_the_state(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_calls(f, 20);
  fixture_call(f, true);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_FINAL), 20);
  fixture_expect(f->area.header->file_path, NT_OPEN_NO_AREA, 1, 21, true);
  nt_ring_close(&f->writer);
}

static void what_is_overwritten_is_counted(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 1); /* the least there is: eight segments of 64 KiB */
  uint32_t total = 0;
  while (atomic_load(&f->area.header->overwritten) == 0) {
    for (int i = 0; i < 500; i++) {
      struct nt_record record = {.enter = fixture_random(),
                                 .send = fixture_random(),
                                 .recv = fixture_random(),
                                 .count = fixture_random(),
                                 .comm = 1,
                                 .fn = NT_FN_AllReduce,
                                 .seq = ++total};
      fixture_record(f, &record);
    }
    assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_FLUSH), 500);
  }
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  assert_int_equal(nt_trace_open(f->area.header->file_path, NT_OPEN_NO_AREA, &trace, &err), 0);
  const int64_t count = nt_trace_calls(trace, &calls, &err);
  assert_int_equal(nt_trace_warning_count(trace), 0);
  assert_true(nt_trace_process(trace)->overwritten > 0);
  assert_int_equal((uint64_t)count + nt_trace_process(trace)->overwritten, total);
  for (int64_t i = 0; i < count; i++) {
    assert_int_equal(calls[i].seq, total - (uint32_t)count + 1 + (uint32_t)i);
    assert_int_equal(calls[i].comm, 1);
  }
  /* The definition is in every segment, so it has outlived the one that had it first. */
  assert_string_equal(nt_trace_comm_by_number(trace, 1)->def.name, "comm1");
  nt_trace_close(trace);
}

static void record_and_drain_some(struct fixture *f) {
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_calls(f, 300);
  nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
  fixture_calls(f, 400);
  fixture_call(f, true);
}

static void a_killed_process_loses_nothing(void **state) {
  struct fixture *f = *state;
  char file[700], area[700];
  fixture_doomed(f, record_and_drain_some);
  assert_true(fixture_find(f->files, ".trace", file, sizeof file));
  assert_true(fixture_find(f->areas, ".area", area, sizeof area));
  fixture_expect(file, 0, 1, 701, true);
  fixture_expect(area, 0, 1, 701, true);
  fixture_expect(file, NT_OPEN_NO_AREA, 1, 300, false);
}

static void collecting_moves_the_rest_into_the_file(void **state) {
  struct fixture *f = *state;
  char file[700], area[700];
  fixture_doomed(f, record_and_drain_some);
  assert_int_equal(nt_drain_collect(f->areas, 3600), 1);
  assert_false(fixture_find(f->areas, ".area", area, sizeof area));
  assert_true(fixture_find(f->files, ".trace", file, sizeof file));
  fixture_expect(file, 0, 1, 701, true);
  struct nt_trace *trace;
  struct nt_error err;
  assert_int_equal(nt_trace_open(file, 0, &trace, &err), 0);
  assert_int_equal(nt_trace_process(trace)->state, NT_PROCESS_VANISHED);
  assert_int_equal(nt_trace_process(trace)->calls, 701);
  assert_string_equal(nt_trace_evidence(trace, "gpu.0.uuid"), "GPU-1");
  nt_trace_close(trace);
}

static void record_without_file(struct fixture *f) {
  fixture_area(f, 1 << 20);
  fixture_calls(f, 5);
}

static void an_area_without_a_file_stays_for_a_while(void **state) {
  struct fixture *f = *state;
  char area[700];
  fixture_doomed(f, record_without_file);
  assert_int_equal(nt_drain_collect(f->areas, 3600), 0);
  assert_true(fixture_find(f->areas, ".area", area, sizeof area));
  fixture_expect(area, 0, 1, 5, false);
  assert_int_equal(nt_drain_collect(f->areas, 0), 1);
}

static void a_replaced_file_is_left_alone(void **state) {
  struct fixture *f = *state;
  char file[700];
  fixture_doomed(f, record_and_drain_some);
  assert_true(fixture_find(f->files, ".trace", file, sizeof file));
  assert_int_equal(unlink(file), 0);
  fixture_store(file, (const unsigned char *)"mine", 4);
  assert_int_equal(nt_drain_collect(f->areas, 3600), 0);
  uint64_t length;
  unsigned char *bytes = fixture_load(file, &length);
  assert_int_equal(length, 4);
  free(bytes);
}

static void a_living_process_is_not_collected(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_calls(f, 5);
  const pid_t child = fork();
  if (child == 0)
    _exit(nt_drain_collect(f->areas, 0) == 0 ? 0 : 1);
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(nt_drain_collect(f->areas, 0), 0);
  assert_int_equal(access(f->area.path, F_OK), 0);
}

static void collectors_do_not_disturb_each_other(void **state) {
  struct fixture *f = *state;
  char file[700];
  for (int round = 0; round < 5; round++) {
    fixture_doomed(f, record_and_drain_some);
    pid_t children[4];
    for (int i = 0; i < 4; i++)
      if ((children[i] = fork()) == 0)
        _exit(nt_drain_collect(f->areas, 3600));
    int removed = 0;
    for (int i = 0; i < 4; i++) {
      int status;
      waitpid(children[i], &status, 0);
      assert_true(WIFEXITED(status));
      removed += WEXITSTATUS(status);
    }
    assert_int_equal(removed, 1);
    assert_true(fixture_find(f->files, ".trace", file, sizeof file));
    fixture_expect(file, 0, 1, 701, true);
    unlink(file);
  }
}

static void a_destroyed_communicator_frees_its_slot_and_stays_known(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_calls(f, 3);
  atomic_store(&f->area.comms[1].live.state, NT_COMM_DESTROYED);
  for (int tick = 0; tick < 4; tick++)
    assert_true(nt_drain_tick(f->drain, NT_DRAIN_LAZY) >= 0);
  assert_int_equal(atomic_load(&f->area.comms[1].live.state), NT_COMM_FREE);
  assert_int_equal(atomic_load(&f->area.comms[1].guard) & 1, 0);
  fixture_comm(f, 1, 2); /* the slot has a new tenant */
  struct nt_record record = {
      .enter = f->area.comms[1].def.enter + 10, .comm = 1, .fn = NT_FN_AllReduce, .seq = 1};
  fixture_record(f, &record);
  nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  assert_int_equal(nt_trace_open(f->area.header->file_path, NT_OPEN_NO_AREA, &trace, &err), 0);
  assert_int_equal(nt_trace_comm_count(trace), 2);
  assert_int_equal(nt_trace_comm_by_number(trace, 1)->state, NT_COMM_DESTROYED);
  assert_int_equal(nt_trace_comm_by_number(trace, 1)->collectives, 3);
  assert_int_equal(nt_trace_calls(trace, &calls, &err), 4);
  assert_int_equal(calls[2].comm, 1);
  assert_int_equal(calls[3].comm, 2);
  nt_trace_close(trace);
}

static void an_open_call_keeps_its_communicator(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_call(f, true);
  atomic_store(&f->area.comms[1].live.state, NT_COMM_ABORTED);
  for (int tick = 0; tick < 5; tick++)
    nt_drain_tick(f->drain, NT_DRAIN_LAZY);
  assert_int_equal(atomic_load(&f->area.comms[1].live.state), NT_COMM_ABORTED);
  nt_ring_close(&f->writer);
  for (int tick = 0; tick < 5; tick++)
    nt_drain_tick(f->drain, NT_DRAIN_LAZY);
  assert_int_equal(atomic_load(&f->area.comms[1].live.state), NT_COMM_FREE);
}

static void a_thread_that_died_in_a_call_is_drained(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_calls(f, 2);
  fixture_call(f, true);
  struct nt_chunk *chunk = f->writer.chunk;
  nt_ring_retire(&f->area, &f->writer);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_FLUSH), 3);
  assert_int_equal(atomic_load(&chunk->state), NT_CHUNK_FREE);
  assert_int_equal(atomic_load(&f->area.header->abandoned), 1);
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  assert_int_equal(nt_trace_open(f->area.header->file_path, NT_OPEN_NO_AREA, &trace, &err), 0);
  assert_int_equal(nt_trace_calls(trace, &calls, &err), 3);
  assert_int_equal(calls[2].flags, NT_CALL_ABANDONED);
  assert_int_equal(calls[2].exit_ns, 0);
  nt_trace_close(trace);
}

static void a_full_disk_is_counted_and_survived(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_calls(f, 100);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_FLUSH), 100);
  struct stat file;
  assert_int_equal(stat(f->area.header->file_path, &file), 0);
  struct rlimit before, limit;
  getrlimit(RLIMIT_FSIZE, &before);
  limit = before;
  limit.rlim_cur = (rlim_t)file.st_size;
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int i = 0; i < 20; i++) {
    fixture_calls(f, 50);
    nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
  }
  assert_true(atomic_load(&f->area.header->write_errors) > 0);
  assert_int_equal(atomic_load(&f->area.header->last_errno), EFBIG);
  /* Nothing is lost yet: it is in the spool and in the ring. */
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  assert_true(nt_drain_tick(f->drain, NT_DRAIN_FLUSH) >= 0);
  fixture_expect(f->area.header->file_path, NT_OPEN_NO_AREA, 1, 1100, false);
}

static void a_ring_without_a_disk_loses_the_oldest_and_says_so(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 512 << 10);
  fixture_drain(f, 8 << 20);
  struct rlimit before, limit;
  getrlimit(RLIMIT_FSIZE, &before);
  limit = before;
  limit.rlim_cur = NT_CHUNK_BYTES;
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int i = 0; i < 100; i++) {
    fixture_calls(f, 500);
    nt_drain_tick(f->drain, NT_DRAIN_LAZY);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  assert_int_equal(nt_trace_open(f->area.header->file_path, NT_OPEN_NO_AREA, &trace, &err), 0);
  const int64_t count = nt_trace_calls(trace, &calls, &err);
  const struct nt_process_info *info = nt_trace_process(trace);
  assert_true(info->lost > 0);
  assert_int_equal((uint64_t)count + info->lost, info->calls);
  assert_int_equal(calls[count - 1].seq, 50000);
  nt_trace_close(trace);
}

static void the_spool_of_a_killed_writer_is_not_written_twice(void **state) {
  struct fixture *f = *state;
  char file[700];
  fixture_doomed(f, record_and_drain_some);
  char area[700];
  assert_true(fixture_find(f->areas, ".area", area, sizeof area));
  assert_true(fixture_find(f->files, ".trace", file, sizeof file));
  /* As if it had died between writing the spool and emptying it. */
  uint64_t length;
  unsigned char *bytes = fixture_load(area, &length);
  struct nt_area_header *header = (struct nt_area_header *)(void *)bytes;
  struct stat before, after;
  assert_int_equal(stat(file, &before), 0);
  uint32_t used = 0;
  while (memcmp(bytes + header->spool_offset + used, "NTFR", 4) == 0) {
    uint32_t stored;
    memcpy(&stored, bytes + header->spool_offset + used + 16, 4);
    used += (64 + stored + 7) / 8 * 8;
  }
  assert_true(used > 0);
  atomic_store(&header->spool_used, used);
  fixture_store(area, bytes, length);
  free(bytes);
  fixture_expect(file, 0, 1, 701, true);
  assert_int_equal(nt_drain_collect(f->areas, 3600), 1);
  assert_int_equal(stat(file, &after), 0);
  assert_true(after.st_size - before.st_size < 6000); /* 400 calls, not 700 */
  fixture_expect(file, 0, 1, 701, true);
}

/* Else a slow pace would cost a sync a second. */
static void calls_that_wait_for_more_have_not_stopped(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  f->drain->file.network = true; /* the state itself is written once a minute */
  fixture_calls(f, 100);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_FLUSH), 100);
  const uint64_t written = f->drain->file.state_version;
  fixture_calls(f, 10);
  f->drain->active -= 6 * UINT64_C(1000000000);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_LAZY), 0);
  assert_int_equal(f->drain->file.state_version, written);
  f->drain->waiting_since = 1;
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_LAZY), 10);
  f->drain->active -= 6 * UINT64_C(1000000000);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_LAZY), 0);
  assert_int_equal(f->drain->file.state_version, written + 1);
}

static void a_shared_file_system_is_spared(void **state) {
  struct fixture *f = *state;
  struct stat before, after;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  f->drain->file.network = true;
  fixture_calls(f, 100);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_FLUSH), 100);
  assert_int_equal(stat(f->area.header->file_path, &before), 0);
  /* Several frames' worth, in small portions: all of it waits in the spool. */
  uint32_t total = 100;
  for (int i = 0; i < 20; i++, total += 1500) {
    fixture_calls(f, 1500);
    assert_true(nt_drain_tick(f->drain, NT_DRAIN_LAZY) >= 0);
  }
  assert_int_equal(stat(f->area.header->file_path, &after), 0);
  assert_int_equal(after.st_size, before.st_size);
  assert_true(atomic_load(&f->area.header->spool_used) > 0);
  /* A reader on the node has them nevertheless. */
  fixture_expect(f->area.header->file_path, 0, 1, total, false);
  fixture_expect(f->area.path, 0, 1, total, false);
  /* The calls stop: after a while everything is written, once. */
  f->drain->active -= 6 * UINT64_C(1000000000);
  f->drain->waiting_since = 1;
  assert_true(nt_drain_tick(f->drain, NT_DRAIN_LAZY) >= 0);
  f->drain->active -= 6 * UINT64_C(1000000000);
  assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_LAZY), 0);
  assert_int_equal(atomic_load(&f->area.header->spool_used), 0);
  fixture_expect(f->area.header->file_path, NT_OPEN_NO_AREA, 1, total, false);
  /* A full spool is written too. */
  for (int i = 0; i < 400; i++) {
    for (int k = 0; k < 500; k++) {
      const struct nt_record record = {
          .enter = fixture_random(), .send = fixture_random(), .comm = 1, .fn = 30};
      fixture_record(f, &record);
    }
    assert_true(nt_drain_tick(f->drain, NT_DRAIN_LAZY) >= 0);
  }
  assert_int_equal(atomic_load(&f->area.header->lost), 0);
  assert_int_equal(stat(f->area.header->file_path, &after), 0);
  assert_true(after.st_size > before.st_size + (1 << 20));
}

static void a_removed_directory_comes_back_a_removed_file_does_not(void **state) {
  struct fixture *f = *state;
  struct nt_drain_config config = {.size = 8 << 20};
  char path[sizeof f->area.header->file_path];
  fixture_area(f, 1 << 20);
  fixture_drain(f, config.size);
  snprintf(config.directory, sizeof config.directory, "%s", f->files);
  fixture_calls(f, 10);
  nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
  memcpy(path, f->area.header->file_path, sizeof path);
  assert_int_equal(nt_drain_renew(f->drain, &config), 0);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(nt_drain_renew(f->drain, &config), 0);
  assert_int_equal(rmdir(f->files), 0);
  assert_int_equal(nt_drain_renew(f->drain, &config), 1);
  fixture_calls(f, 5);
  nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
  fixture_expect(f->area.header->file_path, NT_OPEN_NO_AREA, 11, 15, false);
  assert_int_equal(atomic_load(&f->area.header->overwritten), 10);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(every_closed_call_reaches_the_file),
      TEST(a_lazy_tick_waits_for_more),
      TEST(the_ring_can_be_used_for_ever),
      TEST(chunks_of_ended_threads_are_emptied_before_they_run_out),
      TEST(an_open_call_is_in_the_state),
      TEST(what_is_overwritten_is_counted),
      TEST(a_killed_process_loses_nothing),
      TEST(collecting_moves_the_rest_into_the_file),
      TEST(an_area_without_a_file_stays_for_a_while),
      TEST(a_replaced_file_is_left_alone),
      TEST(a_living_process_is_not_collected),
      TEST(collectors_do_not_disturb_each_other),
      TEST(a_destroyed_communicator_frees_its_slot_and_stays_known),
      TEST(an_open_call_keeps_its_communicator),
      TEST(a_thread_that_died_in_a_call_is_drained),
      TEST(a_full_disk_is_counted_and_survived),
      TEST(a_ring_without_a_disk_loses_the_oldest_and_says_so),
      TEST(calls_that_wait_for_more_have_not_stopped),
      TEST(a_shared_file_system_is_spared),
      TEST(a_removed_directory_comes_back_a_removed_file_does_not),
      TEST(the_spool_of_a_killed_writer_is_not_written_twice),
  };
  return cmocka_run_group_tests_name("drain", tests, NULL, NULL);
}
