/* SPDX-License-Identifier: Apache-2.0 */
/* Collects every end of every rank in order of time and asks of each: had this rank been waiting? */
#include "analysis/freeze_parts.h"

#include <stdlib.h>
#include <string.h>

#include "nccl/nccl_types.h"

#define ORDERED_NS INT64_C(50000000)          /* how often processes look at each other */
#define STEP_NS (ORDERED_NS + ORDERED_NS / 2) /* by which two moments may seem apart, or together */
#define EXACT_NS INT64_C(10000000)            /* the same after an exit, whose time is known */
#define TOGETHER_NS INT64_C(1500000000)       /* state in files is up to a second old */

bool nt_call_is_open(const struct nt_job *job, uint32_t rank, uint32_t index) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  const struct nt_model_call *call = &model->calls[index];
  if (call->flags & NT_CALL_ABANDONED)
    return false; /* its thread went on without a return, as after siglongjmp or an exception */
  if (!call->exit_ns && job->cut_ns == INT64_MAX && model->state == NT_PROCESS_EXITED &&
      model->exit_code == 0)
    return false; /* whatever it was in, the process did what it had to do */
  if (!call->exit_ns || call->exit_ns > job->cut_ns)
    return true;
  if (!call->group || call->pending || model->recorder == NT_RECORDER_LOG)
    return false; /* a log does not tell where groups end */
  for (uint32_t i = index + 1; i < model->call_count && model->calls[i].thread == call->thread; i++)
    if (nt_fn_shape(model->calls[i].fn) == NT_SHAPE_GROUP_END)
      return !model->calls[i].exit_ns || model->calls[i].exit_ns > job->cut_ns;
  return false;
}

/* Gone, as far as is known. */
static bool has_ended(const struct nt_search *s, const struct nt_model_rank *rank) {
  return nt_model_is_over(rank) || (s->silence && nt_model_is_silent(s->job->model, rank));
}

/* By a signal, or with its node. */
static bool has_vanished(const struct nt_search *s, const struct nt_model_rank *rank) {
  return rank->state == NT_PROCESS_VANISHED || (has_ended(s, rank) && !nt_model_is_over(rank));
}

static enum nt_freeze_why why_ended(const struct nt_model_rank *rank) {
  return nt_model_left(rank) ? NT_FREEZE_TEARDOWN : NT_FREEZE_DEATH;
}

/* When this rank first heard that a peer is gone; 0 if it did not. */
static int64_t heard_ns(const struct nt_model_rank *rank) {
  int64_t first = 0;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (nt_fn_shape(call->fn) == NT_SHAPE_ASYNC_ERROR && call->count == ncclRemoteError &&
        (!first || call->enter_ns < first))
      first = call->enter_ns;
  }
  return first;
}

/* Had the rank called an operation by `ns` that another never did, or one that is known to be unfinished? */
static bool is_held(struct nt_search *s, uint32_t rank, int64_t ns) {
  struct nt_end event = {ns, rank, NT_FREEZE_TEARDOWN};
  s->wait_ns = 0;
  bool held = nt_freeze_had_waited(s, &event);
  s->wait_ns = NT_WAIT_NS;
  return held;
}

static bool has_aborted(const struct nt_model_rank *rank) {
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (nt_call_aborts(&rank->calls[i]))
      return true;
  return false;
}

/* One without a trace was gone before, a moment ago: the first of those with a trace was not the first of all. */
static bool has_earlier(const struct nt_model *model, int64_t earliest) {
  for (uint32_t i = 0; i < model->gone_count; i++)
    if (model->gone[i] < earliest && model->gone[i] + TOGETHER_NS > earliest)
      return true;
  return false;
}

static int by_moment(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* How the first of all was ahead of those that vanished after it. */
enum lead {
  LEAD_NONE, /* no longer than these took to go one after the other, as processes that are signalled in turn do */
  LEAD_STEPS, /* no longer either, but by far longer than each of these was ahead of the next, or these went faster than in
               * such steps: a launcher that has seen the first one end signals the others at once */
  LEAD_CLEAR,
};

/* Of those that vanished from `from` on. Who aborted before ended by itself. */
static enum lead lead_of(const struct nt_search *s, int64_t earliest, int64_t from) {
  enum { FAR = 3 };
  const struct nt_model *model = s->job->model;
  int64_t *ends = malloc(((size_t)model->rank_count + 1) * sizeof *ends), widest = 0;
  uint32_t count = 0;
  enum lead lead = LEAD_NONE;
  for (uint32_t i = 0; i < model->rank_count && ends; i++) {
    const int64_t end = nt_model_end(&model->ranks[i]);
    if (has_vanished(s, &model->ranks[i]) && end >= from && !has_aborted(&model->ranks[i]))
      ends[count++] = end;
  }
  if (count)
    qsort(ends, count, sizeof *ends, by_moment);
  for (uint32_t i = 1; i < count; i++)
    widest = ends[i] - ends[i - 1] > widest ? ends[i] - ends[i - 1] : widest;
  if (ends && (!count || ends[0] - earliest >= ends[count - 1] - ends[0] + STEP_NS))
    lead = LEAD_CLEAR;
  else if (ends && (ends[0] - earliest >= FAR * widest + STEP_NS ||
                    2 * (ends[count - 1] - ends[0]) + ORDERED_NS <
                        (int64_t)(count - 1) * (ends[0] - earliest)))
    lead = LEAD_STEPS;
  free(ends);
  return lead;
}

/*
 * All are gone within a moment, but the order of deaths is known: a rank was gone for longer than processes
 * need to notice, another that was held by then outlived it, and somebody noticed: it exited with a failure
 * (which says when), a peer saw its lock free, or NCCL told a peer of a remote error. The others were then
 * ended from outside. Without such evidence a mass kill would make culprits of those whose heart beat last, as it would if
 * they are killed in turn, in equal steps.
 */
static void find_first(struct nt_search *s) {
  const struct nt_model *model = s->job->model;
  int64_t last = 0, earliest = INT64_MAX, ordered_ns = ORDERED_NS;
  bool vanished = false, held = false;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    int64_t end = nt_model_end(&model->ranks[i]);
    if (!has_ended(s, &model->ranks[i]))
      return;
    last = end > last ? end : last;
    if (nt_model_is_over(&model->ranks[i]) && why_ended(&model->ranks[i]) == NT_FREEZE_DEATH &&
        end < earliest) {
      earliest = end;
      ordered_ns = model->ranks[i].state == NT_PROCESS_EXITED ? EXACT_NS : ORDERED_NS;
    }
  }
  int64_t heard = INT64_MAX;
  if (earliest == INT64_MAX || has_earlier(model, earliest))
    return;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    int64_t end = nt_model_end(rank);
    if (end < earliest + ordered_ns)
      continue;
    vanished |= has_vanished(s, rank);
    held |= is_held(s, i, end);
    int64_t own = heard_ns(rank);
    if (own >= earliest && own < heard)
      heard = own;
  }
  const enum lead lead = lead_of(s, earliest, earliest + ordered_ns);
  for (uint32_t i = 0; i < model->rank_count && held; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    int64_t end = nt_model_end(rank);
    if (end >= earliest + ordered_ns || end + ordered_ns > last || !nt_model_is_over(rank) ||
        why_ended(rank) != NT_FREEZE_DEATH ||
        (lead == LEAD_NONE && rank->state == NT_PROCESS_VANISHED))
      continue;
    bool exited = rank->state == NT_PROCESS_EXITED && vanished;
    bool noticed = rank->noticed_ns && rank->noticed_ns <= last + ORDERED_NS;
    s->first[i] = (uint8_t)(2 * exited + noticed + (heard != INT64_MAX));
    if (lead == LEAD_STEPS && s->first[i] && !exited)
      s->first[i] = 1; /* likely */
  }
}

static bool is_first(const struct nt_search *s, uint32_t rank) {
  return s->first[rank] != 0;
}

/* When the process vanished, by its trace or, of files alone and of one that lacks its end, by what others noted; 0 if it is not
 * known to have. */
static int64_t vanished_ns(const struct nt_search *s, const struct nt_model_rank *rank) {
  if (has_aborted(rank) || rank->oom != NT_OOM_NONE)
    return 0;
  if (rank->state == NT_PROCESS_VANISHED)
    return nt_model_end(rank);
  return has_vanished(s, rank) || (rank->cut && !nt_model_is_over(rank)) ? rank->gone_ns : 0;
}

/* All vanished one after the other in even steps, three at least, however long that took: when the first of them did. INT64_MAX
 * if not so. What a signal ended and what crashed looks alike, but crashes keep no time. */
static int64_t ended_in_steps(const struct nt_search *s) {
  enum { STEPS = 3 };
  const struct nt_model *model = s->job->model;
  int64_t *ends = malloc(((size_t)model->rank_count + model->gone_count + 1) * sizeof *ends);
  int64_t widest = 0, narrowest = INT64_MAX;
  uint32_t count = 0, steps = 0;
  bool all = ends && model->rank_count;
  /* Of those without a trace whose end nobody noted each may stand in the widest step. */
  const int64_t unnoted = (int64_t)nt_model_absent(model) - model->gone_count;
  int64_t unknown = unnoted > 0 ? unnoted : 0;
  for (uint32_t i = 0; i < model->rank_count && all; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    const int64_t end = vanished_ns(s, rank);
    if (end)
      ends[count++] = end;
    else if (!nt_model_is_over(rank) && !rank->live && !has_aborted(rank) &&
             (rank->cut || has_vanished(s, rank)))
      unknown++;
    else
      all = false;
  }
  for (uint32_t i = 0; i < model->gone_count && all; i++)
    ends[count++] = model->gone[i]; /* those without a trace */
  if (all)
    qsort(ends, count, sizeof *ends, by_moment);
  for (uint32_t i = 1; i < count && all; i++) {
    const int64_t step = ends[i] - ends[i - 1];
    if (step < ORDERED_NS)
      continue; /* several at once */
    steps++;
    widest = step > widest ? step : widest;
    narrowest = step < narrowest ? step : narrowest;
  }
  const bool even =
      all && steps && steps + unknown >= STEPS && widest < 2 * narrowest * (1 + unknown) + STEP_NS;
  const int64_t first = even ? ends[0] : INT64_MAX;
  free(ends);
  return first;
}

/* When nobody is left and the last to go vanished: the moment from which on they count as ended from
 * outside. INT64_MAX if not so. */
static int64_t ended_together(const struct nt_search *s) {
  const struct nt_model *model = s->job->model;
  int64_t last = 0, first = INT64_MAX;
  uint32_t count = 0, over = 0;
  bool ordered = false;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    if (!has_ended(s, rank))
      return INT64_MAX;
    ordered |= is_first(s, i);
    over += has_vanished(s, rank);
  }
  for (uint32_t i = 0; i < model->rank_count; i++)
    if ((ordered || has_vanished(s, &model->ranks[i])) && nt_model_end(&model->ranks[i]) > last)
      last = nt_model_end(&model->ranks[i]);
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    int64_t end = nt_model_end(rank);
    bool counts = has_vanished(s, rank) || (ordered && why_ended(rank) == NT_FREEZE_DEATH);
    if (!counts || is_first(s, i) || end + TOGETHER_NS < last)
      continue;
    count++;
    first = end < first ? end : first;
  }
  bool several = count > 1 || over > 1 || model->rank_count == 1 || ordered;
  return count && several ? first : INT64_MAX;
}

/* It left with 0, aborted nothing, and nothing of what it called is known to be unfinished: whatever it had waited for
 * came in the end. */
static bool ended_well(const struct nt_search *s, uint32_t index) {
  const struct nt_model_rank *rank = &s->job->model->ranks[index];
  if (rank->state != NT_PROCESS_EXITED || rank->exit_code ||
      s->ranks[index].outstanding_ns != INT64_MAX || s->message_ns[index] != INT64_MAX)
    return false;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (nt_call_aborts(call) || (!call->exit_ns && !(call->flags & NT_CALL_ABANDONED)))
      return false;
  }
  return true;
}

/* All ended within a moment, though some had waited long before the first of them did: then that one was
 * ended from outside as well, whatever its exit says. */
static int64_t ended_waiting(const struct nt_search *s) {
  const struct nt_model *model = s->job->model;
  int64_t first = INT64_MAX, last = 0;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    int64_t end = nt_model_end(&model->ranks[i]);
    if (!nt_model_is_over(&model->ranks[i]) || is_first(s, i))
      return INT64_MAX;
    first = end < first ? end : first;
    last = end > last ? end : last;
  }
  if (last - first > TOGETHER_NS)
    return INT64_MAX;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    struct nt_end event = {first, i, NT_FREEZE_TEARDOWN};
    if (!ended_well(s, i) && nt_freeze_had_waited(s, &event))
      return first;
  }
  return INT64_MAX;
}

static int by_time(const void *a, const void *b) {
  const struct nt_end *x = a, *y = b;
  if (x->ns != y->ns)
    return x->ns < y->ns ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static uint32_t list_events(const struct nt_job *job, struct nt_end *events) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < job->model->rank_count; i++)
    if (nt_model_is_over(&job->model->ranks[i]))
      events[count++] =
          (struct nt_end){nt_model_end(&job->model->ranks[i]), i, why_ended(&job->model->ranks[i])};
  for (uint32_t i = 0; i < job->joint_count; i++)
    for (uint32_t j = 0; j < job->joints[i].member_count; j++) {
      const struct nt_member *member = &job->joints[i].members[j];
      if (!member->ended_ns)
        continue;
      bool abort = nt_call_aborts(&nt_member_rank(job, member)->calls[member->ended_call]);
      events[count++] = (struct nt_end){member->ended_ns, member->rank,
                                        abort ? NT_FREEZE_ABORT : NT_FREEZE_TEARDOWN};
    }
  qsort(events, count, sizeof *events, by_time);
  return count;
}

static void decide_fates(const struct nt_search *s, struct nt_freeze *out) {
  const struct nt_model *model = s->job->model;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    int64_t end = nt_model_end(rank);
    out->fates[i].likely = s->late[i];
    const struct nt_end event = {end, i, NT_FREEZE_DEATH};
    out->fates[i].echo = nt_model_is_over(rank) && nt_freeze_is_echo(s, &event);
    if (!nt_model_is_over(rank) || end >= out->ns)
      continue;
    out->fates[i].ns = end;
    out->fates[i].likely |= s->first[i] == 1;
    out->fates[i].lives = !nt_model_is_gone(rank);
    out->fates[i].kind = why_ended(rank) == NT_FREEZE_DEATH ? NT_FATE_DEAD : NT_FATE_LEFT;
  }
}

static void find_messages(const struct nt_job *job, const struct nt_p2p *p2p, int64_t *message_ns) {
  for (uint32_t i = 0; i < job->model->rank_count; i++)
    message_ns[i] = INT64_MAX;
  for (uint32_t i = 0; i < p2p->unmatched_count; i++) {
    const struct nt_p2p_end *end = &p2p->ends[p2p->unmatched[i]];
    int64_t ns = nt_p2p_call(job, end)->enter_ns;
    if (!end->is_send && ns < message_ns[end->rank])
      message_ns[end->rank] = ns;
  }
}

/* When all are ended from outside, one after the other, what the later ones still called was called: the last operation
 * that a rank entered then. */
static int64_t last_operation(const struct nt_search *s, int64_t from) {
  const struct nt_model *model = s->job->model;
  int64_t last = from;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const struct nt_model_rank *rank = &model->ranks[r];
    for (uint32_t i = rank->call_count; i-- > 0;) {
      const struct nt_model_call *call = &rank->calls[i];
      if (call->view != NT_NONE && call->enter_ns > last && call->enter_ns < from + TOGETHER_NS &&
          nt_freeze_waits_for_others(nt_fn_shape(call->fn)) && !(call->flags & NT_CALL_VOID))
        last = call->enter_ns;
    }
  }
  return last;
}

/* Of some it is known that they are gone, and of nobody that he lives. */
static bool is_silence(const struct nt_model *model) {
  bool gone = false;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    gone |= nt_model_is_gone(&model->ranks[i]);
    if (model->ranks[i].live)
      return false;
  }
  return gone;
}

int nt_freeze_find(const struct nt_job *job, const struct nt_p2p *p2p, const uint32_t *divergences,
                   struct nt_freeze *out) {
  struct nt_search s = {.job = job,
                        .divergences = divergences,
                        .p2p = p2p,
                        .silence = is_silence(job->model),
                        .wait_ns = NT_WAIT_NS};
  size_t members = 0;
  for (uint32_t i = 0; i < job->joint_count; i++)
    members += job->joints[i].member_count;
  struct nt_end *events = calloc(job->model->rank_count + members + 1, sizeof *events);
  *out = (struct nt_freeze){.ns = INT64_MAX, .rank = NT_NONE};
  out->fates = calloc(job->model->rank_count + 1, sizeof *out->fates);
  s.facts = calloc(job->joint_count + 1, sizeof *s.facts);
  s.message_ns = calloc(job->model->rank_count + 1, sizeof *s.message_ns);
  s.first = calloc(job->model->rank_count + 1, sizeof *s.first);
  s.ranks = calloc(job->model->rank_count + 1, sizeof *s.ranks);
  s.late = calloc(job->model->rank_count + 1, sizeof *s.late);
  int status = events && out->fates && s.facts && s.ranks && s.message_ns && s.first && s.late
                   ? 0
                   : -NT_ERR_MEMORY;
  if (status)
    goto out;
  status = nt_freeze_facts(&s);
  if (status)
    goto out;
  find_messages(job, p2p, s.message_ns);
  find_first(&s);
  int64_t together = ended_together(&s), waiting = ended_waiting(&s), steps = ended_in_steps(&s);
  together = waiting < together ? waiting : together;
  together = steps < together ? steps : together;
  uint32_t count = list_events(job, events);
  for (uint32_t i = 0; i < count && out->why == NT_FREEZE_NEVER && !status; i++) {
    bool given_up = false, held = events[i].ns >= together || nt_freeze_had_waited(&s, &events[i]);
    if (held && events[i].ns < together) {
      bool late;
      status = nt_freeze_was_late(&s, &events[i], &late);
      s.late[events[i].rank] |= late;
      held = !late;
    }
    if (!held) {
      given_up = events[i].why == NT_FREEZE_DEATH &&
                 nt_freeze_was_awaited_long(&s, events[i].rank, events[i].ns);
      if (!given_up)
        continue;
    }
    out->why = events[i].ns >= together ? NT_FREEZE_TOGETHER
               : given_up               ? NT_FREEZE_GIVEN_UP
                                        : events[i].why;
    out->ns = events[i].ns;
    out->rank = events[i].rank;
  }
  out->cut_ns = out->why == NT_FREEZE_TOGETHER ? last_operation(&s, out->ns - 1) : out->ns - 1;
  decide_fates(&s, out);
out:
  for (uint32_t i = 0; s.ranks && i < job->model->rank_count; i++) {
    free(s.ranks[i].calls);
    free(s.ranks[i].views);
  }
  free(events);
  free(s.facts);
  free(s.ranks);
  free(s.message_ns);
  free(s.first);
  free(s.late);
  return status;
}

void nt_freeze_free(struct nt_freeze *freeze) {
  free(freeze->fates);
  memset(freeze, 0, sizeof *freeze);
}
