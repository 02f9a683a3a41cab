/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from who recorded the job: a log tells what was called and nothing else, a dump nothing of processes. What
 * cannot be known is not said, and the next steps are such as can be taken without traces.
 */
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "nccl/nccl_api.h"

#define DUMP_SETTINGS "TORCH_NCCL_TRACE_BUFFER_SIZE=2000"
#define LOG_SETTINGS "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL"

enum { LINES_MAX = 40, PROCESSES_MAX = 4 };

static enum nt_recorder recorder_of(const struct nt_inquiry *inquiry) {
  const struct nt_model *model = inquiry->job->model;
  return model->rank_count ? model->ranks[0].recorder : NT_RECORDER_TRACE;
}

static bool is_operation(const struct nt_model_call *call) {
  return call->view != NT_NONE && nt_shape_is_operation(nt_fn_shape(call->fn));
}

/* Some are there, or a communicator's numbers say that there were. */
static bool has_operations(const struct nt_model *model) {
  for (uint32_t r = 0; r < model->rank_count; r++) {
    for (uint32_t i = 0; i < model->ranks[r].call_count; i++)
      if (is_operation(&model->ranks[r].calls[i]))
        return true;
    for (uint32_t v = 0; v < model->ranks[r].view_count; v++)
      if (model->ranks[r].views[v].collectives)
        return true;
  }
  return false;
}

int nt_judge_silence(struct nt_inquiry *inquiry) {
  const enum nt_recorder recorder = recorder_of(inquiry);
  if (inquiry->verdict->count || recorder == NT_RECORDER_TRACE ||
      has_operations(inquiry->job->model))
    return 0;
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_UNDECIDED, NT_NONE);
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->confidence = NT_UNDECIDED;
  if (recorder == NT_RECORDER_FLIGHT) {
    nt_finding_say(finding, "no operations are in the dumps, so nothing can be compared: PyTorch "
                            "keeps them with " DUMP_SETTINGS);
    nt_lines_add(&finding->next, "run the job again with " DUMP_SETTINGS ", or with "
                                 "LD_PRELOAD=.../libnccltrace.so NCCLTRACE_DIR=DIR");
    return 0;
  }
  nt_finding_say(finding, "no calls are in the logs, so nothing can be compared: NCCL writes them "
                          "with " LOG_SETTINGS);
  nt_lines_add(&finding->next, "run the job again with " LOG_SETTINGS
                               " NCCL_DEBUG_FILE=DIR/nccl.%%h.%%p.log, then tracediff DIR");
  nt_lines_add(&finding->next, "or with LD_PRELOAD=.../libnccltrace.so NCCLTRACE_DIR=DIR, which "
                               "tells what finished as well");
  return 0;
}

/* The last that its log tells is in front of what it did not call, and it does not say why. */
static bool ends_before(const struct nt_inquiry *inquiry, const struct nt_finding *finding,
                        uint32_t rank, uint32_t last) {
  const struct nt_job *job = inquiry->job;
  const struct nt_model_call *call = &job->model->ranks[rank].calls[last];
  if (nt_echoes_an_end(inquiry, rank) || !is_operation(call))
    return false;
  return job->places[rank][call->view].joint != finding->joint || call->seq < finding->seq;
}

static void say_ends_of_logs(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_job *job = inquiry->job;
  char call[NT_DESCRIBE];
  uint32_t ended = 0;
  for (uint32_t r = 0; r < job->model->rank_count && finding->evidence.count < LINES_MAX; r++) {
    const int32_t world = job->model->ranks[r].world;
    const uint32_t last = nt_last_call(job, r);
    if (world < 0 || last == NT_NONE)
      continue;
    nt_describe_call(call, sizeof call, job, r, last);
    if (nt_echoes_an_end(inquiry, r)) {
      nt_lines_add(
          &finding->evidence,
          "rank %d lost a connection to a peer after %s: another's end came before its own", world,
          call);
    } else if (nt_rank_set_has(&finding->blame, (uint32_t)world) &&
               ends_before(inquiry, finding, r, last)) {
      nt_lines_add(&finding->evidence,
                   "rank %d's log ends after %s: it may have died there, or be stuck", world, call);
      ended++;
    }
  }
  if (!ended)
    return;
  nt_lines_add(&finding->next,
               "did it die? look at the end of its own log and output, at dmesg of its node (OOM "
               "killer, Xid) and at the scheduler's records");
  struct nt_lines *next = &finding->next; /* in front of the others */
  for (uint32_t i = next->count; i-- > 1;) {
    char *line = next->line[i];
    next->line[i] = next->line[i - 1];
    next->line[i - 1] = line;
  }
}

/* Where its host is, while it still hangs: no dump of nccltrace is to be had of such a process. */
static void say_hosts(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  uint32_t told = 0;
  for (uint32_t i = 0; i < finding->culprit_count && told < PROCESSES_MAX; i++) {
    const struct nt_culprit *culprit = &finding->culprits[i];
    const struct nt_model_rank *rank =
        culprit->rank == NT_NONE ? NULL : &inquiry->job->model->ranks[culprit->rank];
    if (rank && rank->pid) {
      nt_lines_add(&finding->next, "where its host is, while it hangs: py-spy dump --pid %u on %s",
                   rank->pid, rank->host ? rank->host : "its host");
      told++;
    }
  }
  if (!told && nt_rank_set_count(&finding->blame))
    nt_lines_add(&finding->next, "where its host is, while it hangs: py-spy dump --pid PID of that "
                                 "rank");
  else if (!told)
    nt_lines_add(&finding->next,
                 "where hosts are, while it hangs: py-spy dump --pid PID of each rank");
  nt_lines_add(&finding->next, "next time run it with LD_PRELOAD=.../libnccltrace.so: traces tell "
                               "where hosts are, what lives and what finished");
}

/* Of the others the cause is in the program, and the line is known. */
static bool asks_for_hosts(enum nt_class class) {
  return class != NT_CLASS_MISMATCH && class != NT_CLASS_EXTRA && class != NT_CLASS_ORDER;
}

void nt_say_limits(struct nt_inquiry *inquiry) {
  const enum nt_recorder recorder = recorder_of(inquiry);
  for (uint32_t i = 0; i < inquiry->verdict->count && recorder != NT_RECORDER_TRACE; i++) {
    struct nt_finding *finding = &inquiry->verdict->findings[i];
    if (inquiry->job->model->doubtful && finding->confidence == NT_CERTAIN)
      finding->confidence = NT_LIKELY;
    if (recorder == NT_RECORDER_LOG && !has_operations(inquiry->job->model))
      continue;
    if (recorder == NT_RECORDER_LOG && finding->joint != NT_NONE &&
        (finding->class == NT_CLASS_MISSING || finding->class == NT_CLASS_UNDECIDED))
      say_ends_of_logs(inquiry, finding);
    if (asks_for_hosts(finding->class))
      say_hosts(inquiry, finding);
  }
}
