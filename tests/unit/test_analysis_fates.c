/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts on processes that are gone, on their way out or another program, and on who of them was first. */
#include "model_builder.h"

static struct job j;

/* Two calls of all, then everybody but `but` makes a third and waits in it. */
static uint32_t wait_for(uint32_t ranks, int but) {
  char members[16];
  snprintf(members, sizeof members, "0-%u", ranks - 1);
  job_start(&j, ranks);
  uint32_t a = job_comm(&j, "A", members);
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, but, a, NT_FN_AllReduce, 16);
  return a;
}

static void vanish(uint32_t rank) {
  job_end(&j, rank, NT_PROCESS_VANISHED, 0);
}

/* exit(code) was called and has not finished. */
static void call_exit(uint32_t rank, int code) {
  job_rank(&j, rank)->state = NT_PROCESS_ENDING;
  job_rank(&j, rank)->exit_code = code;
  job_rank(&j, rank)->exit_ns = j.clock;
  job_rank(&j, rank)->seen_ns = j.clock + 41000 * MS;
  job_pass(&j, 1);
}

static void finalize_python(uint32_t rank) {
  job_rank(&j, rank)->phase = NT_PHASE_PYTHON_ENDS;
  job_rank(&j, rank)->python = true;
}

/* Judges, and compares as assert_verdict does; the verdict stays until job_free. */
static const struct nt_finding *judged(const char *class, const char *blame) {
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count > 0, 1);
  assert_string_equal(nt_class_name(v->findings[0].class), class);
  assert_string_equal(set_text(&v->findings[0].blame), blame);
  return &v->findings[0];
}

/* ---- on its way out --------------------------------------------------------------------------- */

static void a_rank_stuck_in_its_exit_handlers_has_left(void **state) {
  (void)state;
  wait_for(3, 1);
  call_exit(1, 0);
  const struct nt_finding *finding = judged("left", "1");
  assert_string_equal(finding->culprits[0].now,
                      "is ending: exit(0) was called 41 s ago and has not finished");
  assert_non_null(strstr(finding->culprits[0].last, "AllReduce #2 on A"));
  assert_non_null(strstr(finding->summary, "on its way out"));
  job_free(&j);
}

static void with_an_exit_code_it_has_failed(void **state) {
  (void)state;
  wait_for(3, 1);
  call_exit(1, 1);
  judged("dead", "1");
  job_free(&j);
}

/* What tells of its death is a file: cut short, it may have lived on behind what is left of it. */
static void of_a_file_that_is_visibly_cut_a_death_is_undecided(void **state) {
  (void)state;
  for (int how = 0; how < 3; how++) {
    wait_for(3, 1);
    vanish(1);
    job_rank(&j, 1)->outlived = how != 2; /* else its area is there and tells */
    job_rank(&j, 1)->damaged = how != 0;
    job_rank(&j, 2)->damaged = true; /* no matter: nobody accuses it */
    const struct nt_finding *finding = judged("dead", "1");
    assert_int_equal(finding->confidence == NT_UNDECIDED, how == 1);
    job_free(&j);
  }
}

static void an_exit_after_waiting_is_a_consequence_though_it_lingers(void **state) {
  (void)state;
  wait_for(3, 1);
  job_pass(&j, 5000);
  call_exit(0, 1);
  assert_verdict(&j, "missing AllReduce 3 blame 1 waiting 0,2");
}

/* Exit handlers may use NCCL: who does is there, and waits like anybody else. */
static void who_calls_in_its_exit_handlers_is_still_there(void **state) {
  (void)state;
  uint32_t a = wait_for(3, 1);
  for (uint32_t r = 0; r < 3; r += 2)
    call_exit(r, 0);
  for (uint32_t r = 0; r < 3; r += 2) {
    job_record(&j, r, a, NT_FN_CommDestroy, 0, -1);
    job_block(&j, r);
  }
  job_pass(&j, 1000);
  assert_verdict(&j, "missing AllReduce 3 blame 1 waiting 0,2");
}

/* Its device goes on with what it had called. */
static void who_is_on_its_way_out_does_not_hold_what_it_had_called(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  for (uint32_t r = 0; r < 2; r++) {
    struct nt_model_call *call = job_call(&j, r, a, NT_FN_AllReduce, 16);
    call->launch = 1;
    call->progress = NT_PROGRESS_REACHED;
  }
  call_exit(1, 0);
  assert_verdict(&j, "stalled AllReduce 1 blame  waiting 0-1");
}

static void a_python_program_that_finalizes_has_left(void **state) {
  (void)state;
  wait_for(3, 2);
  finalize_python(2);
  const struct nt_finding *finding = judged("left", "2");
  assert_string_equal(finding->culprits[0].now, "its Python interpreter is being finalized");
  job_free(&j);
}

static void an_embedded_interpreter_may_end_without_its_program(void **state) {
  (void)state;
  wait_for(3, 2);
  finalize_python(2);
  job_rank(&j, 2)->python = false;
  judged("missing", "2");
  job_free(&j);
}

static void who_waits_in_a_call_while_python_ends_is_still_there(void **state) {
  (void)state;
  uint32_t a = wait_for(3, 2);
  job_record(&j, 0, a, NT_FN_CommDestroy, 0, -1);
  job_block(&j, 0);
  finalize_python(0);
  judged("missing", "2");
  job_free(&j);
}

static void another_program_has_left(void **state) {
  (void)state;
  wait_for(3, 1);
  job_end(&j, 1, NT_PROCESS_REPLACED, 0);
  const struct nt_finding *finding = judged("left", "1");
  assert_string_equal(finding->culprits[0].now, "runs another program (exec)");
  assert_non_null(strstr(finding->summary, "became another program (exec) before calling"));
  job_free(&j);
}

static void alive_without_a_communicator_is_said(void **state) {
  (void)state;
  uint32_t a = wait_for(3, 1);
  job_record(&j, 1, a, NT_FN_CommDestroy, 0, -1);
  job_rank(&j, 1)->views[0].state = NT_COMM_DESTROYED;
  const struct nt_finding *finding = judged("left", "1");
  assert_non_null(
      strstr(finding->culprits[0].now, "alive, all its communicators are destroyed since "));
  job_free(&j);
}

/* ---- for lack of memory -------------------------------------------------------------------------------- */

static void a_kill_for_lack_of_memory_is_named(void **state) {
  (void)state;
  wait_for(3, 1);
  vanish(1);
  job_rank(&j, 1)->oom = NT_OOM_COUNTED;
  job_rank(&j, 1)->oom_to = 1;
  const struct nt_finding *finding = judged("dead", "1");
  assert_non_null(strstr(finding->summary, "rank 1 was killed for lack of memory before calling"));
  bool told = false;
  for (uint32_t i = 0; i < finding->evidence.count; i++)
    told |= strstr(finding->evidence.line[i], "its cgroup's count rose from 0 to 1") != NULL;
  assert_true(told);
  job_free(&j);
}

static void a_kill_without_a_count_is_not(void **state) {
  (void)state;
  wait_for(3, 1);
  vanish(1);
  assert_null(strstr(judged("dead", "1")->summary, "memory"));
  job_free(&j);
}

/* ---- who was first, when all are gone ------------------------------------------------------------------ */

/* The first vanishes, the second fails of what NCCL tells it, the launcher ends the rest. */
static void one_vanishes_another_fails_the_rest_are_killed(void **state) {
  (void)state;
  wait_for(4, 3);
  vanish(3);
  job_pass(&j, 300);
  struct nt_model_call *call =
      job_record(&j, 0, NT_NONE, NT_FN_CommGetAsyncError, ncclRemoteError, -1);
  call->view = 0;
  job_pass(&j, 300);
  job_end(&j, 0, NT_PROCESS_EXITED, 1);
  job_pass(&j, 200);
  vanish(1);
  vanish(2);
  assert_verdict(&j, "dead AllReduce 3 blame 3 waiting 0-2");
}

static void the_note_of_one_survivor_is_enough(void **state) {
  (void)state;
  wait_for(3, 1);
  vanish(1);
  job_rank(&j, 1)->noticed_ns = j.clock + 50 * MS;
  job_pass(&j, 400);
  vanish(0);
  vanish(2);
  assert_verdict(&j, "dead AllReduce 3 blame 1 waiting 0,2");
}

static void without_its_note_nobody_was_first(void **state) {
  (void)state;
  wait_for(3, 1);
  vanish(1);
  job_pass(&j, 400);
  vanish(0);
  vanish(2);
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_int_not_equal(v->findings[i].class, NT_CLASS_DEAD);
  job_free(&j);
}

/* Heartbeats within one tick of each other order nothing, whatever was noted. */
static void within_a_tick_nobody_was_first(void **state) {
  (void)state;
  wait_for(3, 1);
  vanish(1);
  vanish(0);
  vanish(2);
  for (uint32_t r = 0; r < 3; r++)
    job_rank(&j, r)->noticed_ns = job_rank(&j, r)->last_beat_ns + 40 * MS;
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_int_not_equal(v->findings[i].class, NT_CLASS_DEAD);
  job_free(&j);
}

/* All have made the last call; ranks 0-1 fail of what NCCL tells them, and what became of rank 2 is not known. */
static void who_fails_since_a_peer_is_gone_is_not_the_one_that_died(void **state) {
  (void)state;
  job_start(&j, 3);
  const uint32_t a = job_comm(&j, "A", "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  for (uint32_t r = 0; r < 3; r++)
    job_rank(&j, r)->live = false;
  job_rank(&j, 2)->state = NT_PROCESS_UNKNOWN;
  job_rank(&j, 2)->last_beat_ns = j.clock;
  for (uint32_t r = 0; r < 2; r++) {
    struct nt_model_call *call =
        job_record(&j, r, NT_NONE, NT_FN_CommGetAsyncError, ncclRemoteError, -1);
    call->view = 0;
    job_pass(&j, 20);
    job_end(&j, r, NT_PROCESS_EXITED, 1);
  }
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_int_equal(nt_rank_set_count(&v->findings[i].blame), 0);
  job_free(&j);
}

/* Rank 3 vanishes, a neighbour notes it, and `lead_ms` later the others are signalled, `step_ms` apart. */
static void crash_then_signals(uint32_t ranks, int64_t lead_ms, int64_t step_ms) {
  wait_for(ranks, 3);
  vanish(3);
  job_rank(&j, 3)->noticed_ns = j.clock + 50 * MS;
  job_pass(&j, lead_ms);
  for (uint32_t r = 0; r < ranks; r++) {
    if (r == 3)
      continue;
    vanish(r);
    job_pass(&j, step_ms);
  }
}

static void who_vanished_long_before_the_first_of_many_steps_was_first(void **state) {
  (void)state;
  crash_then_signals(16, 600, 49);
  assert_verdict(&j, "dead AllReduce 3 blame 3 waiting 0-2,4-15");
}

/* A launcher looks at its processes every 100 ms, and ends all as soon as one is gone; the moments are known to 50 ms. */
static void who_vanished_before_all_others_at_once_was_first(void **state) {
  (void)state;
  crash_then_signals(8, 90, 8);
  assert_verdict(&j, "dead AllReduce 3 blame 3 waiting 0-2,4-7");
  crash_then_signals(4, 110, 25);
  assert_verdict(&j, "dead AllReduce 3 blame 3 waiting 0-2");
}

/* Before the others had waited for long: they made the last call right before the first signal. */
static void signalled(uint32_t ranks, const int64_t *steps_ms) {
  wait_for(ranks, 0);
  for (uint32_t r = 0; r < ranks; r++) {
    job_pass(&j, steps_ms[r]);
    vanish(r);
    job_rank(&j, r)->noticed_ns = j.clock + 50 * MS;
  }
}

static void in_even_steps_nobody_was_first_however_long_they_are(void **state) {
  (void)state;
  signalled(5, (const int64_t[]){1, 900, 900, 1100, 1000});
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_int_not_equal(v->findings[i].class, NT_CLASS_DEAD);
  job_free(&j);
}

static void in_uneven_steps_the_first_is_dead(void **state) {
  (void)state;
  signalled(5, (const int64_t[]){1, 900, 3100, 300, 1000});
  assert_string_equal(nt_class_name(judged("dead", "0")->class), "dead");
  job_free(&j);
}

static void who_had_waited_for_long_was_not_the_cause(void **state) {
  (void)state;
  wait_for(3, 1);
  job_pass(&j, 8000);
  vanish(0);
  job_rank(&j, 0)->noticed_ns = j.clock + 50 * MS;
  job_pass(&j, 400);
  vanish(1);
  vanish(2);
  assert_verdict(&j, "missing AllReduce 3 blame 1 waiting 0,2");
}

/* ---- who died while one was late ------------------------------------------------------------------------ */

static void device(uint32_t rank, enum nt_progress progress) {
  struct nt_model_rank *model = job_rank(&j, rank);
  model->calls[model->call_count - 1].launch = 1;
  model->calls[model->call_count - 1].progress = (uint8_t)progress;
}

/* All but rank 1 are in an operation; then rank 2 vanishes in it. */
static uint32_t dies_in_a_wait(void) {
  const uint32_t a = wait_for(3, 1);
  device(0, NT_PROGRESS_REACHED);
  device(2, NT_PROGRESS_REACHED);
  job_pass(&j, 2000);
  vanish(2);
  job_pass(&j, 1000);
  return a;
}

/* Of files alone: rank 1 fails half a second after an operation that all called, and rank 0 was last seen in it `seen_ms` after that
 * began. */
static uint32_t findings_of_a_file_seen(int64_t seen_ms) {
  job_start(&j, 2);
  const uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  device(0, NT_PROGRESS_REACHED);
  device(1, NT_PROGRESS_FINISHED);
  job_rank(&j, 0)->live = job_rank(&j, 1)->live = false;
  job_rank(&j, 0)->state = NT_PROCESS_UNKNOWN;
  job_rank(&j, 0)->last_beat_ns = j.clock + seen_ms * MS;
  job_pass(&j, 500);
  job_end(&j, 1, NT_PROCESS_EXITED, 1);
  struct nt_verdict *v = job_judge(&j);
  uint32_t blamed = 0;
  for (uint32_t i = 0; i < v->count; i++)
    blamed += nt_rank_set_count(&v->findings[i].blame);
  job_free(&j);
  return blamed;
}

static void a_file_that_is_older_than_an_end_does_not_wait_for_it(void **state) {
  (void)state;
  assert_int_equal(findings_of_a_file_seen(20), 0);
  assert_int_equal(findings_of_a_file_seen(5000), 1);
}

static void who_dies_while_another_is_late_is_lacking_and_not_the_late_one(void **state) {
  (void)state;
  const uint32_t a = dies_in_a_wait();
  job_call(&j, 1, a, NT_FN_AllReduce, 16);
  device(1, NT_PROGRESS_REACHED);
  job_pass(&j, 1000);
  assert_int_equal(judged("dead", "2")->confidence, NT_LIKELY);
  job_free(&j);
}

static void who_dies_in_a_wait_for_one_that_never_comes_is_no_culprit(void **state) {
  (void)state;
  dies_in_a_wait();
  judged("missing", "1");
  job_free(&j);
}

/* All had given up before it came: that the first of them died is what they all did. */
static void who_comes_when_all_have_given_up_is_the_culprit(void **state) {
  (void)state;
  const uint32_t a = dies_in_a_wait();
  job_end(&j, 0, NT_PROCESS_EXITED, 1);
  job_pass(&j, 100);
  job_call(&j, 1, a, NT_FN_AllReduce, 16);
  device(1, NT_PROGRESS_REACHED);
  judged("missing", "1");
  job_free(&j);
}

/* ---- the thread that looks at the GPU is stuck ---------------------------------------------------------- */

static bool is_in(const struct nt_lines *lines, const char *text) {
  for (uint32_t i = 0; i < lines->count; i++)
    if (strstr(lines->line[i], text))
      return true;
  return false;
}

static void a_stuck_look_is_evidence_and_accuses_nobody(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  device(0, NT_PROGRESS_REACHED);
  device(1, NT_PROGRESS_UNKNOWN);
  job_rank(&j, 1)->blocked_ns = j.clock;
  const struct nt_finding *finding = judged("stalled", "");
  assert_int_equal(finding->confidence, NT_LIKELY);
  assert_true(is_in(&finding->evidence, "the GPU's progress on rank 1 has not been seen since "));
  job_free(&j);
}

static void a_stuck_look_is_a_note_where_it_does_not_matter(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  device(0, NT_PROGRESS_FINISHED);
  device(1, NT_PROGRESS_FINISHED);
  job_rank(&j, 1)->blocked_ns = j.clock;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 0);
  assert_true(is_in(&v->notes, "blocked in the CUDA driver"));
  job_free(&j);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_stuck_in_its_exit_handlers_has_left),
      cmocka_unit_test(with_an_exit_code_it_has_failed),
      cmocka_unit_test(of_a_file_that_is_visibly_cut_a_death_is_undecided),
      cmocka_unit_test(an_exit_after_waiting_is_a_consequence_though_it_lingers),
      cmocka_unit_test(who_calls_in_its_exit_handlers_is_still_there),
      cmocka_unit_test(who_is_on_its_way_out_does_not_hold_what_it_had_called),
      cmocka_unit_test(a_python_program_that_finalizes_has_left),
      cmocka_unit_test(an_embedded_interpreter_may_end_without_its_program),
      cmocka_unit_test(who_waits_in_a_call_while_python_ends_is_still_there),
      cmocka_unit_test(another_program_has_left),
      cmocka_unit_test(alive_without_a_communicator_is_said),
      cmocka_unit_test(a_kill_for_lack_of_memory_is_named),
      cmocka_unit_test(a_kill_without_a_count_is_not),
      cmocka_unit_test(one_vanishes_another_fails_the_rest_are_killed),
      cmocka_unit_test(the_note_of_one_survivor_is_enough),
      cmocka_unit_test(without_its_note_nobody_was_first),
      cmocka_unit_test(within_a_tick_nobody_was_first),
      cmocka_unit_test(who_fails_since_a_peer_is_gone_is_not_the_one_that_died),
      cmocka_unit_test(who_vanished_long_before_the_first_of_many_steps_was_first),
      cmocka_unit_test(who_vanished_before_all_others_at_once_was_first),
      cmocka_unit_test(in_even_steps_nobody_was_first_however_long_they_are),
      cmocka_unit_test(in_uneven_steps_the_first_is_dead),
      cmocka_unit_test(who_had_waited_for_long_was_not_the_cause),
      cmocka_unit_test(a_file_that_is_older_than_an_end_does_not_wait_for_it),
      cmocka_unit_test(who_dies_while_another_is_late_is_lacking_and_not_the_late_one),
      cmocka_unit_test(who_dies_in_a_wait_for_one_that_never_comes_is_no_culprit),
      cmocka_unit_test(who_comes_when_all_have_given_up_is_the_culprit),
      cmocka_unit_test(a_stuck_look_is_evidence_and_accuses_nobody),
      cmocka_unit_test(a_stuck_look_is_a_note_where_it_does_not_matter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
