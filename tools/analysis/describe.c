/* SPDX-License-Identifier: Apache-2.0 */
/* Words only; names from traces are escaped here. */
#include "analysis/describe.h"

#include <stdio.h>
#include <string.h>

#include "analysis/dump_words.h"
#include "analysis/freeze.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "cli/call_text.h"
#include "cli/rank_name.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

char *nt_describe_ranks(char *out, size_t size, const struct nt_rank_set *ranks) {
  char text[NT_DESCRIBE];
  uint32_t count = nt_rank_set_count(ranks);
  if (!count) {
    snprintf(out, size, "nobody");
    return out;
  }
  snprintf(out, size, "%s %s", count == 1 ? "rank" : "ranks",
           nt_rank_set_text(text, sizeof text, ranks));
  return out;
}

char *nt_describe_rank(char *out, size_t size, const struct nt_model_rank *rank) {
  const struct nt_rank_name name = {.rank = rank->world,
                                    .pid = rank->pid,
                                    .host = rank->host,
                                    .gpu_index = rank->gpu_index,
                                    .cuda_device = rank->cuda_device,
                                    .pci = rank->pci};
  return nt_rank_name_text(out, size, &name);
}

char *nt_describe_joint(char *out, size_t size, const struct nt_job *job, uint32_t index) {
  static const char *const suffixes[] = {"th", "st", "nd", "rd"};
  char ranks[NT_DESCRIBE / 2], ordinal[32] = "";
  if (index == NT_NONE) {
    snprintf(out, size, "no communicator");
    return out;
  }
  const struct nt_joint *joint = &job->joints[index];
  if (*joint->name)
    return nt_text_escape(out, size, joint->name);
  uint32_t n = joint->ordinal;
  if (n > 1)
    snprintf(ordinal, sizeof ordinal, "%u%s ", n,
             suffixes[n % 100 >= 11 && n % 100 <= 13 ? 0
                      : n % 10 <= 3                  ? n % 10
                                                     : 0]);
  snprintf(out, size, "the %scommunicator of %s", ordinal,
           nt_describe_ranks(ranks, sizeof ranks, &joint->worlds));
  return out;
}

char *nt_describe_place(char *out, size_t size, const struct nt_job *job, uint8_t fn, uint32_t seq,
                        uint32_t joint) {
  char name[64], label[NT_DESCRIBE / 2];
  nt_call_function(name, sizeof name, fn);
  if (seq)
    snprintf(out, size, "%s #%u on %s", name, seq,
             nt_describe_joint(label, sizeof label, job, joint));
  else
    snprintf(out, size, "%s on %s", name, nt_describe_joint(label, sizeof label, job, joint));
  return out;
}

char *nt_describe_arguments(char *out, size_t size, const struct nt_model_call *call) {
  char count[NT_SIZE_TEXT], type[32], op[40], root[24] = "";
  enum nt_shape shape = nt_fn_shape(call->fn);
  out[0] = '\0';
  if (shape == NT_SHAPE_COMM_INIT) {
    snprintf(out, size, "rank %d of %llu", call->peer, (unsigned long long)call->count);
  } else if (shape == NT_SHAPE_COMM_SPLIT) {
    snprintf(out, size, "colour %d", call->peer);
  } else if (nt_fn_is_collective(call->fn) || shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV) {
    nt_redop_text(op, sizeof op, call->op);
    if (nt_call_has_root(call))
      snprintf(root, sizeof root, ", root %d", call->peer);
    snprintf(out, size, "%s x %s%s%s%s", nt_count_text(count, call->count),
             nt_dtype_text(type, sizeof type, call->dtype), *op ? " " : "", op, root);
  }
  return out;
}

char *nt_describe_call(char *out, size_t size, const struct nt_job *job, uint32_t rank,
                       uint32_t index) {
  const struct nt_model_call *call = &job->model->ranks[rank].calls[index];
  uint32_t joint = call->view == NT_NONE ? NT_NONE : job->places[rank][call->view].joint;
  char place[NT_DESCRIBE], arguments[128], peer[64] = "";
  enum nt_shape shape = nt_fn_shape(call->fn);
  if (joint == NT_NONE)
    nt_call_function(place, sizeof place, call->fn);
  else
    nt_describe_place(place, sizeof place, job, call->fn,
                      shape == NT_SHAPE_COMM_INIT ? 0 : call->seq, joint);
  if (shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV)
    snprintf(peer, sizeof peer, "%s communicator rank %d, ", shape == NT_SHAPE_SEND ? "to" : "from",
             call->peer);
  nt_describe_arguments(arguments, sizeof arguments, call);
  if (*arguments)
    snprintf(out, size, "%s (%s%s)", place, peer, arguments);
  else
    snprintf(out, size, "%s", place);
  return out;
}

uint32_t nt_last_call(const struct nt_job *job, uint32_t rank) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  uint32_t last = NT_NONE;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    if (call->view == NT_NONE || call->enter_ns > job->cut_ns || (call->flags & NT_CALL_VOID))
      continue;
    if (last == NT_NONE || call->enter_ns >= model->calls[last].enter_ns)
      last = i;
  }
  return last;
}

/* The last thing that the rank did, waits for streams included; the newest thread's. */
static uint32_t last_record(const struct nt_job *job, uint32_t rank) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  uint32_t last = NT_NONE;
  for (uint32_t i = 0; i < model->call_count; i++)
    if (model->calls[i].enter_ns <= job->cut_ns &&
        (last == NT_NONE || model->calls[i].enter_ns >= model->calls[last].enter_ns))
      last = i;
  return last;
}

const struct nt_model_dump_thread *nt_describe_thread(const struct nt_job *job, uint32_t rank) {
  uint32_t last = last_record(job, rank);
  if (nt_host_wait_of(job, rank) != NT_NONE ||
      (last != NT_NONE && nt_call_is_open(job, rank, last)))
    return NULL;
  return nt_dump_thread_now(job, rank, last);
}

char *nt_describe_now(char *out, size_t size, const struct nt_job *job, uint32_t rank) {
  const struct nt_model_dump_thread *thread = nt_describe_thread(job, rank);
  const struct nt_model_rank *model = &job->model->ranks[rank];
  uint32_t last = last_record(job, rank), wait = nt_host_wait_of(job, rank);
  char what[NT_DESCRIBE / 2], time[NT_TIME_TEXT];
  out[0] = '\0';
  if (thread)
    return nt_dump_words(out, size, model, thread,
                         last == NT_NONE ? 0 : model->calls[last].exit_ns);
  if (last == NT_NONE)
    return out;
  const struct nt_model_call *call = &model->calls[wait == NT_NONE ? last : wait];
  const char *site = nt_model_site(model, call->at);
  if (wait == NT_NONE && !nt_call_is_open(job, rank, last)) {
    if (job->cut_ns != INT64_MAX || model->state == NT_PROCESS_EXITED ||
        model->state == NT_PROCESS_VANISHED)
      return out; /* it did something after this, or is gone */
    snprintf(out, size, "host code since %s%s%s", nt_time_short(time, call->exit_ns),
             site ? ", last call at " : "", site ? site : "");
    return out;
  }
  if (wait == NT_NONE)
    nt_describe_call(what, sizeof what, job, rank, last);
  else
    nt_call_function(what, sizeof what, call->fn);
  snprintf(out, size, "in %s%s%s", what, site ? " at " : "", site ? site : "");
  return out;
}

char *nt_describe_state(char *out, size_t size, const struct nt_model_rank *rank) {
  switch (rank->state) {
  case NT_PROCESS_RUNNING:
    snprintf(out, size, "running");
    break;
  case NT_PROCESS_STOPPED:
    snprintf(out, size, "stopped");
    break;
  case NT_PROCESS_EXITED:
    snprintf(out, size, "exited with code %d", rank->exit_code);
    break;
  case NT_PROCESS_VANISHED:
    snprintf(out, size, "vanished");
    break;
  default:
    snprintf(out, size, "unknown");
  }
  return out;
}
