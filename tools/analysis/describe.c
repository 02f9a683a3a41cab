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
  if (fn)
    nt_call_function(name, sizeof name, fn);
  else /* its record is lost */
    snprintf(name, sizeof name, "operation");
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
  } else if (shape == NT_SHAPE_RMA) {
    uint32_t signal = nt_call_signal(call) - 1;
    int used = snprintf(out, size, "signal %u of context %u", signal & 0xffff, signal >> 16);
    if (call->fn == NT_FN_WaitSignal && call->count > 1)
      snprintf(out + used, size - (size_t)used, ", %llu times", (unsigned long long)call->count);
    else if (call->fn == NT_FN_PutSignal)
      snprintf(out + used, size - (size_t)used, ", %s x %s", nt_count_text(count, call->count),
               nt_dtype_text(type, sizeof type, call->dtype));
  } else if (nt_fn_is_collective(call->fn) || shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV) {
    nt_redop_text(op, sizeof op, call->op);
    if (nt_call_has_root(call) && call->peer >= 0)
      snprintf(root, sizeof root, ", root %d", call->peer);
    const bool counted = call->count != NT_COUNT_UNKNOWN;
    snprintf(out, size, "%s%s%s%s%s%s", counted ? nt_count_text(count, call->count) : "",
             counted ? " x " : "", nt_dtype_text(type, sizeof type, call->dtype), *op ? " " : "",
             op, root);
  }
  return out;
}

char *nt_describe_call(char *out, size_t size, const struct nt_job *job, uint32_t rank,
                       uint32_t index) {
  const struct nt_model_call *call = &job->model->ranks[rank].calls[index];
  uint32_t joint = call->view == NT_NONE ? NT_NONE : job->places[rank][call->view].joint;
  const char *captured = call->flags & NT_CALL_CAPTURED ? ", captured" : "";
  char place[NT_DESCRIBE], arguments[128], peer[64] = "";
  enum nt_shape shape = nt_fn_shape(call->fn);
  if (joint == NT_NONE)
    nt_call_function(place, sizeof place, call->fn);
  else
    nt_describe_place(place, sizeof place, job, call->fn,
                      shape == NT_SHAPE_COMM_INIT ? 0 : call->seq, joint);
  if (nt_call_is_message(call))
    snprintf(peer, sizeof peer, "%s communicator rank %d, ", nt_call_sends(call) ? "to" : "from",
             call->peer);
  nt_describe_arguments(arguments, sizeof arguments, call);
  if (*arguments)
    snprintf(out, size, "%s (%s%s%s)", place, peer, arguments, captured);
  else
    snprintf(out, size, "%s", place);
  return out;
}

uint32_t nt_last_call(const struct nt_job *job, uint32_t rank) {
  return nt_last_call_in(job, rank, 0);
}

uint32_t nt_last_call_in(const struct nt_job *job, uint32_t rank, uint32_t thread) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  uint32_t last = NT_NONE;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    bool replay = nt_fn_shape(call->fn) == NT_SHAPE_GRAPH_LAUNCH;
    if ((call->view == NT_NONE && !replay) || call->enter_ns > job->cut_ns ||
        (call->flags & NT_CALL_VOID) || (thread && call->thread != thread))
      continue;
    if (last == NT_NONE || call->enter_ns >= model->calls[last].enter_ns)
      last = i;
  }
  return last;
}

/* The last thing that the rank did, waits for streams included; the newest thread's. */
static uint32_t last_record(const struct nt_job *job, uint32_t rank, uint32_t thread) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  uint32_t last = NT_NONE;
  for (uint32_t i = 0; i < model->call_count; i++)
    if (model->calls[i].enter_ns <= job->cut_ns && (!thread || model->calls[i].thread == thread) &&
        (last == NT_NONE || model->calls[i].enter_ns >= model->calls[last].enter_ns))
      last = i;
  return last;
}

const struct nt_model_dump_thread *nt_describe_dumped(const struct nt_job *job, uint32_t rank,
                                                      uint32_t thread) {
  return nt_dump_thread_now(job, rank, last_record(job, rank, thread));
}

const struct nt_model_dump_thread *nt_describe_thread(const struct nt_job *job, uint32_t rank,
                                                      uint32_t thread) {
  uint32_t last = last_record(job, rank, thread);
  if (nt_host_wait_in(job, rank, thread) != NT_NONE ||
      (last != NT_NONE && nt_call_is_open(job, rank, last)))
    return NULL;
  return nt_dump_thread_now(job, rank, last);
}

static struct nt_fate_facts fate_of(const struct nt_model_rank *rank) {
  return (struct nt_fate_facts){.state = rank->state,
                                .phase = rank->phase,
                                .exit_code = rank->exit_code,
                                .exit_ns = rank->exit_ns,
                                .seen_ns = rank->seen_ns,
                                .oom = rank->oom,
                                .oom_machine = rank->oom_machine,
                                .stood_ns = rank->stood_ns,
                                .oom_from = rank->oom_from,
                                .oom_to = rank->oom_to};
}

/* What it is in the middle of, if that had begun by the cut. */
static void fate_now(char *out, size_t size, const struct nt_job *job,
                     const struct nt_model_rank *rank) {
  const struct nt_fate_facts fate = fate_of(rank);
  const int64_t began = nt_model_end(rank), parted = nt_model_parted_ns(rank);
  char time[NT_TIME_TEXT];
  out[0] = '\0';
  if (job->cut_ns != INT64_MAX && (!rank->exit_ns || began > job->cut_ns) &&
      !(rank->leaving && began <= job->cut_ns))
    return;
  nt_fate_now(out, size, &fate);
  if (!*out && parted && job->cut_ns == INT64_MAX && !nt_model_is_over(rank) &&
      rank->recorder == NT_RECORDER_TRACE)
    snprintf(out, size, "alive, all its communicators are destroyed since %s",
             nt_time_short(time, parted));
}

char *nt_describe_now(char *out, size_t size, const struct nt_job *job, uint32_t rank) {
  return nt_describe_now_in(out, size, job, rank, 0);
}

char *nt_describe_now_in(char *out, size_t size, const struct nt_job *job, uint32_t rank,
                         uint32_t number) {
  const struct nt_model_dump_thread *thread = nt_describe_thread(job, rank, number);
  const struct nt_model_rank *model = &job->model->ranks[rank];
  uint32_t last = last_record(job, rank, number), wait = nt_host_wait_in(job, rank, number);
  char what[NT_DESCRIBE / 2], time[NT_TIME_TEXT], fate[NT_FATE_TEXT], words[NT_DESCRIBE];
  fate_now(fate, sizeof fate, job, model);
  snprintf(out, size, "%s", fate);
  if (thread && model->state != NT_PROCESS_REPLACED) {
    nt_dump_words(words, sizeof words, model, thread,
                  last == NT_NONE ? 0 : model->calls[last].exit_ns);
    snprintf(out, size, "%s%s%s", fate, *fate && *words ? ", " : "", words);
    return out;
  }
  if (last == NT_NONE || model->recorder != NT_RECORDER_TRACE)
    return out; /* others do not tell when a call returned */
  const struct nt_model_call *call = &model->calls[wait == NT_NONE ? last : wait];
  const char *site = nt_model_site(model, call->at);
  if (wait == NT_NONE && !nt_call_is_open(job, rank, last)) {
    if (*fate || job->cut_ns != INT64_MAX || nt_model_is_over(model))
      return out; /* it did something after this, or is gone */
    snprintf(out, size, "host code since %s%s%s", nt_time_short(time, call->exit_ns),
             site ? ", last call at " : "", site ? site : "");
    return out;
  }
  if (nt_model_is_gone(model) && *fate)
    return out;
  if (wait == NT_NONE)
    nt_describe_call(what, sizeof what, job, rank, last);
  else
    nt_call_function(what, sizeof what, call->fn);
  const struct nt_model_dump_thread *dumped = nt_describe_dumped(job, rank, number);
  if (!site && dumped && dumped->place)
    snprintf(words, sizeof words, ", called in %s (from the dump of %s)", dumped->place,
             nt_time_short(time, model->dump->began_ns));
  else
    snprintf(words, sizeof words, "%s%s", site ? " at " : "", site ? site : "");
  snprintf(out, size, "%s%sin %s%s", fate, *fate ? ", " : "", what, words);
  return out;
}

char *nt_describe_state(char *out, size_t size, const struct nt_model_rank *rank) {
  const struct nt_fate_facts fate = fate_of(rank);
  if (rank->recorder != NT_RECORDER_TRACE && rank->state == NT_PROCESS_UNKNOWN) {
    snprintf(out, size, "state not recorded");
    return out;
  }
  return nt_fate_text(out, size, &fate);
}

char *nt_describe_end(char *out, size_t size, const struct nt_model_rank *rank) {
  char text[NT_FATE_TEXT];
  nt_describe_state(text, sizeof text, rank);
  const bool passive = !strncmp(text, "killed", 6) || !strncmp(text, "replaced", 8);
  snprintf(out, size, "%s%s", passive ? "was " : "", text);
  return out;
}

bool nt_describe_blocked(char *out, size_t size, const struct nt_model_rank *rank) {
  char time[NT_TIME_TEXT];
  if (!rank->blocked_ns)
    return false;
  snprintf(out, size,
           "the GPU's progress on rank %d has not been seen since %s: the thread that polls it is "
           "blocked in the CUDA driver",
           rank->world, nt_time_short(time, rank->blocked_ns));
  return true;
}
