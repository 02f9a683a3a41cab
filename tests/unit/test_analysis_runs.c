/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of several runs in one directory: one run is judged, whole and alone, and the others are named. */
#include "model_builder.h"

static struct job j;

/* Another process with this world rank, in a communicator of its own run. */
static struct nt_model_rank *add_other(int32_t world, uint32_t size, uint8_t id) {
  struct nt_model_rank *rank = nt_model_add_rank(&j.model);
  rank->world = world;
  rank->world_size = (int32_t)size;
  rank->pid = 2000u + (uint32_t)world;
  rank->state = NT_PROCESS_RUNNING;
  rank->started_ns = j.clock - 2000 * MS;
  rank->last_beat_ns = j.clock;
  rank->live = true;
  char source[32];
  snprintf(source, sizeof source, "old/rank%d.trace", world);
  rank->source = strdup(source);
  struct nt_model_view *view = nt_model_add_view(rank);
  memset(view->id, id, sizeof view->id);
  view->rank = world;
  view->nranks = (int32_t)size;
  view->origin = NT_COMM_INIT;
  return rank;
}

static void set_run(uint32_t from, uint32_t count, const char *run_id, uint32_t restart) {
  for (uint32_t i = from; i < from + count; i++) {
    free(j.model.ranks[i].run_id);
    j.model.ranks[i].run_id = strdup(run_id);
    j.model.ranks[i].restart = restart;
  }
}

static void two_runs_are_never_mixed_per_rank(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  for (int32_t w = 0; w < 3; w++) /* rank 1 of the other run began last of all */
    add_other(w, 3, 99)->started_ns = j.clock + (w == 1 ? 1 : -900) * MS;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(j.model.rank_count, 3);
  for (uint32_t i = 0; i < 3; i++)
    assert_int_equal(j.model.ranks[i].pid, 2000 + i);
  assert_true(v->notes.count >= 1);
  job_free(&j);
}

static void a_live_run_that_is_left_out_is_named_with_its_files(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  add_other(0, 2, 99);
  add_other(1, 2, 99);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(j.model.ranks[1].pid, 1001);
  assert_int_equal(v->notes.count, 1);
  assert_non_null(strstr(v->notes.line[0], "ANOTHER RUN STILL LIVES"));
  assert_non_null(strstr(v->notes.line[0], "tracediff old/rank0.trace old/rank1.trace"));
  job_free(&j);
}

static void a_live_run_of_more_traces_than_are_listed_gets_no_command(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  for (int32_t w = 0; w < 18; w++)
    add_other(w, 18, 99);
  struct nt_verdict *v = job_judge(&j);
  const char *note = v->notes.line[0];
  assert_non_null(
      strstr(note, "name all its traces, and no others, to tracediff: old/rank0.trace "));
  assert_non_null(strstr(note, "old/rank15.trace and 2 more"));
  assert_null(strstr(note, "..."));
  job_free(&j);
}

static void files_of_each_run_that_is_left_out_are_listed_apart(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  set_run(0, 2, "new", 0);
  for (uint32_t i = 0; i < 4; i++) {
    struct nt_model_rank *rank = add_other((int32_t)i % 2, 2, (uint8_t)(90 + i / 2));
    rank->live = false;
    rank->state = NT_PROCESS_VANISHED;
  }
  set_run(2, 2, "first", 0);
  set_run(4, 2, "second", 0);
  struct nt_verdict *v = job_judge(&j);
  assert_string_equal(v->notes.line[0],
                      "4 traces of 2 other runs were left out: run first (old/rank0.trace "
                      "old/rank1.trace), run second (old/rank0.trace old/rank1.trace)");
  job_free(&j);
}

static void ranks_without_a_common_communicator_are_one_run(void **state) {
  (void)state;
  job_start(&j, 4);
  uint32_t a = job_comm(&j, "A", "0-1"), b = job_comm(&j, "B", "2-3");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_all(&j, b, NT_FN_AllReduce, 16);
  job_judge(&j);
  assert_int_equal(j.model.rank_count, 4);
  job_free(&j);
}

static void equal_run_ids_do_not_mix_jobs(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  add_other(0, 2, 99);
  add_other(1, 2, 99);
  set_run(0, 4, "none", 0);
  job_judge(&j);
  assert_int_equal(j.model.rank_count, 2);
  assert_int_equal(j.model.ranks[0].pid, 1000);
  assert_int_equal(j.model.ranks[1].pid, 1001);
  job_free(&j);
}

static void a_later_attempt_that_began_earlier_is_the_newest(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  add_other(0, 2, 99);
  add_other(1, 2, 99);
  set_run(0, 2, "longenoughrunidforheapallocation", 0);
  set_run(2, 2, "longenoughrunidforheapallocation", 1);
  for (uint32_t i = 0; i < 2; i++)
    j.model.ranks[i].source = strdup(i ? "early/rank1.trace" : "early/rank0.trace");
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(j.model.rank_count, 2);
  assert_int_equal(j.model.ranks[0].pid, 2000);
  assert_string_equal(v->notes.line[0],
                      "2 traces of 1 other attempt were left out; attempt 1 is the newest:"
                      " early/rank0.trace early/rank1.trace");
  job_free(&j);
}

/* Two calls of torchrun within one job of Slurm's: the first had to restart its workers, the second began a minute later. */
static void a_run_that_began_clearly_later_is_no_earlier_attempt(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  for (int32_t w = 0; w < 2; w++)
    add_other(w, 2, 99)->started_ns = job_rank(&j, (uint32_t)w)->started_ns - 60000 * MS;
  set_run(0, 2, "7", 0);
  set_run(2, 2, "7", 1);
  job_judge(&j);
  assert_int_equal(j.model.rank_count, 2);
  assert_int_equal(j.model.ranks[0].pid, 1000);
  assert_int_equal(j.model.ranks[1].pid, 1001);
  job_free(&j);
}

/* Two nodes with one task each, which starts two processes: they inherit the number of the task. */
static void ranks_that_inherited_one_number_are_told_by_their_communicator(void **state) {
  (void)state;
  job_start(&j, 4);
  uint32_t a = job_comm(&j, "A", "0-3");
  job_all(&j, a, NT_FN_AllReduce, 16);
  for (uint32_t i = 0; i < 4; i++) {
    j.model.ranks[i].world = (int32_t)i / 2;
    j.model.ranks[i].world_size = 2;
  }
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(j.model.rank_count, 4);
  for (uint32_t i = 0; i < 4; i++) {
    assert_int_equal(j.model.ranks[i].world, i);
    assert_int_equal(j.model.ranks[i].pid, 1000 + i);
  }
  assert_int_equal(j.model.expected, 4);
  assert_string_equal(
      v->notes.line[0],
      "several processes were given the number of rank 0 by the launcher: ranks are "
      "those of the communicator of 4");
  job_free(&j);
}

static void several_attempts_are_one_note(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  set_run(0, 2, "run", 3);
  for (uint32_t i = 0; i < 3; i++) {
    add_other(0, 2, (uint8_t)(90 + i));
    set_run(2 + i, 1, "run", i);
  }
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->notes.count, 1);
  assert_string_equal(v->notes.line[0],
                      "3 traces of 3 other attempts were left out; attempt 3 is the newest:"
                      " attempt 0 (old/rank0.trace), attempt 1 (old/rank0.trace), attempt 2 "
                      "(old/rank0.trace)");
  job_free(&j);
}

static void a_trace_that_lost_its_end_is_of_this_run(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  struct nt_model_rank *cut = job_rank(&j, 2);
  cut->live = false;
  cut->started_ns = 0;
  cut->state = NT_PROCESS_UNKNOWN;
  assert_int_equal(nt_model_settle(&j.model), 0);
  assert_int_equal(j.model.rank_count, 3);
  nt_model_free(&j.model);
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(two_runs_are_never_mixed_per_rank),
      TEST(a_live_run_that_is_left_out_is_named_with_its_files),
      TEST(ranks_without_a_common_communicator_are_one_run),
      TEST(equal_run_ids_do_not_mix_jobs),
      TEST(a_later_attempt_that_began_earlier_is_the_newest),
      TEST(a_run_that_began_clearly_later_is_no_earlier_attempt),
      TEST(ranks_that_inherited_one_number_are_told_by_their_communicator),
      TEST(several_attempts_are_one_note),
      TEST(a_live_run_of_more_traces_than_are_listed_gets_no_command),
      TEST(files_of_each_run_that_is_left_out_are_listed_apart),
      TEST(a_trace_that_lost_its_end_is_of_this_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
