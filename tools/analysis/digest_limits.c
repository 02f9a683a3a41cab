/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What digests leave open. They are cut where there is no more room, and what was left out may be just what clears a
 * rank: a digest that is too short decides nothing, and where something is undecided it is said how far back they reach.
 */
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "nccl/nccl_api.h"

/* A file may lack so much of a process that goes on. */
#define UNHEARD_NS INT64_C(5000000000)

/* Calls of a process, calls of each thread, and calls on a communicator: in digests of 32 calls, and of 17 on the communicator of
 * a cycle, innocents were seen to be blamed for calls that were left out. */
enum { ENOUGH = 256, ENOUGH_EACH = 64, ENOUGH_TURNS = 64 };

/* The last line to the front: nothing else that can be done tells more. */
static void put_first(struct nt_lines *lines) {
  for (uint32_t i = lines->count; i-- > 1;) {
    char *line = lines->line[i];
    lines->line[i] = lines->line[i - 1];
    lines->line[i - 1] = line;
  }
}

/* How far back they reach; false if none was cut. */
static bool say_members(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_job *job = inquiry->job;
  const struct nt_joint *joint = &job->joints[finding->joint];
  struct nt_rank_set ranks = {0};
  uint32_t low = UINT32_MAX, high = 0;
  char who[NT_DESCRIBE], label[NT_DESCRIBE];
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (!nt_member_rank(job, member)->left_out || member->first <= 1)
      continue;
    low = member->first < low ? member->first : low;
    high = member->first > high ? member->first : high;
    (void)nt_finding_add(job, &ranks, member->rank);
  }
  const uint64_t count = nt_rank_set_count(&ranks);
  if (count) {
    nt_describe_ranks(who, sizeof who, &ranks);
    nt_describe_joint(label, sizeof label, job, finding->joint);
    if (low == high)
      nt_lines_add(&finding->evidence, "the %s of %s %s back to #%u on %s",
                   count == 1 ? "digest" : "digests", who, count == 1 ? "reaches" : "reach", low,
                   label);
    else
      nt_lines_add(&finding->evidence, "the digests of %s reach back to #%u … #%u on %s", who, low,
                   high, label);
    nt_lines_add(&finding->next, "collect the %s of %s: what is needed may be older than %s",
                 count == 1 ? "trace itself" : "traces themselves", who,
                 count == 1 ? "its digest" : "their digests");
    put_first(&finding->next);
  }
  nt_rank_set_free(&ranks);
  return count != 0;
}

enum shortage { NOTHING, CALLS, TURNS, GRAPHS, SHORTAGES };

/* Nor is what was read of a trace, where memory is meant for no more, another thing than a digest. */
static bool is_short(const struct nt_model *model, const struct nt_model_rank *rank) {
  return rank->left_out || (model->bounded && rank->unread);
}

/* Why what a digest shows of the rank is no ground for a verdict. */
static enum shortage shortage_of(const struct nt_model *model, const struct nt_model_rank *rank) {
  uint32_t threads = 0, launched = 0;
  bool captured = false;
  if (!is_short(model, rank))
    return NOTHING;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    threads += !i || call->thread != rank->calls[i - 1].thread;
    captured |= (call->flags & NT_CALL_CAPTURED) != 0;
    launched += nt_fn_shape(call->fn) == NT_SHAPE_GRAPH_LAUNCH;
  }
  if (launched && !captured)
    return GRAPHS;
  return rank->call_count < ENOUGH || rank->call_count < ENOUGH_EACH * threads ? CALLS : NOTHING;
}

/* That ranks wait crosswise is one reading; that one of them left out a call is another, which only earlier turns tell. */
static bool lacks_turns(const struct nt_inquiry *inquiry, const struct nt_finding *finding,
                        uint32_t r) {
  const struct nt_model *model = inquiry->job->model;
  if (finding->joint == NT_NONE || !is_short(model, &model->ranks[r]) ||
      (finding->class != NT_CLASS_CYCLE && finding->class != NT_CLASS_ORDER))
    return false;
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (joint->members[i].rank == r && joint->members[i].first > 1 &&
        joint->members[i].called + 1 - joint->members[i].first < ENOUGH_TURNS)
      return true;
  return false;
}

static bool accuses(const struct nt_inquiry *inquiry, const struct nt_finding *finding,
                    uint32_t r) {
  const int32_t world = inquiry->job->model->ranks[r].world;
  return world >= 0 && nt_rank_set_has(&finding->blame, (uint32_t)world);
}

/* It is accused, waits, or takes part in what is stuck. */
static bool is_concerned(const struct nt_inquiry *inquiry, const struct nt_finding *finding,
                         uint32_t r) {
  const int32_t world = inquiry->job->model->ranks[r].world;
  if (accuses(inquiry, finding, r) ||
      (world >= 0 && nt_rank_set_has(&finding->waiting, (uint32_t)world)) ||
      finding->class == NT_CLASS_OUTSIDE) /* that nothing is unfinished is said of all */
    return true;
  if (finding->joint == NT_NONE)
    return false;
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (joint->members[i].rank == r)
      return true;
  return false;
}

/* Does it rest on the calls themselves, and not on who made how many collectives? */
static bool compares_calls(const struct nt_finding *finding) {
  const enum nt_class class = finding->class;
  const enum nt_shape shape = nt_fn_shape(finding->fn);
  return shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV || class == NT_CLASS_MISMATCH ||
         class == NT_CLASS_ORDER || class == NT_CLASS_EXTRA || class == NT_CLASS_CYCLE ||
         class == NT_CLASS_P2P || class == NT_CLASS_TEARDOWN || class == NT_CLASS_INIT;
}

/* Some of it was captured, so that how many calls each made tells nothing by itself. */
static bool has_captures(const struct nt_inquiry *inquiry, const struct nt_finding *finding) {
  if (finding->joint == NT_NONE)
    return false;
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_rank *rank = nt_member_rank(inquiry->job, &joint->members[i]);
    for (uint32_t c = 0; c < rank->call_count; c++)
      if (rank->calls[c].view == joint->members[i].view &&
          (rank->calls[c].flags & NT_CALL_CAPTURED))
        return true;
  }
  return false;
}

/* Its trace is cut short, or its file was written before that had lasted. */
static bool lacks_end(const struct nt_inquiry *inquiry, const struct nt_finding *finding,
                      uint32_t r) {
  const struct nt_model *model = inquiry->job->model;
  const int64_t lasts_ns = finding->since_ns ? finding->since_ns + UNHEARD_NS : INT64_MAX;
  return model->ranks[r].cut || nt_model_is_unseen(model, &model->ranks[r], lasts_ns);
}

/* Of whoever is gone: its file is visibly cut, and nothing else tells of it. It may have gone on behind what is left, and that
 * it died then is not known. */
static bool lacks_death(const struct nt_model_rank *rank) {
  return rank->outlived && (rank->cut || rank->damaged);
}

/* Nor where a trace lacks its end, which may hold what the others lack. */
static void doubt_ends(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_model *model = inquiry->job->model;
  struct nt_rank_set ranks = {0};
  char who[NT_DESCRIBE];
  const bool compares = compares_calls(finding) || has_captures(inquiry, finding);
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const bool counts =
        finding->class == NT_CLASS_MISSING && !model->ranks[r].cut && accuses(inquiry, finding, r);
    const bool died = finding->class == NT_CLASS_DEAD && lacks_death(&model->ranks[r]) &&
                      accuses(inquiry, finding, r);
    if (died || (lacks_end(inquiry, finding, r) &&
                 (counts || (compares && is_concerned(inquiry, finding, r)))))
      (void)nt_finding_add(inquiry->job, &ranks, r);
  }
  if (nt_rank_set_count(&ranks)) {
    nt_lines_add(&finding->evidence,
                 "needed: the last calls of %s, cut off or made after its file was written",
                 nt_describe_ranks(who, sizeof who, &ranks));
    finding->confidence = NT_UNDECIDED;
  }
  nt_rank_set_free(&ranks);
}

/* Nobody is accused where the calls that would clear it may have been left out. True if that is so. */
static bool doubt(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  static const char *const lack[SHORTAGES] = {[CALLS] = "too few calls",
                                              [TURNS] = "too few calls of the communicator",
                                              [GRAPHS] =
                                                  "not what the graphs hold that are launched"};
  const struct nt_model *model = inquiry->job->model;
  struct nt_rank_set ranks[SHORTAGES] = {{0}};
  bool any = false;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    if (!is_concerned(inquiry, finding, r))
      continue;
    enum shortage what = shortage_of(model, &model->ranks[r]);
    if (what == NOTHING && lacks_turns(inquiry, finding, r))
      what = TURNS;
    if (what != NOTHING)
      (void)nt_finding_add(inquiry->job, &ranks[what], r);
    any |= what != NOTHING;
  }
  for (int what = CALLS; what < SHORTAGES; what++) {
    char who[NT_DESCRIBE];
    const uint64_t count = nt_rank_set_count(&ranks[what]);
    if (count && model->bounded)
      nt_lines_add(&finding->evidence, "what was read of %s has %s",
                   nt_describe_ranks(who, sizeof who, &ranks[what]), lack[what]);
    else if (count)
      nt_lines_add(&finding->evidence, "the %s of %s %s %s", count == 1 ? "digest" : "digests",
                   nt_describe_ranks(who, sizeof who, &ranks[what]), count == 1 ? "has" : "have",
                   lack[what]);
    nt_rank_set_free(&ranks[what]);
  }
  if (any)
    finding->confidence = NT_UNDECIDED;
  return any;
}

void nt_say_digests(struct nt_inquiry *inquiry) {
  for (uint32_t i = 0; i < inquiry->verdict->count; i++) {
    struct nt_finding *finding = &inquiry->verdict->findings[i];
    doubt_ends(inquiry, finding);
    const bool doubtful = doubt(inquiry, finding);
    const bool told = finding->confidence == NT_UNDECIDED && finding->joint != NT_NONE &&
                      say_members(inquiry, finding);
    if (doubtful && !told) {
      nt_lines_add(&finding->next, "%s",
                   inquiry->job->model->bounded ? "read more of the traces: --max-calls"
                                                : "collect the traces themselves");
      put_first(&finding->next);
    }
  }
}
