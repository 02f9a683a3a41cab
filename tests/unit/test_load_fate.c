/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that vanished, put together from their traces, their neighbours' notes and a dump's kernel log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/load_trace.h"
#include "trace/bytes.h"
#include "trace_fixture.h"

static struct fixture fixture;

/* A process that is gone: its number has another start. */
static int begin(void **state) {
  *state = &fixture;
  memset(&fixture, 0, sizeof fixture);
  fixture_begin(&fixture);
  fixture_area(&fixture, 1 << 20);
  fixture.area.header->pid_ns = 0xEFFFFFFC;
  fixture.area.header->start_time = 1;
  atomic_store(&fixture.area.header->heartbeat_ns,
               fixture.area.header->clock_first.realtime_ns + 5);
  fixture_drain(&fixture, 1 << 20);
  return 0;
}

static int end(void **state) {
  fixture_end(*state);
  return 0;
}

static void put_kernel_log(struct fixture *f, uint32_t pid) {
  struct nt_buffer section = {0};
  const struct nt_dump_head head = {.number = 1, .section = NT_DUMP_HARDWARE, .began_ns = 1};
  nt_dump_add_head(&section, &head);
  nt_dump_add_fact(&section, "kernel.1",
                   "3 s ago: Memory cgroup out of memory: Killed process %u (python) total-vm:1kB",
                   pid);
  assert_int_equal(nt_drain_dump(f->drain, &section), 0);
  free(section.data);
}

/* The process as one of the model; `note` may be NULL. */
static void load(struct fixture *f, const struct nt_peer_note *note, struct nt_model *model) {
  struct nt_trace_loader loader = {0};
  struct nt_trace *trace;
  struct nt_error err;
  nt_drain_tick(f->drain, NT_DRAIN_FINAL);
  close(f->area.fd);
  f->area.fd = -1;
  assert_int_equal(nt_trace_open(f->area.header->file_path, 0, &trace, &err), 0);
  assert_int_equal(nt_trace_loader_add(&loader, trace, "a trace", &err), 0);
  nt_trace_close(trace);
  if (note) {
    loader.peers = malloc(sizeof *loader.peers);
    assert_non_null(loader.peers);
    loader.peers[loader.peer_count++] = (struct nt_loaded_note){.note = *note};
  }
  assert_int_equal(nt_trace_loader_finish(&loader, 0, model), 0);
  assert_int_equal(model->rank_count, 1);
  assert_int_equal(model->ranks[0].state, NT_PROCESS_VANISHED);
}

static struct nt_peer_note note_of(const struct fixture *f, uint64_t beat_ns) {
  return (struct nt_peer_note){.pid = f->area.header->pid,
                               .world_rank = f->area.header->world_rank,
                               .start_time = 1,
                               .vanished_ns = beat_ns + 50,
                               .last_beat_ns = beat_ns,
                               .oom_kills = 2};
}

static void the_kernel_log_of_a_dump_names_who_was_killed(void **state) {
  struct fixture *f = *state;
  struct nt_model model;
  put_kernel_log(f, f->area.header->pid);
  load(f, NULL, &model);
  assert_int_equal(model.ranks[0].oom, NT_OOM_LOGGED);
  nt_model_free(&model);
}

static void another_process_in_the_log_is_another(void **state) {
  struct fixture *f = *state;
  struct nt_model model;
  put_kernel_log(f, f->area.header->pid + 1);
  load(f, NULL, &model);
  assert_int_not_equal(model.ranks[0].oom, NT_OOM_LOGGED);
  nt_model_free(&model);
}

/* The kernel's log has numbers of the first namespace. */
static void the_same_number_in_a_container_is_another(void **state) {
  struct fixture *f = *state;
  struct nt_model model;
  f->area.header->pid_ns = 4026532000;
  nt_drain_close(f->drain, false);
  fixture_drain(f, 1 << 20);
  put_kernel_log(f, f->area.header->pid);
  load(f, NULL, &model);
  assert_int_not_equal(model.ranks[0].oom, NT_OOM_LOGGED);
  nt_model_free(&model);
}

static void a_neighbour_tells_that_the_count_rose(void **state) {
  struct fixture *f = *state;
  struct nt_model model;
  const uint64_t beat = f->area.header->clock_first.realtime_ns + 1000;
  const struct nt_peer_note note = note_of(f, beat);
  atomic_store(&f->area.header->oom_kills, 3);
  load(f, &note, &model);
  assert_int_equal(model.ranks[0].oom, NT_OOM_LIKELY); /* no cgroup is known: it is the machine's */
  assert_int_equal(model.ranks[0].oom_from, 3);
  assert_int_equal(model.ranks[0].oom_to, 5);
  assert_int_equal(model.ranks[0].gone_ns, beat);
  nt_model_free(&model);
}

/* One process number, two programs: exec. */
static void a_note_on_the_program_before_an_exec_is_not_on_this_one(void **state) {
  struct fixture *f = *state;
  struct nt_model model;
  const struct nt_peer_note note = note_of(f, f->area.header->clock_first.realtime_ns - 1000);
  load(f, &note, &model);
  assert_int_equal(model.ranks[0].oom, NT_OOM_NONE);
  assert_int_equal(model.ranks[0].noticed_ns, 0);
  nt_model_free(&model);
}

static void of_many_processes_a_note_is_about_one(void **state) {
  enum { COUNT = 40, NOTED = 17 };
  struct nt_trace_loader loader = {0};
  struct nt_model model;
  (void)state;
  for (uint32_t i = 0; i < COUNT; i++) {
    struct nt_model_rank *rank = nt_model_add_rank(&loader.model);
    assert_non_null(rank);
    rank->world = (int32_t)i;
    rank->world_size = COUNT;
    rank->pid = 1000 + i % (COUNT / 2); /* numbers are given again */
    rank->start_time = 1 + i / (COUNT / 2);
    rank->state = NT_PROCESS_VANISHED;
    rank->host = strdup("node");
  }
  loader.peers = calloc(1, sizeof *loader.peers);
  assert_non_null(loader.peers);
  loader.peer_count = 1;
  loader.peers[0].note = (struct nt_peer_note){.pid = loader.model.ranks[NOTED].pid,
                                               .start_time = loader.model.ranks[NOTED].start_time,
                                               .world_rank = NOTED,
                                               .vanished_ns = 60,
                                               .last_beat_ns = 10};
  assert_int_equal(nt_trace_loader_finish(&loader, 0, &model), 0);
  assert_int_equal(model.rank_count, COUNT);
  for (uint32_t i = 0; i < COUNT; i++)
    assert_int_equal(model.ranks[i].noticed_ns, i == NOTED ? 60 : 0);
  nt_model_free(&model);
}

enum known { UNKNOWN, KNOWN, NOTICED };

/* Three processes; the first one's heart stops 4 s before the others vanish, one of which knows it. Returns when it ended. */
static int64_t end_of_a_silent_one(uint64_t boot, enum known known) {
  const int64_t second = 1000000000, start = 1764384000 * second;
  struct nt_trace_loader loader = {0};
  struct nt_model model;
  for (uint32_t i = 0; i < 3; i++) {
    struct nt_model_rank *rank = nt_model_add_rank(&loader.model);
    assert_non_null(rank);
    rank->world = (int32_t)i;
    rank->world_size = 3;
    rank->pid = 100 + i;
    rank->start_time = 1;
    rank->boot = i ? boot : 7;
    rank->state = NT_PROCESS_VANISHED;
    rank->host = strdup("node");
    rank->started_ns = start;
    rank->last_beat_ns = start + (i ? 14 : 10) * second;
  }
  loader.peers = calloc(1, sizeof *loader.peers);
  assert_non_null(loader.peers);
  loader.peer_count = known != UNKNOWN;
  loader.peers[0] = (struct nt_loaded_note){.note = {.pid = 100, .start_time = 1}, .by = 2};
  if (known == NOTICED) {
    loader.peers[0].note.vanished_ns = (uint64_t)(start + 10 * second + 50);
    loader.peers[0].note.last_beat_ns = (uint64_t)(start + 10 * second);
  }
  assert_int_equal(nt_trace_loader_finish(&loader, 0, &model), 0);
  const int64_t end = nt_model_end(&model.ranks[0]) - start;
  nt_model_free(&model);
  return end / (second / 10);
}

static void who_is_not_missed_by_its_neighbours_was_stopped(void **state) {
  (void)state;
  assert_int_equal(end_of_a_silent_one(7, KNOWN), 139);
}

static void who_is_missed_had_died(void **state) {
  (void)state;
  assert_int_equal(end_of_a_silent_one(7, NOTICED), 100);
}

/* It had died before they looked. */
static void whom_no_neighbour_knew_is_not_missed(void **state) {
  (void)state;
  assert_int_equal(end_of_a_silent_one(7, UNKNOWN), 100);
}

/* One number, two processes. */
static void processes_of_another_machine_are_no_neighbours(void **state) {
  (void)state;
  assert_int_equal(end_of_a_silent_one(6, KNOWN), 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_kernel_log_of_a_dump_names_who_was_killed, begin, end),
      cmocka_unit_test_setup_teardown(another_process_in_the_log_is_another, begin, end),
      cmocka_unit_test_setup_teardown(the_same_number_in_a_container_is_another, begin, end),
      cmocka_unit_test_setup_teardown(a_neighbour_tells_that_the_count_rose, begin, end),
      cmocka_unit_test_setup_teardown(a_note_on_the_program_before_an_exec_is_not_on_this_one,
                                      begin, end),
      cmocka_unit_test(of_many_processes_a_note_is_about_one),
      cmocka_unit_test(who_is_not_missed_by_its_neighbours_was_stopped),
      cmocka_unit_test(who_is_missed_had_died),
      cmocka_unit_test(whom_no_neighbour_knew_is_not_missed),
      cmocka_unit_test(processes_of_another_machine_are_no_neighbours),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
