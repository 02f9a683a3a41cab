/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace/clock.h"
#include "trace/error.h"
#include "trace/ring.h"

static char directory[64];

static int make_directory(void **state) {
  (void)state;
  snprintf(directory, sizeof(directory), "/dev/shm/nt-test-%d", (int)getpid());
  return 0;
}

static int remove_directory(void **state) {
  char command[128];
  (void)state;
  snprintf(command, sizeof(command), "rm -rf '%s'", directory);
  return system(command);
}

static struct nt_area make_area(void) {
  struct nt_area area;
  assert_int_equal(nt_area_create(directory, 2u << 20, &area), 0);
  assert_true(area.path[0]);
  return area;
}

static void drop_area(struct nt_area *area) {
  unlink(area->path);
  nt_area_close(area);
}

static void write_call(struct nt_area *area, struct nt_ring_writer *writer, uint64_t value) {
  struct nt_record *record = nt_ring_next(area, writer);
  if (!record) {
    fail_msg("no room");
    return;
  }
  memset(record, 0, sizeof(*record));
  record->enter = record->count = record->send = record->recv = value;
  nt_ring_publish(writer);
  nt_ring_close(writer);
}

static void an_open_record_is_seen_as_open(void **state) {
  (void)state;
  struct nt_area area = make_area();
  struct nt_ring_writer writer = {.thread = 1};
  static struct nt_chunk_copy copy;
  write_call(&area, &writer, 7);
  struct nt_record *record = nt_ring_next(&area, &writer);
  memset(record, 0, sizeof(*record));
  record->count = 8;
  nt_ring_publish(&writer);
  assert_true(nt_ring_snapshot(writer.chunk, 0, &copy));
  assert_int_equal(copy.published, 2);
  assert_int_equal(copy.closed, 1);
  assert_int_equal(copy.records[0].count, 7);
  assert_int_equal(copy.records[1].count, 8);
  drop_area(&area);
}

static void a_full_chunk_is_retired_and_another_taken(void **state) {
  (void)state;
  struct nt_area area = make_area();
  struct nt_ring_writer writer = {.thread = 1};
  write_call(&area, &writer, 0);
  struct nt_chunk *first = writer.chunk;
  for (uint64_t i = 1; i <= NT_CHUNK_RECORDS; i++)
    write_call(&area, &writer, i);
  assert_ptr_not_equal(writer.chunk, first);
  assert_int_equal(atomic_load(&first->state), NT_CHUNK_RETIRED);
  assert_int_equal(writer.next, 1);
  /* Not freed before it is drained, then free for anybody. */
  uint32_t generation = atomic_load(&first->generation);
  assert_false(nt_ring_free(first, generation, false));
  nt_ring_set_drained(first, generation, NT_CHUNK_RECORDS);
  assert_true(nt_ring_free(first, generation, false));
  drop_area(&area);
}

static void every_call_is_counted_once_wherever_its_chunk_went(void **state) {
  (void)state;
  struct nt_area area = make_area();
  struct nt_ring_writer writer = {.thread = 1}, other = {.thread = 2};
  const uint64_t calls = 3 * NT_CHUNK_RECORDS + 10;
  for (uint64_t i = 0; i < calls; i++)
    write_call(&area, &writer, i);
  write_call(&area, &other, 0);
  assert_int_equal(nt_ring_calls(&area), calls + 1);
  for (uint32_t i = 0; i < area.header->chunk_count; i++) {
    uint32_t generation = atomic_load(&area.chunks[i].generation);
    nt_ring_set_drained(&area.chunks[i], generation, NT_CHUNK_RECORDS);
    nt_ring_free(&area.chunks[i], generation, false);
  }
  nt_chunk_retire(&area, other.chunk, other.next);
  assert_int_equal(nt_ring_calls(&area), calls + 1);
  const uint64_t more = (uint64_t)area.header->chunk_count * NT_CHUNK_RECORDS;
  for (uint64_t i = 0; i < more; i++) /* the last chunk starts anew */
    write_call(&area, &writer, i);
  assert_int_equal(nt_ring_calls(&area), calls + 1 + more);
  drop_area(&area);
}

static void what_is_looked_through_has_every_chunk_that_was_claimed(void **state) {
  (void)state;
  struct nt_area area = make_area();
  const uint32_t all = area.header->chunk_count;
  assert_int_equal(nt_area_chunks_used(area.header),
                   all); /* nothing known: all are looked through */
  struct nt_ring_writer first = {.thread = 0}, other = {.thread = 2};
  write_call(&area, &first, 0);
  assert_int_equal(nt_area_chunks_used(area.header), first.chunk - area.chunks + 1);
  write_call(&area, &other, 0);
  assert_int_equal(nt_area_chunks_used(area.header), other.chunk - area.chunks + 1);
  for (uint64_t i = 0; i < (uint64_t)all * NT_CHUNK_RECORDS; i++)
    write_call(&area, &first, i);
  assert_int_equal(nt_area_chunks_used(area.header), all);
  atomic_store(&area.header->chunks_used, all + 1); /* damaged */
  assert_int_equal(nt_area_chunks_used(area.header), all);
  drop_area(&area);
}

/* Whatever is retired is drained and freed before the next chunk is full. */
static void a_thread_that_is_drained_in_time_stays_in_two_chunks(void **state) {
  (void)state;
  struct nt_area area = make_area();
  struct nt_ring_writer writer = {.thread = 3};
  const struct nt_chunk *used[8];
  uint32_t count = 0;
  for (uint64_t call = 0; call < 20 * NT_CHUNK_RECORDS; call++) {
    write_call(&area, &writer, call);
    uint32_t k = 0;
    while (k < count && used[k] != writer.chunk)
      k++;
    assert_true(k < 8);
    used[k] = writer.chunk;
    count += k == count;
    for (uint32_t i = 0; i < area.header->chunk_count; i++) {
      struct nt_chunk *chunk = &area.chunks[i];
      const uint32_t generation = atomic_load(&chunk->generation);
      if (atomic_load(&chunk->state) == NT_CHUNK_RETIRED) {
        assert_true(nt_ring_set_drained(chunk, generation, NT_CHUNK_RECORDS));
        assert_true(nt_ring_free(chunk, generation, false));
      }
    }
  }
  assert_int_equal(count, 2);
  assert_int_equal(nt_ring_calls(&area), 20 * NT_CHUNK_RECORDS);
  drop_area(&area);
}

static void without_a_free_chunk_the_oldest_calls_are_lost_and_counted(void **state) {
  (void)state;
  struct nt_area area = make_area();
  struct nt_ring_writer writer = {.thread = 1};
  uint64_t room = (uint64_t)area.header->chunk_count * NT_CHUNK_RECORDS;
  for (uint64_t i = 0; i < room; i++)
    write_call(&area, &writer, i);
  assert_int_equal(atomic_load(&area.header->lost), 0);
  write_call(&area, &writer, room);
  assert_int_equal(atomic_load(&area.header->lost), NT_CHUNK_RECORDS);
  /* A second thread finds nothing at all: its call is lost, and counted as well. */
  struct nt_ring_writer other = {.thread = 2};
  assert_null(nt_ring_next(&area, &other));
  assert_int_equal(atomic_load(&area.header->lost), NT_CHUNK_RECORDS + 1);
  assert_int_equal(nt_ring_calls(&area), room + 2);
  drop_area(&area);
}

/* The helper copies records, makes a frame of them and confirms; the owner may start over in between. */
static void what_was_copied_before_a_restart_and_not_confirmed_counts_as_lost(void **state) {
  (void)state;
  struct nt_area area = make_area();
  struct nt_ring_writer writer = {.thread = 1};
  uint64_t room = (uint64_t)area.header->chunk_count * NT_CHUNK_RECORDS;
  for (uint64_t i = 0; i < room; i++)
    write_call(&area, &writer, i);
  const uint32_t generation = atomic_load(&writer.chunk->generation);
  assert_true(nt_ring_set_drained(writer.chunk, generation, 100));
  write_call(&area, &writer, room);
  assert_int_equal(atomic_load(&area.header->lost), NT_CHUNK_RECORDS - 100);
  assert_false(nt_ring_set_drained(writer.chunk, generation, NT_CHUNK_RECORDS));
  assert_int_equal(nt_ring_drained(writer.chunk, generation), 0);
  assert_true(nt_ring_set_drained(writer.chunk, generation + 2, 1));
  assert_int_equal(nt_ring_drained(writer.chunk, generation + 2), 1);
  drop_area(&area);
}

static void a_late_drained_mark_does_not_reach_a_reset_chunk(void **state) {
  (void)state;
  struct nt_area area = make_area();
  struct nt_ring_writer writer = {.thread = 1};
  write_call(&area, &writer, 1);
  uint32_t generation = atomic_load(&writer.chunk->generation);
  nt_ring_set_drained(writer.chunk, generation, 1);
  assert_int_equal(nt_ring_drained(writer.chunk, generation), 1);
  assert_int_equal(nt_ring_drained(writer.chunk, generation + 2), 0);
  drop_area(&area);
}

struct race {
  struct nt_area *area;
  _Atomic int stop;
};

static void *write_for_ever(void *data) {
  struct race *race = data;
  struct nt_ring_writer writer = {.thread = 1};
  for (uint64_t i = 1; !atomic_load(&race->stop); i++)
    write_call(race->area, &writer, i);
  return NULL;
}

/* A reader that races with a thread which keeps overwriting its own chunks never sees a torn record. */
static void a_snapshot_is_never_torn(void **state) {
  (void)state;
  struct nt_area area = make_area();
  struct race race = {.area = &area};
  static struct nt_chunk_copy copy;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, write_for_ever, &race), 0);
  uint32_t good = 0;
  for (uint32_t round = 0; good < 5000; round++) {
    struct nt_chunk *chunk = &area.chunks[round % area.header->chunk_count];
    if (!nt_ring_snapshot(chunk, 0, &copy))
      continue;
    for (uint32_t i = 0; i < copy.closed; i++) {
      const struct nt_record *r = &copy.records[i];
      assert_true(r->enter == r->count && r->count == r->send && r->send == r->recv);
      assert_true(i == 0 || r->count == copy.records[i - 1].count + 1);
    }
    good++;
  }
  atomic_store(&race.stop, 1);
  pthread_join(thread, NULL);
  drop_area(&area);
}

static void records_survive_sigkill(void **state) {
  (void)state;
  int pipe_ends[2];
  char path[256] = "";
  assert_int_equal(pipe(pipe_ends), 0);
  pid_t child = fork();
  if (child == 0) {
    struct nt_area area;
    struct nt_ring_writer writer = {.thread = 1};
    if (nt_area_create(directory, 2u << 20, &area) != 0)
      _exit(1);
    for (uint64_t i = 1; i <= 100; i++) {
      struct nt_record *record = nt_ring_next(&area, &writer);
      record->count = i;
      nt_ring_publish(&writer);
      nt_ring_close(&writer);
    }
    if (write(pipe_ends[1], area.path, sizeof(area.path)) < 0)
      _exit(1);
    kill(getpid(), SIGKILL);
  }
  assert_int_equal(read(pipe_ends[0], path, sizeof(path)), sizeof(path));
  assert_int_equal(waitpid(child, NULL, 0), child);
  struct nt_area area;
  static struct nt_chunk_copy copy;
  assert_int_equal(nt_area_open(path, 0, &area), 0);
  uint64_t found = 0;
  for (uint32_t i = 0; i < area.header->chunk_count; i++)
    if (nt_ring_snapshot(&area.chunks[i], 0, &copy))
      found += copy.closed;
  assert_int_equal(found, 100);
  drop_area(&area);
}

static void damaged_areas_are_refused(void **state) {
  (void)state;
  struct nt_area area = make_area(), again;
  char path[256];
  memcpy(path, area.path, sizeof(path));
  area.header->chunk_offset = 0xfffff000u;
  assert_int_equal(nt_area_open(path, 0, &again), -NT_ERR_CORRUPT);
  area.header->major = 9;
  assert_int_equal(nt_area_open(path, 0, &again), -NT_ERR_VERSION);
  area.header->magic[0] = 'X';
  assert_int_equal(nt_area_open(path, 0, &again), -NT_ERR_FOREIGN);
  assert_int_equal(truncate(path, 100), 0);
  assert_int_equal(nt_area_open(path, 0, &again), -NT_ERR_TRUNCATED);
  unlink(path);
  assert_int_equal(nt_area_open(path, 0, &again), -NT_ERR_IO);
}

/* Beyond RLIMIT_FSIZE a write does not fail: SIGXFSZ kills. Every limit must be survived. */
static void a_file_size_limit_does_not_kill(void **state) {
  SKIP_IF_EMULATED("a limit of file size kills the emulator");
  (void)state;
  for (uint64_t limit = 0; limit < 4u << 20; limit += 200 * 1024) {
    pid_t child = fork();
    if (child == 0) {
      struct rlimit most = {limit, limit};
      struct nt_area area;
      setrlimit(RLIMIT_FSIZE, &most);
      if (nt_area_create(directory, 2560u << 10, &area) == 0)
        unlink(area.path);
      _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
}

static void a_directory_of_others_is_not_used(void **state) {
  (void)state;
  struct nt_area area;
  char open_to_all[96], link[96];
  snprintf(open_to_all, sizeof(open_to_all), "%s-open", directory);
  snprintf(link, sizeof(link), "%s-link", directory);
  mkdir(open_to_all, 0777);
  chmod(open_to_all, 0777);
  assert_int_equal(nt_area_create(open_to_all, 2u << 20, &area), 0);
  assert_string_equal(area.path, ""); /* a memory file instead */
  nt_area_close(&area);
  assert_int_equal(symlink(directory, link), 0);
  assert_int_equal(nt_area_create(link, 2u << 20, &area), 0);
  assert_string_equal(area.path, "");
  nt_area_close(&area);
  unlink(link);
  rmdir(open_to_all);
}

static void the_lock_falls_with_its_process(void **state) {
  (void)state;
  struct nt_area area = make_area(), other;
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    struct nt_area mine;
    if (nt_area_open(area.path, 1, &mine) != 0 || nt_area_lock(mine.fd) != 0)
      _exit(1);
    if (write(ready[1], "x", 1) != 1)
      _exit(1);
    for (;;)
      pause();
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  assert_int_equal(nt_area_open(area.path, 0, &other), 0);
  assert_int_equal(nt_area_is_locked(other.fd), 1);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  assert_int_equal(nt_area_is_locked(other.fd), 0);
  nt_area_close(&other);
  drop_area(&area);
}

static void durations_keep_their_size(void **state) {
  (void)state;
  const uint64_t ticks[] = {0, 1, 12345, (1u << 31) - 1, 1ull << 31, 1ull << 40, 1ull << 46};
  for (size_t i = 0; i < sizeof(ticks) / sizeof(*ticks); i++) {
    uint64_t back = nt_duration_decode(nt_duration_encode(ticks[i]));
    uint64_t error = ticks[i] > back ? ticks[i] - back : back - ticks[i];
    assert_true(error <= (ticks[i] < (1u << 31) ? 0 : 65536));
  }
}

static int64_t realtime(uint32_t kind, const struct nt_clock_sync *first,
                        const struct nt_clock_sync *last, uint64_t ticks) {
  return nt_clock_realtime(nt_clock_rate(kind, first, last), first, last, ticks);
}

static void a_tick_between_two_syncs_lies_between_their_times(void **state) {
  (void)state;
  const enum nt_clock_kind kind = nt_clock_pick();
#if defined(__aarch64__)
  assert_int_equal(kind, NT_CLOCK_TSC); /* every processor has the counter */
#endif
  struct nt_clock_sync first, last;
  nt_clock_sync(kind, &first);
  while (nt_clock_ticks(kind) == first.ticks)
    ;
  const uint64_t ticks = nt_clock_ticks(kind);
  do
    nt_clock_sync(kind, &last);
  while (last.ticks <= ticks);
  const int64_t at = realtime(kind, &first, &last, ticks);
  assert_true(at >= (int64_t)(last.realtime_ns - (last.monotonic_ns - first.monotonic_ns)) - 1);
  assert_true(at <= (int64_t)last.realtime_ns);
}

static void ticks_become_wall_time(void **state) {
  (void)state;
  struct nt_clock_sync first = {1000, 500, 10000}, last = {3000, 1500, 11000};
  assert_int_equal(realtime(NT_CLOCK_TSC, &first, &last, 3000), 11000);
  assert_int_equal(realtime(NT_CLOCK_TSC, &first, &last, 2000), 10500);
  assert_int_equal(realtime(NT_CLOCK_TSC, &first, &last, 5000), 12000);
  assert_int_equal(realtime(NT_CLOCK_TSC, &first, &first, 99999), 10000);
  struct nt_clock_sync mono = {500, 500, 10000};
  assert_int_equal(realtime(NT_CLOCK_MONOTONIC, &mono, &mono, 700), 10200);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_open_record_is_seen_as_open),
      cmocka_unit_test(a_full_chunk_is_retired_and_another_taken),
      cmocka_unit_test(every_call_is_counted_once_wherever_its_chunk_went),
      cmocka_unit_test(what_is_looked_through_has_every_chunk_that_was_claimed),
      cmocka_unit_test(a_thread_that_is_drained_in_time_stays_in_two_chunks),
      cmocka_unit_test(without_a_free_chunk_the_oldest_calls_are_lost_and_counted),
      cmocka_unit_test(what_was_copied_before_a_restart_and_not_confirmed_counts_as_lost),
      cmocka_unit_test(a_late_drained_mark_does_not_reach_a_reset_chunk),
      cmocka_unit_test(a_snapshot_is_never_torn),
      cmocka_unit_test(records_survive_sigkill),
      cmocka_unit_test(damaged_areas_are_refused),
      cmocka_unit_test(a_file_size_limit_does_not_kill),
      cmocka_unit_test(a_directory_of_others_is_not_used),
      cmocka_unit_test(the_lock_falls_with_its_process),
      cmocka_unit_test(durations_keep_their_size),
      cmocka_unit_test(a_tick_between_two_syncs_lies_between_their_times),
      cmocka_unit_test(ticks_become_wall_time),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
