/* SPDX-License-Identifier: Apache-2.0 */
/* What every finding needs in the end: its culprits in detail, and what to do next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/dump_words.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
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

/* Where it is: in a dump, or in a call that has not returned; else where it was called from last. */
static void fill_stack(const struct nt_inquiry *inquiry, struct nt_culprit *culprit,
                       uint32_t last) {
  const struct nt_job *job = inquiry->job;
  const struct nt_model_rank *rank = &job->model->ranks[culprit->rank];
  const uint32_t thread = culprit->thread, wait = nt_host_wait_in(job, culprit->rank, thread);
  const struct nt_model_dump_thread *now = nt_describe_thread(job, culprit->rank, thread);
  const struct nt_model_dump_thread *dumped = nt_describe_dumped(job, culprit->rank, thread);
  culprit->dumped = now != NULL;
  if (now && now->stack.all)
    culprit->stack = &now->stack;
  else
    culprit->stack = nt_model_stack(rank, wait == NT_NONE ? last : wait);
  culprit->of_last = culprit->stack && wait == NT_NONE && last != NT_NONE &&
                     culprit->stack != (now ? &now->stack : NULL) &&
                     !nt_call_is_open(job, culprit->rank, last);
  if (!culprit->stack && dumped && dumped->stack.all)
    culprit->stack = &dumped->stack;
}

/* The rank's last call. One that ends a communicator from no line of the program, as an interpreter does on its way out, says less
 * than the operation in front of it. */
static uint32_t telling_call(const struct nt_job *job, uint32_t rank, uint32_t thread) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  const uint32_t last = nt_last_call_in(job, rank, thread);
  uint32_t found = last;
  if (last == NT_NONE || nt_model_site(model, model->calls[last].at) ||
      !nt_call_ends(&model->calls[last]))
    return last;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    if (call->view != NT_NONE && (!thread || call->thread == thread) &&
        !(call->flags & NT_CALL_VOID) && nt_shape_is_operation(nt_fn_shape(call->fn)) &&
        nt_model_site(model, call->at) && call->enter_ns <= model->calls[last].enter_ns &&
        (found == last || call->enter_ns >= model->calls[found].enter_ns))
      found = i;
  }
  return found;
}

static void fill_culprit(struct nt_inquiry *inquiry, struct nt_culprit *culprit, uint32_t world,
                         uint32_t thread) {
  culprit->thread = thread;
  culprit->world = (int32_t)world;
  culprit->rank = nt_model_find(inquiry->job->model, (int32_t)world);
  if (culprit->rank == NT_NONE)
    return;
  const struct nt_model_rank *rank = &inquiry->job->model->ranks[culprit->rank];
  const struct nt_fate *fate = &inquiry->freeze->fates[culprit->rank];
  uint32_t last = telling_call(inquiry->job, culprit->rank, thread);
  if (last != NT_NONE) {
    const struct nt_model_call *call = &rank->calls[last];
    char text[NT_DESCRIBE];
    bool counted = nt_fn_shape(call->fn) != NT_SHAPE_COMM_INIT;
    if (call->view == NT_NONE)
      nt_launch_text(text, sizeof text, inquiry, culprit->rank, last);
    else
      nt_describe_place(text, sizeof text, inquiry->job, call->fn, counted ? call->seq : 0,
                        inquiry->job->places[culprit->rank][call->view].joint);
    culprit->last = strdup(text);
    const char *site = nt_model_site(rank, call->at);
    culprit->at = site ? strdup(site) : NULL;
    culprit->since_ns =
        call->exit_ns && call->exit_ns <= inquiry->job->cut_ns ? call->exit_ns : call->enter_ns;
  }
  fill_stack(inquiry, culprit, last);
  char now[2 * NT_DESCRIBE];
  if (*nt_describe_now_in(now, sizeof now, inquiry->job, culprit->rank, thread)) {
    char *site = strstr(now, ", last call at "); /* that is `at` */
    if (site)
      *site = '\0';
    culprit->now = strdup(now);
  }
  if (fate->kind != NT_FATE_ALIVE)
    culprit->since_ns = fate->ns;
}

int nt_fill_culprits(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  uint32_t count = nt_rank_set_count(&finding->blame);
  if (count > NT_CULPRITS_MAX)
    count = NT_CULPRITS_MAX;
  if (!count)
    return 0;
  finding->culprits = calloc(count, sizeof *finding->culprits);
  if (!finding->culprits)
    return -NT_ERR_MEMORY;
  for (uint32_t w = nt_rank_set_next(&finding->blame, 0); finding->culprit_count < count;
       w = nt_rank_set_next(&finding->blame, w + 1))
    fill_culprit(inquiry, &finding->culprits[finding->culprit_count++], w,
                 count == 1 ? finding->thread : 0);
  return 0;
}

static bool lives(const struct nt_model_rank *rank) {
  return rank->state == NT_PROCESS_RUNNING || rank->state == NT_PROCESS_STOPPED ||
         rank->state == NT_PROCESS_ENDING;
}

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
  if (lives(rank) || !rank->dump || !rank->dump->thread_count || !rank->source)
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
  return rank && lives(rank) && rank->state != NT_PROCESS_STOPPED &&
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
    if (!lives(rank)) {
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
    if (!lives(rank) || is_dumped(rank, finding->since_ns))
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
    if (lives(&model->ranks[r]) && (!first || !is_dumped(&model->ranks[r], finding->since_ns))) {
      say_process(finding, &model->ranks[r], finding->since_ns);
      told++;
    }
  for (uint32_t r = 0; r < model->rank_count && !first && told < PROCESSES_MAX; r++)
    told += say_dump_left(finding, &model->ranks[r]);
  if (!first && told)
    nt_lines_add(&finding->next, "where all ranks are: tracediff --full-stacks");
  free(directory);
}

static bool is_collective(uint8_t fn) {
  return nt_fn_shape(fn) == NT_SHAPE_COLL || nt_fn_shape(fn) == NT_SHAPE_COLL_P2P;
}

/* It made another call in that place of the sequence, or a later one, so a branch led past the call. Else it may as well be stuck
 * on its way there. */
static bool went_past(const struct nt_inquiry *inquiry, const struct nt_finding *finding,
                      uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    if (call->view != NT_NONE && !(call->flags & NT_CALL_VOID) && call->seq >= finding->seq &&
        (is_collective(finding->fn) ? is_collective(call->fn) : call->fn == finding->fn) &&
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
  const char *was = lives(&inquiry->job->model->ranks[culprit->rank]) ? "is" : "was";
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

/* Whose device nobody could look at, among those that the finding is about. */
static void say_blocked(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_model *model = inquiry->job->model;
  char line[NT_DESCRIBE];
  for (uint32_t r = 0; r < model->rank_count && finding->evidence.count < 32; r++) {
    const struct nt_model_rank *rank = &model->ranks[r];
    bool concerned =
        rank->world >= 0 && (nt_rank_set_has(&finding->blame, (uint32_t)rank->world) ||
                             nt_rank_set_has(&finding->waiting, (uint32_t)rank->world));
    if (concerned && nt_describe_blocked(line, sizeof line, rank))
      nt_lines_add(&finding->evidence, "%s", line);
  }
}

static bool is_of_all(enum nt_class class) {
  return class == NT_CLASS_STALLED || class == NT_CLASS_OUTSIDE;
}

static int fill_stands(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_model *model = inquiry->job->model;
  if (!is_of_all(finding->class) || !model->rank_count)
    return 0;
  finding->stands = calloc(NT_CULPRITS_MAX, sizeof *finding->stands);
  if (!finding->stands)
    return -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < model->rank_count && finding->stand_count < NT_CULPRITS_MAX; r++)
    if (model->ranks[r].world >= 0 && lives(&model->ranks[r]))
      fill_culprit(inquiry, &finding->stands[finding->stand_count++],
                   (uint32_t)model->ranks[r].world, 0);
  return 0;
}

/* Classes that accuse nobody by their meaning are as certain as what they say. */
static bool accuses(enum nt_class class) {
  return class != NT_CLASS_STALLED && class != NT_CLASS_OUTSIDE && class != NT_CLASS_TEARDOWN;
}

/* What is not in a log may have been called: NCCL does not flush its standard output. */
static bool rests_on_end_of_log(const struct nt_model *model, const struct nt_finding *finding) {
  switch (finding->class) {
  case NT_CLASS_MISSING:
  case NT_CLASS_LEFT:
  case NT_CLASS_INIT:
  case NT_CLASS_P2P:
    return model->rank_count && model->ranks[0].recorder == NT_RECORDER_LOG;
  default:
    return false;
  }
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

/* What stands at a culprit need not be evidence as well, unless it says more: of whom a message is, and that its group has not
 * ended. */
static void drop_told_twice(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  char line[3 * NT_DESCRIBE];
  for (uint32_t i = 0; i < finding->culprit_count; i++) {
    const struct nt_culprit *culprit = &finding->culprits[i];
    if (culprit->rank == NT_NONE || culprit->thread || !culprit->last)
      continue;
    const struct nt_model_call *call =
        &inquiry->job->model->ranks[culprit->rank].calls[nt_last_call(inquiry->job, culprit->rank)];
    const enum nt_shape shape = nt_fn_shape(call->fn);
    if (call->pending || shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV)
      continue;
    nt_inquiry_rank(line, sizeof line, inquiry, culprit->rank);
    uint32_t kept = 0;
    for (uint32_t k = 0; k < finding->evidence.count; k++) {
      if (!strcmp(finding->evidence.line[k], line))
        free(finding->evidence.line[k]);
      else
        finding->evidence.line[kept++] = finding->evidence.line[k];
    }
    finding->evidence.count = kept;
  }
}

int nt_complete_findings(struct nt_inquiry *inquiry) {
  int status = 0;
  for (uint32_t i = 0; i < inquiry->verdict->count && !status; i++) {
    struct nt_finding *finding = &inquiry->verdict->findings[i];
    status = nt_fill_culprits(inquiry, finding);
    drop_told_twice(inquiry, finding);
    if (!status)
      status = fill_stands(inquiry, finding);
    if (!status && !finding->past)
      status = nt_say_chain(inquiry, finding);
    nt_say_dumps(inquiry, finding);
    say_blocked(inquiry, finding);
    nt_group_evidence(&finding->evidence);
    const bool stuck = finding->class == NT_CLASS_MISSING && say_stands(inquiry, finding);
    say_processes(inquiry, finding);
    if (is_of_all(finding->class))
      say_all(inquiry, finding);
    if (finding->class != NT_CLASS_UNDECIDED && finding->confidence == NT_UNDECIDED &&
        finding->joint != NT_NONE && inquiry->job->joints[finding->joint].absent)
      nt_lines_add(&finding->next, "%s", next_steps[NT_CLASS_UNDECIDED][0]);
    say_next(finding, stuck);
    if (!nt_rank_set_count(&finding->blame) && finding->confidence == NT_CERTAIN &&
        accuses(finding->class))
      finding->confidence = NT_UNDECIDED;
    if (finding->joint != NT_NONE && inquiry->job->joints[finding->joint].absent &&
        finding->confidence == NT_CERTAIN)
      finding->confidence = NT_LIKELY;
    if (finding->confidence == NT_CERTAIN && rests_on_end_of_log(inquiry->job->model, finding))
      finding->confidence = NT_LIKELY;
  }
  return status;
}
