/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warnings: ranks that the others of a communicator wait for again and again.
 *
 * Late in one communicator because it waited in another is no fault: what a rank itself loses elsewhere, in the same
 * time, is held against what the others lose by it. Only who is late without having waited is named.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/each.h"
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/lateness.h"
#include "cli/call_text.h"
#include "cli/rank_name.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

#define LEAST_SHARE 0.10 /* of their time that the others lose: less is not worth a warning */
#define OWN_SHARE 0.90   /* of what is waited for at all, for the same ranks */
#define SPREAD 2         /* so many times the spread of those in time must the gap be */
#define SAMPLED_WEIGHT 0.8
enum { WARNINGS_MAX = 8, LINES_MAX = 12 };

struct late {
  uint32_t joint;
  const struct nt_lateness *lateness;
  struct nt_rank_set culprits; /* world ranks */
  uint32_t *members, count;    /* the same, indices */
  double share;                /* lost by the others, the worst of them */
  double weight;               /* that, times those who lose it */
};

struct slow {
  struct nt_inquiry *inquiry;
  struct nt_lateness *by_clock, *by_duration; /* by joint */
  struct late *list;
  uint32_t count;
};

static double overlap(const struct nt_late_member *x, const struct nt_late_member *y) {
  int64_t from = x->from_ns > y->from_ns ? x->from_ns : y->from_ns;
  int64_t to = x->to_ns < y->to_ns ? x->to_ns : y->to_ns;
  return to > from ? (double)(to - from) / (double)(x->to_ns - x->from_ns) : 0;
}

/* What a rank waits for that is no round: messages, and operations with a root. All that it was in them counts. */
static double other_share(const struct slow *s, const struct nt_late_member *in, uint32_t r) {
  const struct nt_model_rank *rank = &s->inquiry->job->model->ranks[r];
  int64_t waited = 0, covered = 0;
  for (uint32_t i = 0; i < rank->seen_count; i++) {
    const struct nt_model_seen *seen = &rank->seen[i];
    const struct nt_model_call *call = &rank->calls[seen->call];
    uint32_t us = seen->waited_us && (!seen->finished_us || seen->waited_us < seen->finished_us)
                      ? seen->waited_us
                      : seen->finished_us;
    unsigned fn = nt_fn_canonical(call->fn);
    if (call->enter_ns < in->from_ns || call->enter_ns > in->to_ns || !us ||
        fn == NT_FN_AllReduce || fn == NT_FN_AllGather || fn == NT_FN_ReduceScatter ||
        fn == NT_FN_AlltoAll)
      continue;
    int64_t from = call->enter_ns + INT64_C(1000) * seen->unreached_us;
    int64_t to = call->enter_ns + INT64_C(1000) * us;
    from = from > covered ? from : covered;
    waited += to > from ? to - from : 0;
    covered = to > covered ? to : covered;
  }
  return (double)waited / (double)(in->to_ns - in->from_ns);
}

/* What a member waits for others in the rounds of a communicator, as far as they lie in the time of `in`. */
static double lost_share(const struct nt_lateness *lateness, uint32_t m,
                         const struct nt_late_member *in) {
  if (!lateness->measured)
    return 0;
  return nt_lateness_share(lateness, lateness->member[m].lost_ns) *
         overlap(in, &lateness->member[m]);
}

/* Does the rank itself wait elsewhere for as much as half of what it makes the others wait? */
static bool is_excused(const struct slow *s, const struct late *late, uint32_t m, double share) {
  const struct nt_job *job = s->inquiry->job;
  const uint32_t rank = job->joints[late->joint].members[m].rank;
  const struct nt_late_member *in = &late->lateness->member[m];
  if (in->to_ns <= in->from_ns)
    return true;
  double lost = other_share(s, in, rank);
  for (uint32_t v = 0; v < job->model->ranks[rank].view_count; v++) {
    struct nt_place place = job->places[rank][v];
    if (place.joint == NT_NONE || place.joint == late->joint)
      continue;
    double by_clock = lost_share(&s->by_clock[place.joint], place.member, in);
    double by_duration = lost_share(&s->by_duration[place.joint], place.member, in);
    lost += by_clock > by_duration ? by_clock : by_duration;
  }
  return 2 * lost >= share;
}

/* Late again and again, to the end, and the cause of nearly all waiting. */
static bool is_persistent(const struct nt_lateness *lateness, const struct nt_late_member *member,
                          uint32_t members, uint32_t called) {
  const uint32_t wanted = members == 2 ? NT_LATE_ROUNDS_OF_TWO : NT_LATE_ROUNDS;
  return member->rounds >= wanted &&
         (double)member->late_ns >= OWN_SHARE * (double)lateness->late_ns &&
         called - member->last <= lateness->positions / 4;
}

static int judge_joint(struct slow *s, uint32_t index, const struct nt_lateness *lateness) {
  const struct nt_job *job = s->inquiry->job;
  const struct nt_joint *joint = &job->joints[index];
  struct late late = {.joint = index, .lateness = lateness};
  if (!lateness->measured || lateness->gap_ns < SPREAD * lateness->spread_ns)
    return 0;
  late.members = malloc((joint->member_count + 1u) * sizeof *late.members);
  int status = late.members ? 0 : -NT_ERR_MEMORY;
  for (uint32_t m = 0; m < joint->member_count && !status; m++) {
    const struct nt_late_member *member = &lateness->member[m];
    double share = nt_lateness_share(lateness, member->late_ns);
    if (share < LEAST_SHARE ||
        !is_persistent(lateness, member, joint->member_count, joint->members[m].called) ||
        is_excused(s, &late, m, share))
      continue;
    late.members[late.count++] = m;
    late.share = share > late.share ? share : late.share;
    status = nt_finding_add(job, &late.culprits, joint->members[m].rank);
  }
  if (status || !late.count) {
    free(late.members);
    nt_rank_set_free(&late.culprits);
    return status;
  }
  late.weight = late.share * (joint->member_count - late.count);
  if (lateness->sampled) /* of two that say about the same the one with more rounds speaks */
    late.weight *= SAMPLED_WEIGHT;
  s->list[s->count++] = late;
  return 0;
}

static int by_weight(const void *a, const void *b) {
  const struct late *x = a, *y = b;
  if (x->weight < y->weight || x->weight > y->weight)
    return x->weight > y->weight ? -1 : 1;
  if (x->joint != y->joint)
    return x->joint < y->joint ? -1 : 1;
  return x->lateness->sampled - y->lateness->sampled;
}

/* "97 of the last 100 AllReduce on A" */
static void say_rounds(char *out, size_t size, const struct slow *s, const struct late *late) {
  const struct nt_lateness *lateness = late->lateness;
  const struct nt_late_member *member = &lateness->member[late->members[0]];
  char name[NT_DESCRIBE / 2], function[64] = "operations";
  nt_describe_joint(name, sizeof name, s->inquiry->job, late->joint);
  if (lateness->fn)
    nt_call_function(function, sizeof function, lateness->fn);
  snprintf(out, size, "%u of the last %u %s on %s%s", member->rounds, lateness->rounds, function,
           name, lateness->sampled ? " that were timed" : "");
}

/* Where the rank loses the time that the others wait for: host code in front of one of its operations. */
struct lost {
  uint32_t call; /* of the rank, NT_NONE if it is not known */
  int64_t ns,
      else_ns; /* there and now, and what another member of that communicator spends there */
};

/* From the thread's record before this one to this one. */
static int64_t host_gap(const struct nt_model_rank *rank, uint32_t index) {
  const struct nt_model_call *call = &rank->calls[index];
  if (!index || rank->calls[index - 1].thread != call->thread || !rank->calls[index - 1].exit_ns ||
      rank->calls[index - 1].exit_ns > call->enter_ns)
    return -1;
  return call->enter_ns - rank->calls[index - 1].exit_ns;
}

/* The least that one of the first members that are not to blame spends in front of the same operation; -1: not known. */
static int64_t others_gap(const struct nt_job *job, const struct late *late, uint32_t joint,
                          uint32_t position) {
  enum { LOOKED_AT = 16 };
  int64_t least = -1;
  for (uint32_t m = 0, looked = 0; m < job->joints[joint].member_count && looked < LOOKED_AT; m++) {
    const struct nt_member *member = &job->joints[joint].members[m];
    const struct nt_model_rank *rank = nt_member_rank(job, member);
    const struct nt_model_call *call = nt_member_call(job, member, position);
    if (!call || (rank->world >= 0 && nt_rank_set_has(&late->culprits, (uint32_t)rank->world)))
      continue;
    const int64_t gap = host_gap(rank, (uint32_t)(call - rank->calls));
    looked++;
    if (gap >= 0 && (least < 0 || gap < least))
      least = gap;
  }
  return least;
}

/* In the last turns up to where it was late last: of its operations, be it on another communicator, the one in front of
 * which it spends the most more than another member. */
static struct lost find_lost(const struct nt_job *job, const struct late *late, uint32_t m) {
  enum { TURNS = 8, PLACES = 64 };
  const struct nt_member *member = &job->joints[late->joint].members[m];
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  const uint32_t last = late->lateness->member[m].last;
  const uint32_t from = last > member->first + TURNS ? last - TURNS : member->first;
  struct {
    struct lost lost;
    int64_t sum_ns;
  } places[PLACES];
  struct lost best = {.call = NT_NONE};
  uint32_t count = 0, begin = member->call[from - member->first],
           end = member->call[last - member->first];
  int64_t most = 0;
  for (uint32_t i = begin; begin != NT_NONE && end != NT_NONE && i <= end; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    const int64_t gap = host_gap(rank, i);
    if (gap <= 0 || call->view == NT_NONE || !nt_fn_is_collective(call->fn))
      continue;
    const uint32_t joint = job->places[member->rank][call->view].joint;
    const int64_t others = joint == NT_NONE ? -1 : others_gap(job, late, joint, call->seq);
    uint32_t k = 0;
    while (k < count && (rank->calls[places[k].lost.call].view != call->view ||
                         rank->calls[places[k].lost.call].at != call->at ||
                         rank->calls[places[k].lost.call].fn != call->fn))
      k++;
    if (others < 0 || k == PLACES)
      continue;
    places[k].sum_ns = (k < count ? places[k].sum_ns : 0) + gap - others;
    places[k].lost = (struct lost){i, gap, others};
    count += k == count;
  }
  for (uint32_t k = 0; k < count; k++)
    if (places[k].sum_ns > most) {
      most = places[k].sum_ns;
      best = places[k].lost;
    }
  return best;
}

/* "; it loses the time in front of AllReduce #40 on B at train.py:41 step", where the finding names another place. */
static char *lost_text(char *out, size_t size, const struct slow *s, const struct late *late) {
  const struct nt_job *job = s->inquiry->job;
  const struct nt_member *member = &job->joints[late->joint].members[late->members[0]];
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  char place[NT_DESCRIBE], ns[NT_DURATION_TEXT];
  out[0] = '\0';
  if (late->count != 1 || late->lateness->member[late->members[0]].device)
    return out;
  const struct lost lost = find_lost(job, late, late->members[0]);
  if (lost.call == NT_NONE)
    return out;
  const struct nt_model_call *call = &rank->calls[lost.call];
  const char *site = nt_model_site(rank, call->at);
  nt_describe_place(place, sizeof place, job, call->fn, call->seq,
                    job->places[member->rank][call->view].joint);
  snprintf(out, size, "; its host spends %s in front of %s%s%s", nt_duration_text(ns, lost.ns),
           place, site ? " at " : "", site ? site : "");
  return out;
}

static void say_late(const struct slow *s, struct nt_finding *finding, const struct late *late) {
  const struct nt_job *job = s->inquiry->job;
  const struct nt_lateness *lateness = late->lateness;
  char who[NT_RANK_NAME + NT_DESCRIBE], rounds[NT_DESCRIBE], gap[NT_DURATION_TEXT],
      error[NT_DURATION_TEXT + 24] = "", ns[NT_DURATION_TEXT], lost[2 * NT_DESCRIBE];
  if (late->count == 1)
    nt_describe_rank(who, sizeof who,
                     nt_member_rank(job, &job->joints[late->joint].members[late->members[0]]));
  else
    nt_describe_ranks(who, sizeof who, &late->culprits);
  say_rounds(rounds, sizeof rounds, s, late);
  if (lateness->error_ns)
    snprintf(error, sizeof error, " (clock error at most %s)",
             nt_duration_text(ns, lateness->error_ns));
  nt_finding_say(finding,
                 "%s %s last in %s, %s after the others%s: these lose %s%.0f %% of their "
                 "time waiting%s",
                 who, late->count == 1 ? "comes" : "come", rounds,
                 nt_duration_text(gap, lateness->gap_ns), error, lateness->sampled ? "about " : "",
                 100 * late->share, lost_text(lost, sizeof lost, s, late));
}

/* What the rank does between its call before this one and this one, where it was late last. */
static void say_between(const struct slow *s, struct nt_finding *finding, const struct late *late,
                        uint32_t m) {
  const struct nt_job *job = s->inquiry->job;
  const struct nt_member *member = &job->joints[late->joint].members[m];
  const struct nt_late_member *lateness = &late->lateness->member[m];
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  struct lost lost = {.call = NT_NONE};
  if (!lateness->device)
    lost = find_lost(job, late, m);
  const uint32_t index =
      lost.call != NT_NONE ? lost.call : member->call[lateness->last - member->first];
  const struct nt_model_call *call = &rank->calls[index];
  const char *site = nt_model_site(rank, call->at);
  char what[NT_DESCRIBE], before[2 * NT_DESCRIBE] = "", ns[NT_DURATION_TEXT],
                                     others[NT_DURATION_TEXT + 32] = "";
  nt_describe_place(what, sizeof what, job, call->fn, call->seq,
                    job->places[member->rank][call->view].joint);
  if (lateness->device) {
    nt_lines_add(&finding->evidence,
                 "rank %d: its host calls in time (%s%s%s), its device comes to it late: earlier "
                 "work of the stream takes long there",
                 rank->world, what, site ? " at " : "", site ? site : "");
    return;
  }
  if (!index || rank->calls[index - 1].thread != call->thread || !rank->calls[index - 1].exit_ns)
    return;
  const struct nt_model_call *last = &rank->calls[index - 1];
  const char *from = nt_model_site(rank, last->at);
  nt_describe_call(before, sizeof before, job, member->rank, index - 1);
  if (lost.call != NT_NONE)
    snprintf(others, sizeof others, "; another rank spends %s there",
             nt_duration_text(ns, lost.else_ns));
  nt_lines_add(&finding->evidence, "rank %d: its host spends %s between %s%s%s and %s%s%s%s",
               rank->world, nt_duration_text(ns, call->enter_ns - last->exit_ns), before,
               from ? " at " : "", from ? from : "", what, site ? " at " : "", site ? site : "",
               others);
}

static void say_evidence(const struct slow *s, struct nt_finding *finding,
                         const struct late *late) {
  const struct nt_job *job = s->inquiry->job;
  const struct nt_joint *joint = &job->joints[late->joint];
  const struct nt_lateness *lateness = late->lateness;
  char ns[NT_DURATION_TEXT], gap[NT_DURATION_TEXT], place[NT_DESCRIBE];
  for (uint32_t i = 0; i < late->count && finding->evidence.count < LINES_MAX; i++)
    say_between(s, finding, late, late->members[i]);
  nt_lines_add(&finding->evidence,
               "somebody is waited for in %u of %u, %s at the median; the others come within %s of "
               "each other",
               lateness->waited, lateness->rounds, nt_duration_text(gap, lateness->gap_ns),
               nt_duration_text(ns, lateness->spread_ns));
  if (lateness->sampled)
    nt_lines_add(&finding->evidence,
                 "measured by how long each device was in it, one launch in 64; no clock is needed "
                 "for that");
  uint32_t first = lateness->member[late->members[0]].first;
  const struct nt_model_call *call = nt_member_call(job, &joint->members[late->members[0]], first);
  finding->since_ns = call->enter_ns;
  finding->fn = call->fn;
  char time[NT_TIME_TEXT];
  nt_lines_add(&finding->evidence, "for the first time in what was looked at in %s, %s",
               nt_describe_place(place, sizeof place, job, call->fn, first, late->joint),
               nt_time_short(time, call->enter_ns));
}

static void say_next(const struct slow *s, struct nt_finding *finding, const struct late *late) {
  const struct nt_job *job = s->inquiry->job;
  const struct nt_joint *joint = &job->joints[late->joint];
  const struct nt_model_rank *rank = nt_member_rank(job, &joint->members[late->members[0]]);
  if (rank->state == NT_PROCESS_RUNNING)
    nt_lines_add(&finding->next,
                 "nccltrace dump %u on %s a few times: what it does while the others wait",
                 rank->pid, rank->host ? rank->host : "its host");
  if (late->lateness->member[late->members[0]].device)
    nt_lines_add(&finding->next, "compare its GPU with the others': clocks, temperature, power, "
                                 "other processes (nvidia-smi -q -d PERFORMANCE,CLOCK)");
  else
    nt_lines_add(&finding->next,
                 "compare what it does there with what the others do: data loading, logging, "
                 "checkpoints, uneven work, a host that is busy with something else");
}

static bool has_all(const struct nt_rank_set *set, const struct nt_rank_set *of) {
  uint32_t w = nt_rank_set_next(of, 0);
  while (w < NT_RANK_MAX && nt_rank_set_has(set, w))
    w = nt_rank_set_next(of, w + 1);
  return w >= NT_RANK_MAX;
}

/* The only host of these ranks, if the job has others; else NT_NONE. */
static uint32_t host_of(const struct nt_inquiry *inquiry, const struct nt_rank_set *ranks) {
  uint32_t host = NT_NONE;
  for (uint32_t w = nt_rank_set_next(ranks, 0); w < NT_RANK_MAX && inquiry->clocks.count > 1;
       w = nt_rank_set_next(ranks, w + 1)) {
    const uint32_t rank = nt_model_find(inquiry->job->model, (int32_t)w);
    const uint32_t here = rank == NT_NONE ? NT_NONE : inquiry->clocks.host[rank];
    if (here == NT_NONE || (host != NT_NONE && host != here))
      return NT_NONE;
    host = here;
  }
  return host;
}

/* Culprits that have been named already, by a communicator in which more is lost, or that share the host of those
 * named: a line there. */
static bool add_to_warning(const struct slow *s, const struct late *late, uint32_t from,
                           int *status) {
  char rounds[NT_DESCRIBE], gap[NT_DURATION_TEXT], who[NT_DESCRIBE];
  struct nt_verdict *verdict = s->inquiry->verdict;
  for (uint32_t i = from; i < verdict->warning_count; i++) {
    struct nt_finding *warning = &verdict->warnings[i];
    const bool same = has_all(&warning->blame, &late->culprits);
    const uint32_t host = host_of(s->inquiry, &late->culprits);
    if (!same && (host == NT_NONE || host != host_of(s->inquiry, &warning->blame)))
      continue;
    say_rounds(rounds, sizeof rounds, s, late);
    nt_duration_text(gap, late->lateness->gap_ns);
    nt_describe_ranks(who, sizeof who, &late->culprits);
    if (warning->evidence.count < LINES_MAX)
      nt_lines_add(&warning->evidence, "likewise %s%sin %s, %s late", same ? "" : who,
                   same ? "" : ", on the same host, ", rounds, gap);
    for (uint32_t m = 0; m < late->count && !*status; m++)
      *status = nt_finding_add(s->inquiry->job, &warning->blame,
                               s->inquiry->job->joints[late->joint].members[late->members[m]].rank);
    return true;
  }
  return false;
}

static int tell(struct slow *s) {
  struct nt_inquiry *inquiry = s->inquiry;
  const uint32_t from = inquiry->verdict->warning_count;
  int status = 0;
  if (s->count)
    qsort(s->list, s->count, sizeof *s->list, by_weight);
  for (uint32_t i = 0; i < s->count && !status; i++) {
    struct late *late = &s->list[i];
    if (add_to_warning(s, late, from, &status) ||
        inquiry->verdict->warning_count - from >= WARNINGS_MAX)
      continue;
    struct nt_finding *finding = nt_inquiry_warn(inquiry, NT_CLASS_SLOW, late->joint);
    if (!finding)
      return -NT_ERR_MEMORY;
    finding->confidence = NT_LIKELY;
    for (uint32_t m = 0; m < late->count && !status; m++)
      status = nt_finding_add(inquiry->job, &finding->blame,
                              inquiry->job->joints[late->joint].members[late->members[m]].rank);
    say_late(s, finding, late);
    say_evidence(s, finding, late);
    say_next(s, finding, late);
  }
  for (uint32_t i = from; i < inquiry->verdict->warning_count && !status; i++)
    status = nt_fill_culprits(inquiry, &inquiry->verdict->warnings[i]);
  return status;
}

static int measure(void *ctx, uint32_t index) {
  struct slow *s = ctx;
  const struct nt_inquiry *inquiry = s->inquiry;
  int status =
      nt_lateness_measure(inquiry->job, &inquiry->clocks, index, false, &s->by_clock[index]);
  if (!status)
    status =
        nt_lateness_measure(inquiry->job, &inquiry->clocks, index, true, &s->by_duration[index]);
  return status;
}

int nt_judge_slow(struct nt_inquiry *inquiry) {
  const uint32_t joints = inquiry->job->joint_count;
  struct slow s = {.inquiry = inquiry};
  s.by_clock = calloc(joints + 1u, sizeof *s.by_clock);
  s.by_duration = calloc(joints + 1u, sizeof *s.by_duration);
  s.list = calloc(2 * joints + 1u, sizeof *s.list);
  int status = s.by_clock && s.by_duration && s.list ? 0 : -NT_ERR_MEMORY;
  if (!status)
    status = nt_each(joints, measure, &s);
  for (uint32_t i = 0; i < joints && !status; i++)
    status = judge_joint(&s, i, &s.by_clock[i]);
  for (uint32_t i = 0; i < joints && !status; i++)
    status = judge_joint(&s, i, &s.by_duration[i]);
  if (!status)
    status = tell(&s);
  for (uint32_t i = 0; i < joints && s.by_clock && s.by_duration; i++) {
    nt_lateness_free(&s.by_clock[i]);
    nt_lateness_free(&s.by_duration[i]);
  }
  for (uint32_t i = 0; i < s.count; i++) {
    free(s.list[i].members);
    nt_rank_set_free(&s.list[i].culprits);
  }
  free(s.by_clock);
  free(s.by_duration);
  free(s.list);
  return status;
}
