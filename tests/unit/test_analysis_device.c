/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts that rest on device progress, on host waits and on the order of deaths. */
#include "analysis/load_parts.h"
#include "model_builder.h"

static struct job j;

static uint32_t start(uint32_t ranks, const char *members) {
  job_start(&j, ranks);
  return job_comm(&j, "A", members);
}

/* The rank's last call: where the device is with it, and as which launch of which stream. */
static struct nt_model_call *at(uint32_t rank, uint32_t stream, uint32_t launch,
                                enum nt_progress progress) {
  struct nt_model_rank *model = job_rank(&j, rank);
  struct nt_model_call *call = &model->calls[model->call_count - 1];
  call->stream = stream;
  call->launch = launch;
  call->progress = (uint8_t)progress;
  return call;
}

static void everyone(uint32_t comm, uint32_t stream, uint32_t launch, enum nt_progress progress) {
  for (uint32_t r = 0; r < j.ranks; r++) {
    job_call(&j, r, comm, NT_FN_AllReduce, 64);
    at(r, stream, launch, progress);
  }
}

/* A call of the CUDA runtime. */
static struct nt_model_call *cuda(uint32_t rank, uint8_t fn, uint32_t stream, uint32_t launch,
                                  uint64_t event) {
  struct nt_model_call *call = job_record(&j, rank, NT_NONE, fn, 0, -1);
  call->stream = stream;
  call->launch = launch;
  call->event = event;
  return call;
}

static void a_device_held_by_other_work_is_to_blame(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  everyone(a, 1, 2, NT_PROGRESS_REACHED);
  at(1, 1, 2, NT_PROGRESS_ENQUEUED);
  assert_verdict(&j, "gpu AllReduce 2 blame 1 waiting 0-2");
}

/* What stands right in front of it may be what it waits for: an abort came before the device was looked at again. */
static void a_device_behind_what_is_not_known_is_not_to_blame(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2"), b = job_comm(&j, "B", "0-2");
  everyone(b, 1, 1, NT_PROGRESS_FINISHED);
  at(1, 1, 1, NT_PROGRESS_UNKNOWN);
  everyone(a, 1, 2, NT_PROGRESS_REACHED);
  at(1, 1, 2, NT_PROGRESS_ENQUEUED);
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_int_equal(nt_rank_set_count(&v->findings[i].blame), 0);
}

/* Two hosts went on to the next operation, but the first is known to be unfinished: it lacks the third, whose trace
 * is missing. */
static void who_went_on_is_held_by_what_is_unfinished(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2"), b = job_comm(&j, "B", "0-1");
  for (uint32_t r = 0; r < 2; r++) {
    job_call(&j, r, a, NT_FN_AllReduce, 64);
    at(r, 1, 1, NT_PROGRESS_REACHED);
    job_call(&j, r, b, NT_FN_AllReduce, 64);
    at(r, 1, 2, NT_PROGRESS_ENQUEUED);
  }
  job_drop(&j, 2);
  assert_verdict(&j, "undecided AllReduce 1 blame  waiting 0-1");
}

static void operations_behind_it_are_consequences(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2"), b = job_comm(&j, "B", "0-2");
  everyone(a, 1, 1, NT_PROGRESS_REACHED);
  at(2, 1, 1, NT_PROGRESS_ENQUEUED);
  everyone(b, 1, 2, NT_PROGRESS_ENQUEUED);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_int_equal(v->findings[0].class, NT_CLASS_GPU);
  assert_string_equal(set_text(&v->findings[0].blame), "2");
  job_free(&j);
}

/* Both marks in front were passed before either operation began: which is first is not told. */
static void two_threads_at_the_head_of_one_stream_are_not_certainly_stalled(void **state) {
  (void)state;
  const uint32_t a = start(2, "0-1"), b = job_comm(&j, "B", "0-1");
  for (int warm = 0; warm < 2; warm++)
    for (uint32_t r = 0; r < 2; r++) {
      const enum nt_progress progress = warm ? NT_PROGRESS_REACHED : NT_PROGRESS_FINISHED;
      job_call(&j, r, a, NT_FN_AllReduce, 64);
      at(r, 1, 1 + 2 * (uint32_t)warm, progress)->thread = 1;
      job_call(&j, r, b, NT_FN_AllReduce, 64);
      at(r, 1, 2 + 2 * (uint32_t)warm, progress)->thread = 2;
    }
  struct nt_verdict *v = job_judge(&j);
  assert_true(v->count > 0);
  assert_int_equal(v->findings[0].class, NT_CLASS_STALLED);
  assert_int_equal(v->findings[0].confidence, NT_LIKELY);
  assert_int_equal(nt_rank_set_count(&v->findings[0].blame), 0);
  job_free(&j);
}

static void at_the_head_everywhere_is_stalled(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  everyone(a, 1, 1, NT_PROGRESS_REACHED);
  at(1, 1, 1, NT_PROGRESS_FINISHED);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->findings[0].confidence, NT_CERTAIN);
  job_free(&j);
  a = start(3, "0-2");
  everyone(a, 1, 1, NT_PROGRESS_REACHED);
  at(1, 1, 1, NT_PROGRESS_FINISHED);
  assert_verdict(&j, "stalled AllReduce 1 blame  waiting 0,2");
}

static void who_aborts_when_only_its_own_part_is_done_has_left(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  everyone(a, 1, 2, NT_PROGRESS_REACHED);
  at(1, 1, 2, NT_PROGRESS_FINISHED);
  job_record(&j, 1, a, NT_FN_CommAbort, 0, -1);
  job_pass(&j, 5000);
  assert_verdict(&j, "left AllReduce 2 blame 1 waiting 0,2");
}

/* What the others still read from its memory is gone with its process. */
static void who_ends_well_when_only_its_own_part_is_done_has_left(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  everyone(a, 1, 2, NT_PROGRESS_FINISHED);
  at(2, 1, 2, NT_PROGRESS_REACHED);
  job_end(&j, 0, NT_PROCESS_EXITED, 0);
  job_end(&j, 1, NT_PROCESS_EXITED, 0);
  job_pass(&j, 5000);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->findings[0].class, NT_CLASS_LEFT);
  assert_int_equal(v->findings[0].confidence, NT_LIKELY);
  assert_string_equal(set_text(&v->findings[0].blame), "0-1");
  assert_string_equal(set_text(&v->findings[0].waiting), "2");
  assert_non_null(strstr(v->findings[0].next.line[0], "pass a barrier"));
  job_free(&j);
}

static void who_is_done_and_ends_when_it_has_hung_for_long_is_not_the_cause(void **state) {
  (void)state;
  for (int how = 0; how < 3; how++) {
    uint32_t a = start(3, "0-2");
    everyone(a, 1, 1, NT_PROGRESS_FINISHED);
    everyone(a, 1, 2, NT_PROGRESS_REACHED);
    at(1, 1, 2, NT_PROGRESS_FINISHED);
    job_pass(&j, 3000);
    if (how)
      job_end(&j, 1, how == 1 ? NT_PROCESS_VANISHED : NT_PROCESS_EXITED, 0);
    else
      job_record(&j, 1, a, NT_FN_CommAbort, 0, -1);
    assert_verdict(&j, "stalled AllReduce 2 blame  waiting 0,2");
  }
}

static void a_host_inside_the_first_operation_may_be_connecting(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  for (uint32_t r = 0; r < 2; r++) {
    job_call(&j, r, a, NT_FN_AllReduce, 64);
    at(r, 1, 1, NT_PROGRESS_REACHED)->exit_ns = 0;
  }
  job_pass(&j, 5000);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_STALLED);
  assert_int_equal(v->findings[0].confidence, NT_LIKELY);
  job_free(&j);
}

static void a_device_that_gets_on_is_no_stall(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  everyone(a, 1, 1, NT_PROGRESS_REACHED);
  job_rank(&j, 1)->moved = true;
  assert_verdict(&j, "consistent");
}

static void as_long_as_earlier_pauses_is_no_stall(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  job_pass(&j, 5000);
  everyone(a, 1, 2, NT_PROGRESS_REACHED);
  assert_verdict(&j, "consistent");
}

static void unknown_progress_accuses_nobody(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  everyone(a, 1, 1, NT_PROGRESS_UNKNOWN);
  assert_verdict(&j, "consistent");
}

/* Rank `odd` issues B first; everything on stream `second` for the later one. */
static void opposite(uint32_t ranks, uint32_t odd, uint32_t second) {
  job_start(&j, ranks);
  uint32_t comm[2] = {job_comm(&j, "A", ranks == 2 ? "0-1" : "0-3"),
                      job_comm(&j, "B", ranks == 2 ? "0-1" : "0-3")};
  for (uint32_t r = 0; r < ranks; r++)
    for (uint32_t i = 0; i < 2; i++) {
      job_call(&j, r, comm[i ^ (r == odd)], NT_FN_AllReduce, 64);
      bool behind = i && second == 1;
      at(r, i ? second : 1, behind ? 2 : 1, behind ? NT_PROGRESS_ENQUEUED : NT_PROGRESS_REACHED);
    }
}

static void opposite_order_on_one_stream_is_a_cycle(void **state) {
  (void)state;
  opposite(4, 2, 1);
  assert_verdict(&j, "cycle AllReduce 1 blame 2 waiting 0-3");
}

static void without_a_majority_all_of_the_cycle_are_named(void **state) {
  (void)state;
  opposite(2, 1, 1);
  assert_verdict(&j, "cycle AllReduce 1 blame 0-1 waiting 0-1");
}

static void opposite_order_on_two_streams_is_none(void **state) {
  (void)state;
  opposite(4, 2, 2);
  assert_verdict(&j, "stalled AllReduce 1 blame  waiting 0-3");
}

static void a_majority_that_leaves_nobody_to_blame_blames_all(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-2"), b = job_comm(&j, "B", "0-1");
  job_call(&j, 0, a, NT_FN_Reduce, 64);
  at(0, 1, 1, NT_PROGRESS_REACHED);
  job_send(&j, 0, b, 1, 64);
  at(0, 1, 2, NT_PROGRESS_ENQUEUED);
  job_recv(&j, 1, b, 0, 64);
  at(1, 1, 1, NT_PROGRESS_REACHED);
  job_call(&j, 1, a, NT_FN_Reduce, 64);
  at(1, 1, 2, NT_PROGRESS_ENQUEUED);
  job_call(&j, 2, a, NT_FN_Reduce, 64);
  at(2, 1, 1, NT_PROGRESS_REACHED);
  assert_verdict(&j, "cycle Reduce 1 blame 0-1 waiting 0-2");
}

static void a_skip_that_waits_in_what_all_have_called_is_missing(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2"), b = job_comm(&j, "B", "0-2");
  for (uint32_t turn = 0; turn < 2; turn++) {
    everyone(b, 1, 2 * turn + 1, NT_PROGRESS_FINISHED);
    everyone(a, 1, 2 * turn + 2, NT_PROGRESS_FINISHED);
  }
  for (uint32_t r = 0; r < 3; r++) {
    if (r != 1) {
      job_call(&j, r, b, NT_FN_AllReduce, 64);
      at(r, 1, 5, r ? NT_PROGRESS_REACHED : NT_PROGRESS_FINISHED);
    }
    job_call(&j, r, a, NT_FN_AllReduce, 64);
    at(r, 1, 6, r == 2 ? NT_PROGRESS_ENQUEUED : NT_PROGRESS_REACHED);
  }
  assert_verdict(&j, "missing AllReduce 3 blame 1 waiting 2");
}

static void messages_in_a_circle_are_named_by_the_side_at_the_head(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  for (uint32_t r = 0; r < 2; r++) {
    job_recv(&j, r, a, !r, 64);
    at(r, 1, 1, NT_PROGRESS_REACHED);
    job_send(&j, r, a, !r, 64);
    at(r, 1, 2, NT_PROGRESS_ENQUEUED);
  }
  assert_verdict(&j, "p2p Recv 1 blame 0-1 waiting 0-1");
}

static void who_waits_for_a_rank_without_a_trace_is_not_late(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3"), b = job_comm(&j, "B", "0-3");
  for (uint32_t r = 0; r < 3; r++) {
    job_call(&j, r, a, NT_FN_Reduce, 64);
    at(r, 1, 1, r ? NT_PROGRESS_FINISHED : NT_PROGRESS_REACHED);
    if (!r)
      continue;
    job_call(&j, r, a, NT_FN_Broadcast, 64);
    at(r, 1, 2, NT_PROGRESS_REACHED);
  }
  job_call(&j, 3, b, NT_FN_AllReduce, 64);
  job_drop(&j, 3);
  assert_verdict(&j, "undecided Reduce 1 blame  waiting 0");
}

static void nor_where_the_others_have_gone_on_in_another_communicator(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3"), b = job_comm(&j, "B", "0-3");
  for (uint32_t r = 0; r < 3; r++) {
    job_call(&j, r, a, NT_FN_Reduce, 64);
    at(r, 1, 1, r ? NT_PROGRESS_FINISHED : NT_PROGRESS_REACHED);
  }
  for (uint32_t r = 1; r < 3; r++) {
    job_call(&j, r, b, NT_FN_AllReduce, 64);
    at(r, 1, 2, NT_PROGRESS_REACHED);
  }
  job_drop(&j, 3);
  assert_verdict(&j, "undecided Reduce 1 blame  waiting 0");
}

static void of_messages_from_out_of_sight_the_first_unfinished_is_waited_for(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  for (uint32_t turn = 0; turn < 2; turn++) {
    job_recv(&j, 1, a, 0, 64);
    at(1, 1, 2 * turn + 1, turn ? NT_PROGRESS_REACHED : NT_PROGRESS_FINISHED);
    if (!turn) {
      job_send(&j, 1, a, 2, 64);
      at(1, 1, 2, NT_PROGRESS_FINISHED);
    }
    job_recv(&j, 2, a, 1, 64);
    at(2, 1, turn + 1, turn ? NT_PROGRESS_REACHED : NT_PROGRESS_FINISHED);
  }
  job_drop(&j, 0);
  assert_verdict(&j, "undecided Recv 2 blame  waiting 1");
}

static void events_tie_streams_together(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t comm[2] = {job_comm(&j, "A", "0-1"), job_comm(&j, "B", "0-1")};
  for (uint32_t r = 0; r < 2; r++) {
    job_call(&j, r, comm[r], NT_FN_AllReduce, 64);
    at(r, 1, 1, NT_PROGRESS_REACHED);
    cuda(r, NT_FN_cudaEventRecord, 1, 1, 77);
    cuda(r, NT_FN_cudaStreamWaitEvent, 2, 0, 77);
    job_call(&j, r, comm[!r], NT_FN_AllReduce, 64);
    at(r, 2, 1, NT_PROGRESS_ENQUEUED);
  }
  assert_verdict(&j, "cycle AllReduce 1 blame 0-1 waiting 0-1");
}

static void an_event_from_out_of_sight_accuses_nobody(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-2"), b = job_comm(&j, "B", "0-2");
  everyone(a, 1, 1, NT_PROGRESS_REACHED);
  for (uint32_t r = 0; r < 3; r++) {
    cuda(r, NT_FN_cudaStreamWaitEvent, 2, 0, 5);
    job_call(&j, r, b, NT_FN_AllReduce, 64);
    at(r, 2, 1, NT_PROGRESS_ENQUEUED);
  }
  assert_verdict(&j, "stalled AllReduce 1 blame  waiting 0-2");
}

static void who_has_finished_does_not_wait(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  job_others(&j, 2, a, NT_FN_Broadcast, 64);
  at(0, 1, 2, NT_PROGRESS_FINISHED);
  at(1, 1, 2, NT_PROGRESS_REACHED);
  at(3, 1, 2, NT_PROGRESS_REACHED);
  assert_verdict(&j, "missing Broadcast 2 blame 2 waiting 1,3");
}

static void who_went_on_waits_in_a_later_one(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2"), b = job_comm(&j, "B", "0-1");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  for (uint32_t r = 0; r < 2; r++) {
    job_call(&j, r, a, NT_FN_Broadcast, 64);
    at(r, 1, 2, r ? NT_PROGRESS_REACHED : NT_PROGRESS_FINISHED);
  }
  job_call(&j, 0, a, NT_FN_AllReduce, 64);
  at(0, 1, 3, NT_PROGRESS_REACHED);
  job_call(&j, 1, b, NT_FN_AllReduce, 64);
  at(1, 1, 3, NT_PROGRESS_ENQUEUED);
  /* Rank 0 lacks the operation on B because it waits in A for rank 2. */
  assert_verdict(&j, "missing Broadcast 2 blame 2 waiting 1");
}

static void a_mismatch_that_finished_holds_nobody(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  for (uint32_t r = 0; r < 3; r++) {
    j.op = r == 2 ? ncclMax : ncclSum;
    job_call(&j, r, a, NT_FN_AllReduce, 64);
    at(r, 1, 1, NT_PROGRESS_FINISHED);
  }
  assert_verdict(&j, "mismatch op AllReduce 1 blame 2 waiting ");
}

static void two_ranks_and_one_other_count_is_a_mismatch(void **state) {
  (void)state;
  for (int more = 0; more < 2; more++) {
    uint32_t a = start(2, "0-1");
    for (int i = 0; i < 6; i++)
      job_all(&j, a, NT_FN_AllReduce, 1024);
    job_call(&j, 0, a, NT_FN_AllReduce, 2048);
    job_call(&j, 1, a, NT_FN_AllReduce, 1024);
    if (more)
      job_call(&j, 0, a, NT_FN_AllReduce, 1024);
    assert_verdict(&j, "mismatch count AllReduce 7 blame  waiting 0-1");
  }
}

static void two_ranks_and_a_proven_insertion_is_extra(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  job_all(&j, a, NT_FN_AllReduce, 1024);
  job_call(&j, 0, a, NT_FN_AllReduce, 1);
  for (uint64_t n = 10; n < 14; n++)
    job_all(&j, a, NT_FN_AllGather, n * n);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->findings[0].class, NT_CLASS_EXTRA);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  job_free(&j);
}

/* Rank 1 is killed in front of #2; rank 0 is ended `ms` later. */
static void killed_one_after_the_other(int64_t ms) {
  uint32_t a = start(2, "0-1");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  job_end(&j, 1, NT_PROCESS_VANISHED, 0);
  job_call(&j, 0, a, NT_FN_AllReduce, 64);
  at(0, 1, 2, NT_PROGRESS_REACHED);
  job_pass(&j, ms);
  job_end(&j, 0, NT_PROCESS_VANISHED, 0);
}

static void a_noticed_death_comes_first(void **state) {
  (void)state;
  killed_one_after_the_other(80);
  job_rank(&j, 1)->noticed_ns = job_rank(&j, 1)->last_beat_ns + 50 * MS;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->findings[0].confidence, NT_LIKELY);
  job_free(&j);
  killed_one_after_the_other(80);
  job_rank(&j, 1)->noticed_ns = job_rank(&j, 1)->last_beat_ns + 50 * MS;
  assert_verdict(&j, "dead AllReduce 2 blame 1 waiting 0");
}

static void a_remote_error_tells_of_a_death(void **state) {
  (void)state;
  killed_one_after_the_other(80);
  struct nt_model_call *call = job_record(&j, 0, 0, NT_FN_CommGetAsyncError, ncclRemoteError, -1);
  call->enter_ns = job_rank(&j, 1)->last_beat_ns + 60 * MS;
  call->exit_ns = call->enter_ns + 1;
  assert_verdict(&j, "dead AllReduce 2 blame 1 waiting 0");
}

static void without_a_witness_nobody_is_dead(void **state) {
  (void)state;
  killed_one_after_the_other(80);
  assert_verdict(&j, "consistent");
}

/* Each is noticed, and NCCL tells of it: but what came first was only the first in turn. */
static void signals_one_after_the_other_have_no_first(void **state) {
  (void)state;
  uint32_t a = start(5, "0-4");
  job_others(&j, 0, a, NT_FN_AllReduce, 16);
  for (uint32_t r = 0; r < 5; r++) {
    job_end(&j, r, NT_PROCESS_VANISHED, 0);
    job_rank(&j, r)->noticed_ns = r < 4 ? j.clock + 40 * MS : 0;
    job_pass(&j, 150);
  }
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_int_not_equal(v->findings[i].class, NT_CLASS_DEAD);
  job_free(&j);
}

static void a_kill_of_all_at_once_has_no_first(void **state) {
  (void)state;
  killed_one_after_the_other(3);
  job_rank(&j, 1)->noticed_ns = job_rank(&j, 1)->last_beat_ns + 2 * MS;
  assert_verdict(&j, "consistent");
}

static void a_failure_and_then_the_launcher(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  job_end(&j, 1, NT_PROCESS_EXITED, 1);
  job_others(&j, 1, a, NT_FN_AllReduce, 64);
  job_pass(&j, 120);
  job_end(&j, 0, NT_PROCESS_VANISHED, 0);
  job_end(&j, 2, NT_PROCESS_EXITED, 143);
  assert_verdict(&j, "dead AllReduce 2 blame 1 waiting 0,2");
}

/* Rank 1 is awaited by the others for so long, and then killed. */
static void killed_after(int64_t ms) {
  uint32_t a = start(3, "0-2");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  job_others(&j, 1, a, NT_FN_AllReduce, 64);
  at(0, 1, 2, NT_PROGRESS_REACHED);
  at(2, 1, 2, NT_PROGRESS_REACHED);
  job_pass(&j, ms);
  job_end(&j, 1, NT_PROCESS_VANISHED, 0);
}

static void who_was_long_awaited_before_its_death_is_missing_not_dead(void **state) {
  (void)state;
  killed_after(90000);
  assert_verdict(&j, "missing AllReduce 2 blame 1 waiting 0,2");
  killed_after(5000);
  assert_verdict(&j, "dead AllReduce 2 blame 1 waiting 0,2");
}

static void a_long_pause_that_the_job_has_shown_is_none(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  job_call(&j, 0, a, NT_FN_AllReduce, 64);
  at(0, 1, 2, NT_PROGRESS_FINISHED);
  job_pass(&j, 60000);
  job_call(&j, 1, a, NT_FN_AllReduce, 64);
  at(1, 1, 2, NT_PROGRESS_FINISHED);
  job_call(&j, 0, a, NT_FN_AllReduce, 64);
  at(0, 1, 3, NT_PROGRESS_REACHED);
  job_pass(&j, 90000);
  job_end(&j, 1, NT_PROCESS_VANISHED, 0);
  assert_verdict(&j, "dead AllReduce 3 blame 1 waiting 0");
}

static void a_death_in_the_middle_of_an_operation(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  everyone(a, 1, 1, NT_PROGRESS_REACHED);
  job_end(&j, 2, NT_PROCESS_VANISHED, 0);
  assert_verdict(&j, "dead AllReduce 1 blame 2 waiting 0-1");
}

static void a_sender_that_dies_before_its_message_has_arrived(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  job_send(&j, 0, a, 1, 64);
  at(0, 1, 1, NT_PROGRESS_FINISHED);
  job_recv(&j, 1, a, 0, 64);
  at(1, 1, 1, NT_PROGRESS_REACHED);
  job_end(&j, 0, NT_PROCESS_VANISHED, 0);
  assert_verdict(&j, "dead Send 1 blame 0 waiting 1");
}

/* Ranks 0 and 1 wait crosswise. Rank 1 aborts A, which lets B finish on rank 0 and A come to its turn there, as rank 0's
 * looks before and after 2 s tell. */
static enum nt_progress released(int64_t abort_ms, enum nt_progress *behind) {
  uint32_t a = start(2, "0-1"), b = job_comm(&j, "B", "0-1");
  job_call(&j, 0, b, NT_FN_AllReduce, 64);
  at(0, 1, 1, NT_PROGRESS_FINISHED);
  job_call(&j, 0, a, NT_FN_AllReduce, 64);
  at(0, 1, 2, NT_PROGRESS_REACHED);
  struct nt_model_rank *rank = job_rank(&j, 0);
  rank->seen = calloc(2, sizeof *rank->seen);
  rank->seen_count = 2;
  rank->seen[0] = (struct nt_model_seen){
      .call = 0, .reached_us = 1000, .unfinished_us = 1990000, .finished_us = 2010000};
  rank->seen[1] = (struct nt_model_seen){.call = 1, .unreached_us = 1989000, .reached_us = 2009000};
  struct nt_model_call *abort = job_record(&j, 1, a, NT_FN_CommAbort, 0, -1);
  abort->enter_ns = rank->calls[0].enter_ns + abort_ms * MS;
  nt_settle_released(&j.model);
  const enum nt_progress first = rank->calls[0].progress;
  *behind = rank->calls[1].progress;
  job_free(&j);
  return first;
}

static void what_another_ranks_abort_lets_go_counts_as_it_stood_before(void **state) {
  (void)state;
  enum nt_progress behind;
  assert_int_equal(released(2000, &behind), NT_PROGRESS_REACHED);
  assert_int_equal(behind, NT_PROGRESS_ENQUEUED);
}

static void what_had_finished_before_an_abort_stays_finished(void **state) {
  (void)state;
  enum nt_progress behind;
  assert_int_equal(released(2500, &behind), NT_PROGRESS_FINISHED);
  assert_int_equal(behind, NT_PROGRESS_REACHED);
  assert_int_equal(released(500, &behind), NT_PROGRESS_FINISHED); /* it had not hung by then */
}

/* Files alone of processes that were killed: rank 0 was heard of so long after the others had begun to wait for it. */
static struct nt_verdict *heard_of_after(int64_t ms) {
  uint32_t a = start(3, "0-2");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  for (uint32_t r = 1; r < 3; r++) {
    job_call(&j, r, a, NT_FN_AllReduce, 64);
    at(r, 1, 2, NT_PROGRESS_REACHED);
  }
  const int64_t heard_ns = job_rank(&j, 1)->calls[1].enter_ns + ms * MS;
  job_pass(&j, 8000);
  for (uint32_t r = 0; r < 3; r++) {
    job_rank(&j, r)->state = NT_PROCESS_VANISHED;
    job_rank(&j, r)->live = false;
    job_rank(&j, r)->outlived = true;
    job_rank(&j, r)->last_beat_ns = r ? j.clock : heard_ns;
    job_rank(&j, r)->gone_ns = j.clock; /* as its neighbours tell */
  }
  return job_judge(&j);
}

static void who_was_not_heard_of_since_the_others_waited_is_not_missing(void **state) {
  (void)state;
  assert_int_equal(heard_of_after(500)->count, 0);
  job_free(&j);
}

static void who_was_heard_of_seconds_after_they_began_is_missing_perhaps(void **state) {
  (void)state;
  struct nt_verdict *v = heard_of_after(2500);
  assert_int_equal(v->count, 1);
  assert_int_equal(v->findings[0].class, NT_CLASS_MISSING);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  job_free(&j);
  v = heard_of_after(5500);
  assert_int_equal(v->count, 1);
  assert_int_equal(v->findings[0].class, NT_CLASS_MISSING);
  assert_int_equal(v->findings[0].confidence, NT_CERTAIN);
  assert_true(nt_rank_set_has(&v->findings[0].blame, 0));
  job_free(&j);
}

static void a_host_wait_is_what_a_culprit_does_now(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  struct nt_model_call *call = cuda(1, NT_FN_cudaStreamSynchronize, 1, 1, 0);
  call->exit_ns = 0;
  call->at = nt_model_add_site(job_rank(&j, 1), "train.py:91 step");
  job_call(&j, 0, a, NT_FN_AllReduce, 64);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->findings[0].class, NT_CLASS_MISSING);
  assert_string_equal(v->findings[0].culprits[0].now,
                      "in cudaStreamSynchronize at train.py:91 step");
  job_free(&j);
}

static void finalize_in_opposite_order_is_teardown(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1"), b = job_comm(&j, "B", "0-1");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  job_record(&j, 0, a, NT_FN_CommFinalize, 0, -1)->seq = 1;
  job_block(&j, 0);
  job_record(&j, 1, b, NT_FN_CommFinalize, 0, -1)->seq = 1;
  job_block(&j, 1);
  assert_verdict(&j, "teardown CommFinalize 1 blame 0-1 waiting 0");
}

static void finalize_that_does_not_return_is_teardown(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  for (uint32_t r = 0; r < 2; r++) {
    job_record(&j, r, a, NT_FN_CommFinalize, 0, -1)->seq = 1;
    job_block(&j, r);
  }
  assert_verdict(&j, "teardown CommFinalize 1 blame  waiting 0-1");
}

static void a_job_that_stands_still_outside(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  everyone(a, 1, 1, NT_PROGRESS_FINISHED);
  job_pass(&j, 1000);
  assert_verdict(&j, "outside (null) 0 blame  waiting ");
}

static void other_settings_are_a_warning(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 64);
  for (uint32_t r = 0; r < 3; r++) {
    job_rank(&j, r)->nccl = strdup("2.28.9");
    job_rank(&j, r)->nccl_env =
        strdup(r == 1 ? "NCCL_ALGO=Ring\nNCCL_DEBUG=INFO\n" : "NCCL_ALGO=Tree\nNCCL_DEBUG=INFO\n");
  }
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 0);
  assert_int_equal(v->warning_count, 1);
  assert_string_equal(v->warnings[0].summary, "NCCL_ALGO is not the same on all ranks");
  assert_string_equal(set_text(&v->warnings[0].blame), "1");
  job_free(&j);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_device_held_by_other_work_is_to_blame),
      cmocka_unit_test(a_device_behind_what_is_not_known_is_not_to_blame),
      cmocka_unit_test(who_went_on_is_held_by_what_is_unfinished),
      cmocka_unit_test(operations_behind_it_are_consequences),
      cmocka_unit_test(two_threads_at_the_head_of_one_stream_are_not_certainly_stalled),
      cmocka_unit_test(at_the_head_everywhere_is_stalled),
      cmocka_unit_test(who_aborts_when_only_its_own_part_is_done_has_left),
      cmocka_unit_test(who_ends_well_when_only_its_own_part_is_done_has_left),
      cmocka_unit_test(who_is_done_and_ends_when_it_has_hung_for_long_is_not_the_cause),
      cmocka_unit_test(a_host_inside_the_first_operation_may_be_connecting),
      cmocka_unit_test(a_device_that_gets_on_is_no_stall),
      cmocka_unit_test(as_long_as_earlier_pauses_is_no_stall),
      cmocka_unit_test(unknown_progress_accuses_nobody),
      cmocka_unit_test(opposite_order_on_one_stream_is_a_cycle),
      cmocka_unit_test(without_a_majority_all_of_the_cycle_are_named),
      cmocka_unit_test(a_majority_that_leaves_nobody_to_blame_blames_all),
      cmocka_unit_test(who_waits_for_a_rank_without_a_trace_is_not_late),
      cmocka_unit_test(nor_where_the_others_have_gone_on_in_another_communicator),
      cmocka_unit_test(of_messages_from_out_of_sight_the_first_unfinished_is_waited_for),
      cmocka_unit_test(a_skip_that_waits_in_what_all_have_called_is_missing),
      cmocka_unit_test(messages_in_a_circle_are_named_by_the_side_at_the_head),
      cmocka_unit_test(opposite_order_on_two_streams_is_none),
      cmocka_unit_test(events_tie_streams_together),
      cmocka_unit_test(an_event_from_out_of_sight_accuses_nobody),
      cmocka_unit_test(who_has_finished_does_not_wait),
      cmocka_unit_test(who_went_on_waits_in_a_later_one),
      cmocka_unit_test(a_mismatch_that_finished_holds_nobody),
      cmocka_unit_test(two_ranks_and_one_other_count_is_a_mismatch),
      cmocka_unit_test(two_ranks_and_a_proven_insertion_is_extra),
      cmocka_unit_test(a_noticed_death_comes_first),
      cmocka_unit_test(a_remote_error_tells_of_a_death),
      cmocka_unit_test(without_a_witness_nobody_is_dead),
      cmocka_unit_test(a_kill_of_all_at_once_has_no_first),
      cmocka_unit_test(signals_one_after_the_other_have_no_first),
      cmocka_unit_test(a_failure_and_then_the_launcher),
      cmocka_unit_test(who_was_long_awaited_before_its_death_is_missing_not_dead),
      cmocka_unit_test(a_long_pause_that_the_job_has_shown_is_none),
      cmocka_unit_test(a_death_in_the_middle_of_an_operation),
      cmocka_unit_test(a_sender_that_dies_before_its_message_has_arrived),
      cmocka_unit_test(what_another_ranks_abort_lets_go_counts_as_it_stood_before),
      cmocka_unit_test(what_had_finished_before_an_abort_stays_finished),
      cmocka_unit_test(who_was_not_heard_of_since_the_others_waited_is_not_missing),
      cmocka_unit_test(who_was_heard_of_seconds_after_they_began_is_missing_perhaps),
      cmocka_unit_test(a_host_wait_is_what_a_culprit_does_now),
      cmocka_unit_test(finalize_in_opposite_order_is_teardown),
      cmocka_unit_test(finalize_that_does_not_return_is_teardown),
      cmocka_unit_test(a_job_that_stands_still_outside),
      cmocka_unit_test(other_settings_are_a_warning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
