/* SPDX-License-Identifier: Apache-2.0 */
/* What to do next: where to look, whom to dump, and what the class of the finding asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/dump_words.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

enum { PROCESSES_MAX = 4 };

static const char *const next_steps[NT_CLASS_LIMIT][3] = {
    [NT_CLASS_DEAD] =
        {"look for the cause in the log of that process, in dmesg (OOM killer, Xid) and in "
         "the scheduler's records of its node",
         "those that wait for it are innocent: they do so until they are ended"},
    [NT_CLASS_LEFT] =
        {"find out why it had less to do: uneven data, an early stop or a return that the "
         "other ranks did not take",
         "let all ranks agree on the number of steps, or join uneven inputs"},
    [NT_CLASS_ERROR] = {"run the job with NCCL_DEBUG=WARN: NCCL prints why it refused the call",
                        "check the arguments of the call named above"},
    [NT_CLASS_INIT] =
        {"compare how the ranks named above come to unique id, rank and size",
         "check that every rank reaches this creation, and all creations in one order"},
    [NT_CLASS_MISSING] = {"find the branch that leads past this call",
                          "a condition that differs between ranks must be agreed upon first"},
    [NT_CLASS_EXTRA] = {"find the branch in which only some ranks make this call",
                        "a collective in a rank-dependent branch must be made by all or by none"},
    [NT_CLASS_ORDER] = {"make all ranks issue these operations in one order",
                        "look for threads or callbacks that share this communicator"},
    [NT_CLASS_MISMATCH] = {"print the shape and type of the tensor on both sides before the call",
                           "sizes that depend on local data must be exchanged or padded first"},
    [NT_CLASS_P2P] = {"compare the sends and receives of both sides: peer, order and size",
                      "issue sends and receives that belong together inside one group"},
    [NT_CLASS_CYCLE] = {"make all ranks use these communicators in one order",
                        "or let the operations run on streams that do not wait for each other"},
    [NT_CLASS_TEARDOWN] =
        {"end communicators in one order on all ranks, after all work on them has finished",
         "graphs that hold NCCL operations must be destroyed before the communicator"},
    [NT_CLASS_GPU] = {"find the kernel or the wait that runs in front: cuda-gdb or a core dump "
                      "(CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1) tells",
                      "look into dmesg of that node for Xid errors of this GPU"},
    [NT_CLASS_STALLED] =
        {"check the links and the fabric between these ranks: NCCL_DEBUG=INFO tells the transport, "
         "nvidia-smi and the switch's counters tell errors",
         "look into dmesg of all nodes for Xid errors; run nccl-tests over the same ranks"},
    [NT_CLASS_OUTSIDE] =
        {"look for what the hosts wait in: a barrier, a lock, a store, a file "
         "system or a data loader",
         "compare the ranks with each other: the one that stands elsewhere is the one to look at"},
    [NT_CLASS_UNDECIDED] = {"collect the traces that are missing and run tracediff again"},
};

/* A dump of since then that has stacks: another would tell no more. */
static bool is_dumped(const struct nt_model_rank *rank, int64_t since_ns) {
  return rank->dump && rank->dump->stacks && rank->dump->began_ns >= since_ns;
}

/* Its stacks are native ones only: "--native ", else "". */
static const char *dump_option(const struct nt_model_rank *rank) {
  return rank->python_stacks && rank->state != NT_PROCESS_ENDING ? "" : "--native ";
}

/* Which command tells more of a process that lives. */
static void say_process(struct nt_finding *finding, const struct nt_model_rank *rank,
                        int64_t since_ns) {
  const char *host = rank->host ? rank->host : "its host";
  if (rank->state == NT_PROCESS_STOPPED)
    nt_lines_add(&finding->next,
                 "let it go on (SIGCONT), or find out who stopped it: kill -CONT %u on %s",
                 rank->pid, host);
  else if (is_dumped(rank, since_ns))
    nt_lines_add(&finding->next, "all its threads: nccltrace show --dump %u on %s", rank->pid,
                 host);
  else
    nt_lines_add(&finding->next, "nccltrace dump %s%u on %s, then tracediff again",
                 dump_option(rank), rank->pid, host);
}

/* Of a process that is gone no other dump can be had, but one that is in its trace. Returns whether there is. */
static bool say_dump_left(struct nt_finding *finding, const struct nt_model_rank *rank) {
  char at[NT_TIME_TEXT];
  if (nt_model_lives(rank) || !rank->dump || !rank->dump->thread_count || !rank->source)
    return false;
  nt_lines_add(&finding->next, "all its threads, as they were at %s: nccltrace show --dump %s",
               nt_time_short(at, rank->dump->began_ns), rank->source);
  return true;
}

/* The directory of its trace, as it is from anywhere; NULL if it is not known. Freed by the caller. */
static char *directory_of(const struct nt_model_rank *rank) {
  char *real = rank->source && strstr(rank->source, ".trace") ? realpath(rank->source, NULL) : NULL;
  char *slash = real ? strrchr(real, '/') : NULL;
  if (slash)
    *slash = '\0';
  return real;
}

static int64_t stands_since(const struct nt_finding *finding, const struct nt_culprit *culprit) {
  return culprit->since_ns > finding->since_ns ? culprit->since_ns : finding->since_ns;
}

/* The rank of a culprit that has no dump yet, and lives; else NULL. */
static const struct nt_model_rank *undumped(const struct nt_inquiry *inquiry,
                                            const struct nt_finding *finding, uint32_t i) {
  const struct nt_culprit *culprit = &finding->culprits[i];
  const struct nt_model_rank *rank =
      culprit->rank == NT_NONE ? NULL : &inquiry->job->model->ranks[culprit->rank];
  return rank && nt_model_lives(rank) && rank->state != NT_PROCESS_STOPPED &&
                 !is_dumped(rank, stands_since(finding, culprit))
             ? rank
             : NULL;
}

static bool same_host(const struct nt_model_rank *a, const struct nt_model_rank *b) {
  return !strcmp(a->host ? a->host : "", b->host ? b->host : "");
}

/* One command for all of a host that have no dump yet, at the first of them; false at the others. */
static bool say_dump(const struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t i) {
  enum { PIDS = 8 };
  const struct nt_model_rank *rank = undumped(inquiry, finding, i);
  char pids[PIDS * 12] = "";
  const char *option = "";
  uint32_t count = 0;
  for (uint32_t k = 0; k < finding->culprit_count; k++) {
    const struct nt_model_rank *other = undumped(inquiry, finding, k);
    if (!other || !same_host(rank, other))
      continue;
    if (k < i)
      return false;
    const size_t used = strlen(pids);
    if (count++ < PIDS)
      snprintf(pids + used, sizeof pids - used, " %u", other->pid);
    option = *dump_option(other) ? dump_option(other) : option;
  }
  char *directory = count > PIDS ? directory_of(rank) : NULL;
  nt_lines_add(&finding->next, "nccltrace dump %s%s%s on %s, then tracediff again", option,
               directory ? "--dir " : "", directory ? directory : pids + 1,
               rank->host ? rank->host : "its host");
  free(directory);
  return true;
}

/* What to do with the processes to blame, and where those stood that have ended. */
static void say_processes(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  struct nt_rank_set stopped = {0};
  char who[NT_DESCRIBE];
  uint32_t told = 0;
  for (uint32_t i = 0; i < finding->culprit_count; i++) {
    const struct nt_culprit *culprit = &finding->culprits[i];
    const struct nt_model_rank *rank =
        culprit->rank == NT_NONE ? NULL : &inquiry->job->model->ranks[culprit->rank];
    if (!rank || told >= PROCESSES_MAX)
      continue;
    if (!nt_model_lives(rank)) {
      if (rank->stood_ns)
        nt_lines_add(&finding->next,
                     "find out who stopped process %u on %s: SIGSTOP, a debugger, "
                     "or a scheduler that suspends",
                     rank->pid, rank->host ? rank->host : "its host");
      told += say_dump_left(finding, rank);
      continue;
    }
    if (rank->state == NT_PROCESS_STOPPED)
      nt_rank_set_add(&stopped, (uint32_t)culprit->world);
    if (undumped(inquiry, finding, i)) {
      told += say_dump(inquiry, finding, i);
      continue;
    }
    told++;
    say_process(finding, rank, stands_since(finding, culprit));
  }
  if (nt_rank_set_count(&stopped) && finding->summary) {
    char *before = finding->summary;
    finding->summary = NULL;
    nt_finding_say(finding, "%s %s stopped (SIGSTOP, or a debugger): %s",
                   nt_describe_ranks(who, sizeof who, &stopped),
                   nt_rank_set_count(&stopped) == 1 ? "is" : "are", before);
    free(before);
  }
  nt_rank_set_free(&stopped);
}

/* Where nobody is to blame: a dump of all, and then where each is. */
static void say_all(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_model *model = inquiry->job->model;
  const struct nt_model_rank *first = NULL; /* of those without a dump */
  bool hosts = false, native = false;
  uint32_t told = 0;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const struct nt_model_rank *rank = &model->ranks[r];
    if (!nt_model_lives(rank) || is_dumped(rank, finding->since_ns))
      continue;
    hosts |= first && strcmp(first->host ? first->host : "", rank->host ? rank->host : "") != 0;
    native |= *dump_option(rank) != '\0';
    first = first ? first : rank;
  }
  char *directory = first ? directory_of(first) : NULL;
  if (directory)
    nt_lines_add(&finding->next, "nccltrace dump %s--dir %s on %s, then tracediff again",
                 native ? "--native " : "", directory,
                 hosts         ? "each host"
                 : first->host ? first->host
                               : "its host");
  for (uint32_t r = 0; r < model->rank_count && !directory && told < PROCESSES_MAX; r++)
    if (nt_model_lives(&model->ranks[r]) &&
        (!first || !is_dumped(&model->ranks[r], finding->since_ns))) {
      say_process(finding, &model->ranks[r], finding->since_ns);
      told++;
    }
  for (uint32_t r = 0; r < model->rank_count && !first && told < PROCESSES_MAX; r++)
    told += say_dump_left(finding, &model->ranks[r]);
  if (!first && told)
    nt_lines_add(&finding->next, "where all ranks are: tracediff --full-stacks");
  free(directory);
}

/* It made another call in that place of the sequence, or a later one, so a branch led past the call. Else it may as well be stuck
 * on its way there. */
static bool went_past(const struct nt_inquiry *inquiry, const struct nt_finding *finding,
                      uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  if (finding->fn == NT_FN_cudaGraphLaunch && finding->joint != NT_NONE &&
      nt_uneven_at(&inquiry->waits.replays, finding->joint, &inquiry->divergences[finding->joint]))
    return true; /* the collective behind the launch */
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    if (call->view != NT_NONE && !(call->flags & NT_CALL_VOID) && call->seq >= finding->seq &&
        (nt_fn_is_collective(finding->fn) ? nt_fn_is_collective(call->fn)
                                          : call->fn == finding->fn) &&
        inquiry->job->places[rank][call->view].joint == finding->joint)
      return true;
  }
  return false;
}

/* Where one stands that has not come to the call, as far as that is known: it is the first thing to look at. */
static void say_stand(const struct nt_inquiry *inquiry, struct nt_finding *finding,
                      const struct nt_culprit *culprit) {
  const struct nt_model_dump_thread *now =
      nt_describe_thread(inquiry->job, culprit->rank, culprit->thread);
  const char *was = nt_model_lives(&inquiry->job->model->ranks[culprit->rank]) ? "is" : "was";
  if (now && now->place)
    nt_lines_add(&finding->next, "rank %d %s in %s%s%s: find out what holds it up there",
                 culprit->world, was, now->place, now->doing ? ", " : "",
                 now->doing ? now->doing : "");
  else if (!now && culprit->now &&
           nt_host_wait_in(inquiry->job, culprit->rank, culprit->thread) != NT_NONE)
    nt_lines_add(&finding->next, "rank %d %s %s: find out what holds it up there", culprit->world,
                 was, culprit->now);
}

/* Of a call that is missing. Returns whether some may be stuck on their way to it. */
static bool say_stands(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  uint32_t stuck = 0;
  for (uint32_t i = 0; i < finding->culprit_count; i++) {
    const struct nt_culprit *culprit = &finding->culprits[i];
    if (culprit->rank == NT_NONE || went_past(inquiry, finding, culprit->rank))
      continue;
    if (stuck++ < PROCESSES_MAX &&
        inquiry->job->model->ranks[culprit->rank].state != NT_PROCESS_STOPPED)
      say_stand(inquiry, finding, culprit);
  }
  return stuck != 0;
}

static void say_next(struct nt_finding *finding, bool stuck) {
  static const char *const on_the_way[] = {
      "where a rank stands tells whether it is stuck on the way to this call (a data loader, a "
      "checkpoint, a lock) or was led past it by a branch",
      "if by a branch: all ranks must agree on its condition before they take it"};
  static const char *const root[] = {
      "let all ranks come to the root in one way: it is a rank of this communicator, not of the "
      "world",
      "look for a root that is computed from the rank, the pipeline stage or the node"};
  static const char *const call[] = {
      "find the branch in which these ranks make one call and the others another",
      "a condition that differs between ranks must be agreed upon first"};
  static const char *const graph[] = {
      "find out what picks the graph that is launched (batch size, sequence length, padding): it "
      "must come out alike on all ranks",
      "agree on the size that picks it, or pad to it, before the launch"};
  static const char *const op[] = {
      "let all ranks pass one reduction operator: look for what picks it, as scaling or a metric "
      "of "
      "some ranks only",
      "a condition that differs between ranks must be agreed upon first"};
  static const char *const unreachable[] = {
      "look for a process that ended first: the launcher's output, the kernel's log (OOM), the "
      "scheduler",
      "check the network between the nodes of these ranks: NCCL_DEBUG=INFO tells the interfaces"};
  static const char *const creation[] = {
      "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET: check the interfaces "
      "(NCCL_SOCKET_IFNAME), firewalls between the nodes, and whether the machines are short of "
      "processors",
      "dump the ranks again later: one that still connects gets on"};
  static const char *const too_early[] = {
      "let all ranks synchronise their devices and pass a barrier before one of them ends or "
      "aborts: what others still read from it goes with its process",
      "destroy communicators before the process ends (destroy_process_group)"};
  const char *const *steps = next_steps[finding->class];
  const char *field = finding->field ? finding->field : "";
  uint32_t count = 3;
  if (finding->class == NT_CLASS_MISMATCH) {
    const char *const *by_field = finding->fn == NT_FN_cudaGraphLaunch ? graph
                                  : !strcmp(field, "root")             ? root
                                  : !strcmp(field, "call")             ? call
                                  : !strcmp(field, "op")               ? op
                                                                       : NULL;
    steps = by_field ? by_field : steps;
    count = 2;
  } else if (finding->class == NT_CLASS_ERROR && !nt_rank_set_count(&finding->blame)) {
    steps = unreachable; /* only what a peer made NCCL refuse blames nobody */
    count = 2;
  } else if (finding->was_done) {
    steps = too_early;
    count = 2;
  } else if (finding->class == NT_CLASS_MISSING && stuck) {
    steps = on_the_way;
    count = 2;
  } else if (finding->class == NT_CLASS_STALLED && finding->joint == NT_NONE) {
    steps = creation;
    count = 2;
  }
  for (uint32_t j = 0; j < count && steps[j]; j++)
    nt_lines_add(&finding->next, "%s", steps[j]);
}

void nt_say_next(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const bool stuck = finding->class == NT_CLASS_MISSING && say_stands(inquiry, finding);
  say_processes(inquiry, finding);
  if (nt_class_is_of_all(finding->class))
    say_all(inquiry, finding);
  if (finding->class != NT_CLASS_UNDECIDED && finding->confidence == NT_UNDECIDED &&
      finding->joint != NT_NONE && inquiry->job->joints[finding->joint].absent)
    nt_lines_add(&finding->next, "%s", next_steps[NT_CLASS_UNDECIDED][0]);
  say_next(finding, stuck);
}
