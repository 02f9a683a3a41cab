/* SPDX-License-Identifier: Apache-2.0 */
/* Who is late, and whose clock is: rounds made by hand, with clocks that differ between hosts. */
#include "analysis/clocks.h"
#include "analysis/sequence.h"
#include "model_builder.h"

#define US INT64_C(1000)

static struct job j;
static int64_t skew_ns[JOB_RANKS]; /* of each rank's clock */
static uint32_t seed;

/* A little that differs, the same in every run. */
static int64_t noise_us(uint32_t most) {
  seed = seed * 1664525 + 1013904223;
  return (int64_t)((seed >> 8) % most);
}

static void start(uint32_t ranks) {
  job_start(&j, ranks);
  memset(skew_ns, 0, sizeof skew_ns);
  seed = 1;
}

/* A host with a clock of its own. */
static void host(uint32_t from, uint32_t to, const char *name, int64_t skew_ms) {
  for (uint32_t r = from; r <= to; r++) {
    free(job_rank(&j, r)->host);
    job_rank(&j, r)->host = strdup(name);
    skew_ns[r] = skew_ms * MS;
  }
}

static struct nt_model_seen *see(uint32_t rank) {
  struct nt_model_rank *model = job_rank(&j, rank);
  model->seen = realloc(model->seen, (model->seen_count + 1) * sizeof *model->seen);
  struct nt_model_seen *seen = &model->seen[model->seen_count++];
  *seen = (struct nt_model_seen){.call = model->call_count - 1};
  return seen;
}

/* A round: each member calls so many microseconds after now, and all are done 500 us after the last. */
static void round_of(uint32_t comm, const int64_t *late_us, uint32_t members) {
  int64_t last_us = 0;
  for (uint32_t r = 0; r < members; r++)
    last_us = late_us[r] > last_us ? late_us[r] : last_us;
  const int64_t began = j.clock, end = began + (last_us + 500) * US;
  for (uint32_t r = 0; r < members; r++) {
    if (!j.view[r][comm])
      continue;
    struct nt_model_call *call = job_call(&j, r, comm, NT_FN_AllReduce, 1024);
    call->enter_ns = began + late_us[r] * US + skew_ns[r];
    call->exit_ns = call->enter_ns + 20 * US;
    call->launch = call->seq;
    call->progress = NT_PROGRESS_FINISHED;
    struct nt_model_seen *seen = see(r);
    seen->reached_us = 1;
    seen->finished_us = (uint32_t)((end + skew_ns[r] - call->enter_ns) / US);
    seen->unfinished_us = seen->finished_us - 1 - (uint32_t)noise_us(300);
    if (seen->unfinished_us > seen->finished_us)
      seen->unfinished_us = 0;
    seen->waited_us = seen->finished_us;
  }
  j.clock = end;
}

/* So many rounds of `late` (NT_NONE: nobody) behind the others, one a `period_ms`. */
static void rounds(uint32_t comm, uint32_t count, uint32_t late, int64_t late_us,
                   int64_t period_ms) {
  for (uint32_t i = 0; i < count; i++) {
    int64_t at[JOB_RANKS];
    for (uint32_t r = 0; r < j.ranks; r++)
      at[r] = noise_us(200) + (r == late ? late_us : 0);
    round_of(comm, at, j.ranks);
    job_pass(&j, period_ms);
  }
}

/* The first warning of class slow, "" if there is none: "blame 2: summary". */
static const char *warning(void) {
  static char text[1024];
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 0);
  text[0] = '\0';
  for (uint32_t i = 0; i < v->warning_count && !*text; i++)
    if (v->warnings[i].class == NT_CLASS_SLOW)
      snprintf(text, sizeof text, "blame %s: %s", set_text(&v->warnings[i].blame),
               v->warnings[i].summary);
  return text;
}

static void assert_nobody_is_slow(void) {
  assert_string_equal(warning(), "");
  job_free(&j);
}

static void assert_slow(const char *start_of, const char *within) {
  const char *text = warning();
  if (strncmp(text, start_of, strlen(start_of)) != 0 || !strstr(text, within))
    fail_msg("\"%s\" does not begin with \"%s\" and hold \"%s\"", text, start_of, within);
  job_free(&j);
}

static void a_rank_that_is_always_late_is_named_with_what_it_costs(void **state) {
  (void)state;
  start(4);
  rounds(job_comm(&j, "A", "0-3"), 50, 2, 41000, 60);
  assert_slow("blame 2: rank 2 (node",
              "50 of the last 50 AllReduce on A, 40.9 ms after the others");
}

static void jitter_is_healthy(void **state) {
  (void)state;
  start(4);
  uint32_t a = job_comm(&j, "A", "0-3");
  for (uint32_t i = 0; i < 100; i++) {
    int64_t at[4];
    for (uint32_t r = 0; r < 4; r++)
      at[r] = noise_us(30000);
    round_of(a, at, 4);
  }
  assert_nobody_is_slow();
}

static void too_few_rounds_are_no_habit(void **state) {
  (void)state;
  start(4);
  rounds(job_comm(&j, "A", "0-3"), 9, 2, 41000, 60);
  assert_nobody_is_slow();
  start(4);
  rounds(job_comm(&j, "A", "0-3"), 10, 2, 41000, 60);
  assert_slow("blame 2: ", "10 of the last 10");
}

static void late_once_is_no_habit_however_late(void **state) {
  (void)state;
  start(4);
  uint32_t a = job_comm(&j, "A", "0-3");
  rounds(a, 1, 3, 5000000, 1);
  for (uint32_t i = 0; i < 60; i++)
    rounds(a, 1, i % 4, 2000, 10);
  assert_nobody_is_slow();
}

static void who_is_in_step_again_is_not_named(void **state) {
  (void)state;
  start(4);
  uint32_t a = job_comm(&j, "A", "0-3");
  rounds(a, 30, 3, 40000, 10);
  rounds(a, 70, NT_NONE, 0, 10);
  assert_nobody_is_slow();
}

static void a_small_share_of_time_is_not_worth_a_warning(void **state) {
  (void)state;
  start(4);
  rounds(job_comm(&j, "A", "0-3"), 50, 2, 5000, 60);
  assert_nobody_is_slow();
  start(4);
  rounds(job_comm(&j, "A", "0-3"), 50, 2, 9000, 60);
  assert_slow("blame 2: ", "of their time");
}

static void two_late_ranks_of_eight_are_both_named(void **state) {
  (void)state;
  start(8);
  uint32_t a = job_comm(&j, "A", "0-7");
  for (uint32_t i = 0; i < 40; i++) {
    int64_t at[8];
    for (uint32_t r = 0; r < 8; r++)
      at[r] = noise_us(200) + (r == 3 || r == 5 ? 30000 : 0);
    round_of(a, at, 8);
    job_pass(&j, 20);
  }
  assert_slow("blame 3,5: ranks 3,5 come last", "40 of the last 40");
}

static void half_and_half_accuses_nobody(void **state) {
  (void)state;
  start(4);
  uint32_t a = job_comm(&j, "A", "0-3");
  for (uint32_t i = 0; i < 40; i++) {
    int64_t at[4];
    for (uint32_t r = 0; r < 4; r++)
      at[r] = noise_us(200) + (r >= 2 ? 30000 : 0);
    round_of(a, at, 4);
    job_pass(&j, 20);
  }
  assert_nobody_is_slow();
}

/* Rank 5 is late in B = {4,5}; 4 waits for it there, and comes late to A with it. */
static void who_is_late_because_it_waited_elsewhere_is_excused(void **state) {
  (void)state;
  start(8);
  uint32_t a = job_comm(&j, "A", "0-7"), b = job_comm(&j, "B", "4-5");
  for (uint32_t i = 0; i < 40; i++) {
    int64_t at[8] = {0}, then[8];
    at[5] = 30000;
    const int64_t began = j.clock;
    round_of(b, at, 8);
    const int64_t waited_us = (j.clock - began) / US;
    j.clock = began;
    for (uint32_t r = 0; r < 8; r++)
      then[r] = noise_us(200) + (r == 4 || r == 5 ? waited_us : 0);
    round_of(a, then, 8);
    job_pass(&j, 20);
  }
  assert_slow("blame 5: rank 5 (node", "");
}

/* The last stage of a pipeline waits for the one before; it is late in A, but not by its own fault. */
static void who_is_late_because_it_waited_for_a_message_is_excused(void **state) {
  (void)state;
  start(4);
  uint32_t a = job_comm(&j, "A", "0-3"), p = job_comm(&j, "P", "0-3");
  for (uint32_t i = 0; i < 40; i++) {
    const int64_t began = j.clock;
    job_send(&j, 2, p, 3, 64)->progress = NT_PROGRESS_FINISHED;
    struct nt_model_call *call = job_recv(&j, 3, p, 2, 64);
    call->progress = NT_PROGRESS_FINISHED;
    call->enter_ns = began;
    see(3)->finished_us = 30000;
    j.clock = began;
    int64_t at[4] = {100, 0, 200, 30000};
    round_of(a, at, 4);
    job_pass(&j, 20);
  }
  assert_nobody_is_slow();
}

static void clocks_that_differ_make_nobody_late(void **state) {
  (void)state;
  start(4);
  host(2, 3, "gpu-07", 5000);
  rounds(job_comm(&j, "A", "0-3"), 60, NT_NONE, 0, 10);
  const char *text = warning();
  assert_string_equal(text, "");
  bool told = false;
  for (uint32_t i = 0; i < j.verdict.notes.count; i++)
    told |=
        strstr(j.verdict.notes.line[i], "the clock of gpu-07 is 5 s ahead of that of node") != NULL;
  assert_true(told);
  job_free(&j);
}

static void a_late_rank_is_seen_through_clocks_that_differ(void **state) {
  (void)state;
  start(4);
  host(2, 3, "gpu-07", -5000);
  rounds(job_comm(&j, "A", "0-3"), 60, 3, 40000, 50);
  assert_slow("blame 3: rank 3 (gpu-07", "clock error at most");
  start(2); /* nobody else is on its host */
  host(1, 1, "gpu-07", 5000);
  rounds(job_comm(&j, "A", "0-1"), 60, 1, 40000, 50);
  assert_slow("blame 1: rank 1 (gpu-07", "clock error at most");
}

static void offsets_lie_within_their_error(void **state) {
  (void)state;
  struct nt_clocks clocks;
  struct nt_job job;
  start(6);
  host(2, 3, "b", 5000);
  host(4, 5, "c", -3);
  rounds(job_comm(&j, "A", "0-3"), 40, NT_NONE, 0, 10); /* joined by members outside, too */
  rounds(job_comm(&j, "B", "2-5"), 40, NT_NONE, 0, 10);
  assert_int_equal(nt_model_settle(&j.model), 0);
  assert_int_equal(nt_identify(&j.model, &job), 0);
  assert_int_equal(nt_sequences_build(&job), 0);
  assert_int_equal(nt_clocks_find(&job, &clocks), 0);
  assert_int_equal(clocks.count, 3);
  const int64_t wanted[] = {0, 5000 * MS, -3 * MS};
  for (uint32_t h = 0; h < 3; h++) {
    assert_true(clocks.list[h].known);
    assert_in_range(clocks.list[h].error_ns, 0, 2 * MS);
    int64_t off = clocks.list[h].ahead_ns - wanted[h];
    assert_true((off < 0 ? -off : off) <= clocks.list[h].error_ns);
  }
  nt_clocks_free(&clocks);
  nt_job_free(&job);
  job_free(&j);
}

/* Nothing tells when the far side was done: the late rank may as well have a clock that is ahead. */
static void what_no_bound_tells_apart_accuses_nobody(void **state) {
  (void)state;
  start(2);
  host(1, 1, "gpu-07", 0);
  rounds(job_comm(&j, "A", "0-1"), 60, 1, 40000, 50);
  for (uint32_t r = 0; r < 2; r++)
    for (uint32_t i = 0; i < job_rank(&j, r)->seen_count; i++)
      job_rank(&j, r)->seen[i].unfinished_us = 0;
  assert_nobody_is_slow();
}

static void unknown_hosts_share_no_clock(void **state) {
  (void)state;
  start(2);
  rounds(job_comm(&j, "A", "0-1"), 60, 1, 40000, 50);
  for (uint32_t r = 0; r < 2; r++) {
    free(job_rank(&j, r)->host);
    job_rank(&j, r)->host = NULL;
    for (uint32_t i = 0; i < job_rank(&j, r)->seen_count; i++)
      job_rank(&j, r)->seen[i].unfinished_us = 0;
  }
  assert_nobody_is_slow();
}

static void a_clock_that_jumped_accuses_nobody(void **state) {
  (void)state;
  start(4);
  host(2, 3, "gpu-07", 0);
  uint32_t a = job_comm(&j, "A", "0-3");
  rounds(a, 30, NT_NONE, 0, 10);
  skew_ns[2] = skew_ns[3] = 2000 * MS;
  rounds(a, 30, NT_NONE, 0, 10);
  assert_nobody_is_slow();
}

/* Hosts run ahead and say nothing; one launch in 64 has a duration. */
static void exact_durations_need_no_clock(void **state) {
  (void)state;
  start(4);
  host(2, 3, "gpu-07", 7000);
  uint32_t a = job_comm(&j, "A", "0-3");
  for (uint32_t i = 0; i < 64 * 12; i++) {
    for (uint32_t r = 0; r < 4; r++) {
      struct nt_model_call *call = job_call(&j, r, a, NT_FN_AllReduce, 1024);
      call->enter_ns = j.clock - r * MS + skew_ns[r];
      call->progress = NT_PROGRESS_FINISHED;
      if (i % 64 == 5)
        see(r)->took_us = r == 1 ? 300 : 9300;
    }
    job_pass(&j, 26);
  }
  assert_slow("blame 1: ", "12 of the last 12 AllReduce on A that were timed, 9 ms after");
}

static void a_device_that_comes_late_is_told_from_its_host(void **state) {
  (void)state;
  start(4);
  rounds(job_comm(&j, "A", "0-3"), 50, NT_NONE, 0, 60);
  struct nt_model_rank *rank = job_rank(&j, 1);
  for (uint32_t r = 0; r < 4; r++)
    for (uint32_t i = 0; i < 50; i++) {
      struct nt_model_seen *seen = &job_rank(&j, r)->seen[i];
      seen->finished_us += 20000;
      seen->waited_us += 20000;
    }
  for (uint32_t i = 0; i < 50; i++)
    rank->seen[i].unreached_us = rank->seen[i].reached_us = 20000;
  assert_true(strstr(warning(), "blame 1: ") != NULL);
  assert_non_null(strstr(j.verdict.warnings[0].evidence.line[0], "its device comes to it late"));
  job_free(&j);
}

/* Two replicas of two ranks: those of the second host are late, each in a communicator of its own. */
static void late_ranks_of_one_host_are_one_warning(void **state) {
  (void)state;
  start(6);
  host(4, 5, "gpu-07", 5);
  uint32_t a = job_comm(&j, "A", "0,2,4"), b = job_comm(&j, "B", "1,3,5");
  for (uint32_t i = 0; i < 40; i++) {
    const int64_t began = j.clock, at[6] = {0, 0, 100, 100, 30000, 30000};
    round_of(a, at, 6);
    j.clock = began;
    round_of(b, at, 6);
    job_pass(&j, 20);
  }
  assert_true(strstr(warning(), "blame 4-5: rank 4 (gpu-07") != NULL);
  assert_int_equal(j.verdict.warning_count, 1);
  assert_int_equal(j.verdict.warnings[0].culprit_count, 2);
  job_free(&j);
}

static void an_order_that_clocks_cannot_tell_is_noted(void **state) {
  (void)state;
  start(4);
  host(2, 3, "gpu-07", -3000);
  uint32_t a = job_comm(&j, "A", "0-3"), b = job_comm(&j, "B", "0-1"), c = job_comm(&j, "C", "2-3");
  rounds(a, 20, NT_NONE, 0, 10);
  job_call(&j, 0, b, NT_FN_AllReduce, 64);
  job_block(&j, 0);
  job_call(&j, 2, c, NT_FN_AllReduce, 64);
  job_block(&j, 2);
  struct nt_verdict *v = job_judge(&j);
  bool told = false;
  assert_int_equal(v->count, 2);
  for (uint32_t i = 0; i < v->notes.count; i++)
    told |= strstr(v->notes.line[i], "which of them came first is not certain") != NULL;
  assert_true(told);
  job_free(&j);
}

static void warnings_never_set_the_verdict(void **state) {
  (void)state;
  start(4);
  rounds(job_comm(&j, "A", "0-3"), 50, 2, 41000, 60);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CONSISTENT);
  assert_int_equal(v->warning_count, 1);
  assert_int_equal(v->warnings[0].culprit_count, 1);
  assert_true(v->warnings[0].next.count > 0);
  job_free(&j);
}

/* One launch in 64, which every member measured: the last one to come was in it for `us`. */
static void timed(uint32_t comm, uint32_t count, uint32_t us) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t waited = (uint32_t)noise_us(5000);
    for (uint32_t r = 0; r < j.ranks; r++) {
      if (!j.view[r][comm])
        continue;
      job_call(&j, r, comm, NT_FN_AllReduce, 1024)->progress = NT_PROGRESS_FINISHED;
      see(r)->took_us = us + (r == i % j.ranks ? 0 : waited);
    }
  }
}

static void operations_that_got_slower_are_told_with_the_turn(void **state) {
  (void)state;
  start(2);
  uint32_t a = job_comm(&j, "A", "0-1");
  timed(a, 12, 400);
  timed(a, 8, 1000);
  assert_slow("blame : AllReduce (1 Ki x f32 sum) on A takes 1 ms since #13 (", "2.5 times");
  start(2);
  a = job_comm(&j, "A", "0-1");
  timed(a, 12, 400);
  timed(a, 8, 790);
  assert_nobody_is_slow();
}

static void waiting_for_others_is_no_slow_operation(void **state) {
  (void)state;
  start(3);
  uint32_t a = job_comm(&j, "A", "0-2");
  timed(a, 60, 400);
  assert_nobody_is_slow();
}

static void a_communicator_that_is_slower_than_its_like_is_told(void **state) {
  (void)state;
  start(8);
  for (uint32_t i = 0; i < 4; i++) {
    static const char *const members[] = {"0-1", "2-3", "4-5", "6-7"};
    static const char *const names[] = {"A", "B", "C", "D"};
    uint32_t c = job_comm(&j, names[i], members[i]);
    for (uint32_t k = 0; k < 6; k++)
      for (uint32_t r = 2 * i; r < 2 * i + 2; r++) {
        job_call(&j, r, c, NT_FN_AllReduce, 1024)->progress = NT_PROGRESS_FINISHED;
        see(r)->took_us = (i == 2 ? 900 : 300) + (uint32_t)noise_us(20);
      }
  }
  assert_slow("blame : AllReduce (1 Ki x f32 sum) on C takes 9", "as on 3 other communicators");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_that_is_always_late_is_named_with_what_it_costs),
      cmocka_unit_test(jitter_is_healthy),
      cmocka_unit_test(too_few_rounds_are_no_habit),
      cmocka_unit_test(late_once_is_no_habit_however_late),
      cmocka_unit_test(who_is_in_step_again_is_not_named),
      cmocka_unit_test(a_small_share_of_time_is_not_worth_a_warning),
      cmocka_unit_test(two_late_ranks_of_eight_are_both_named),
      cmocka_unit_test(half_and_half_accuses_nobody),
      cmocka_unit_test(who_is_late_because_it_waited_elsewhere_is_excused),
      cmocka_unit_test(who_is_late_because_it_waited_for_a_message_is_excused),
      cmocka_unit_test(clocks_that_differ_make_nobody_late),
      cmocka_unit_test(a_late_rank_is_seen_through_clocks_that_differ),
      cmocka_unit_test(offsets_lie_within_their_error),
      cmocka_unit_test(what_no_bound_tells_apart_accuses_nobody),
      cmocka_unit_test(unknown_hosts_share_no_clock),
      cmocka_unit_test(a_clock_that_jumped_accuses_nobody),
      cmocka_unit_test(exact_durations_need_no_clock),
      cmocka_unit_test(a_device_that_comes_late_is_told_from_its_host),
      cmocka_unit_test(operations_that_got_slower_are_told_with_the_turn),
      cmocka_unit_test(waiting_for_others_is_no_slow_operation),
      cmocka_unit_test(a_communicator_that_is_slower_than_its_like_is_told),
      cmocka_unit_test(late_ranks_of_one_host_are_one_warning),
      cmocka_unit_test(an_order_that_clocks_cannot_tell_is_noted),
      cmocka_unit_test(warnings_never_set_the_verdict),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
