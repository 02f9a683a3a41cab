/* SPDX-License-Identifier: Apache-2.0 */
/* Differences within one communicator into findings: missing, extra, order, mismatch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "cli/call_text.h"
#include "nccl/nccl_api.h"

/* Deviations with the same story are one finding. */
static bool same_story(const struct nt_inquiry *inquiry, const struct nt_joint *joint,
                       const struct nt_deviation *a, const struct nt_deviation *b) {
  if (a->edit.how != b->edit.how || a->position != b->position)
    return false;
  if (a->edit.how != NT_EDIT_EXTRA)
    return true;
  const struct nt_model_call *x =
      nt_member_call(inquiry->job, &joint->members[a->member], a->position);
  const struct nt_model_call *y =
      nt_member_call(inquiry->job, &joint->members[b->member], b->position);
  return x && y && nt_fn_canonical(x->fn) == nt_fn_canonical(y->fn);
}

/* Where all of `ranks` made their call at this position; NULL if not known, or not at one place. */
static const char *common_site(const struct nt_job *job, const struct nt_joint *joint,
                               uint32_t position, const struct nt_rank_set *ranks) {
  const char *site = NULL;
  uint32_t at = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_rank *rank = nt_member_rank(job, &joint->members[i]);
    const struct nt_model_call *call = nt_member_call(job, &joint->members[i], position);
    if (!call || rank->world < 0 || !nt_rank_set_has(ranks, (uint32_t)rank->world))
      continue;
    if (site && call->at != at)
      return NULL;
    at = call->at;
    site = nt_model_site(rank, at);
    if (!site)
      return NULL;
  }
  return site;
}

/* "ranks 0-1,3 called AllReduce #7 on A (…) at train.py:41 step" for one representative. */
static void say_call(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t joint_index,
                     uint32_t member_index, uint32_t position, const struct nt_rank_set *ranks) {
  const struct nt_joint *joint = &inquiry->job->joints[joint_index];
  const struct nt_member *member = &joint->members[member_index];
  char text[NT_DESCRIBE], who[NT_DESCRIBE];
  if (!nt_member_call(inquiry->job, member, position))
    return;
  nt_describe_call(text, sizeof text, inquiry->job, member->rank,
                   member->call[position - member->first]);
  const char *site = common_site(inquiry->job, joint, position, ranks);
  nt_lines_add(&finding->evidence, "%s called %s%s%s", nt_describe_ranks(who, sizeof who, ranks),
               text, site ? " at " : "", site ? site : "");
}

/* Members that called the operation the finding names (`exactly`: with these arguments), in which it is
 * unfinished, and that were alive at the freeze point. */
static int fill_waiting(struct nt_inquiry *inquiry, struct nt_finding *finding,
                        const struct nt_divergence *divergence, bool blamed_too,
                        const struct nt_model_call *exactly) {
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  int status = 0;
  for (uint32_t i = 0; i < joint->member_count && !status; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_call *call = nt_member_call(inquiry->job, member, divergence->position);
    int32_t world = nt_member_rank(inquiry->job, member)->world;
    bool blamed = world >= 0 && nt_rank_set_has(&finding->blame, (uint32_t)world);
    if (!call)
      continue;
    if (!finding->since_ns || call->enter_ns < finding->since_ns)
      finding->since_ns = call->enter_ns;
    bool named = exactly ? nt_call_signature(call) == nt_call_signature(exactly)
                         : nt_fn_canonical(call->fn) == nt_fn_canonical(finding->fn);
    uint32_t index = member->call[divergence->position - member->first];
    if ((blamed && !blamed_too) || !named || divergence->later ||
        !nt_call_unfinished(inquiry->job, member->rank, index) ||
        inquiry->freeze->fates[member->rank].kind != NT_FATE_ALIVE)
      continue;
    status = nt_finding_add(inquiry->job, &finding->waiting, member->rank);
  }
  return status;
}

static int split_sides(const struct nt_inquiry *inquiry, const struct nt_divergence *divergence,
                       uint32_t joint_index, struct nt_rank_set *agreeing) {
  const struct nt_joint *joint = &inquiry->job->joints[joint_index];
  uint32_t next = 0;
  int status = 0;
  for (uint32_t i = 0; i < joint->member_count && !status; i++) {
    if (next < divergence->deviation_count && divergence->deviations[next].member == i) {
      next++;
      continue;
    }
    if (nt_member_call(inquiry->job, &joint->members[i], divergence->position))
      status = nt_finding_add(inquiry->job, agreeing, joint->members[i].rank);
  }
  return status;
}

static void say_story(struct nt_finding *finding, const struct nt_deviation *deviation,
                      const char *place, const char *who, const char *agreeing) {
  bool decided = nt_rank_set_count(&finding->blame) != 0;
  char waiting[NT_DESCRIBE + 64];
  nt_inquiry_waiting(waiting, sizeof waiting, finding);
  if (!decided) {
    nt_finding_say(
        finding, "%s and %s differ from %s on%s%s; neither side is in the majority", agreeing, who,
        place, finding->class == NT_CLASS_ORDER ? ", in the order of their calls" : "", waiting);
    return;
  }
  switch (finding->class) {
  case NT_CLASS_MISSING:
    nt_finding_say(finding, "%s never called %s and went on with what follows it%s", who, place,
                   waiting);
    if (deviation->edit.run > 1)
      nt_lines_add(&finding->evidence, "%u calls in a row are missing", deviation->edit.run);
    break;
  case NT_CLASS_EXTRA:
    nt_finding_say(finding, "%s called %s, which %s never did", who, place, agreeing);
    if (deviation->edit.run > 1)
      nt_lines_add(&finding->evidence, "%u calls in a row are too many", deviation->edit.run);
    break;
  default:
    nt_finding_say(finding, "%s made the same calls as %s in another order, from %s on%s", who,
                   agreeing, place, waiting);
  }
}

static int judge_story(struct nt_inquiry *inquiry, uint32_t index, uint32_t first, bool *done) {
  static const enum nt_class classes[] = {[NT_EDIT_SKIPPED] = NT_CLASS_MISSING,
                                          [NT_EDIT_EXTRA] = NT_CLASS_EXTRA,
                                          [NT_EDIT_ORDER] = NT_CLASS_ORDER};
  const struct nt_divergence *divergence = &inquiry->divergences[index];
  const struct nt_joint *joint = &inquiry->job->joints[index];
  const struct nt_deviation *story = &divergence->deviations[first];
  enum nt_class class = classes[story->edit.how];
  if (!divergence->decided && class == NT_CLASS_MISSING)
    class = NT_CLASS_EXTRA; /* a call that only some made, and no majority to say which is right */
  const bool blames = class == NT_CLASS_MISSING ? divergence->decided : divergence->sure;
  struct nt_finding *finding = nt_inquiry_add(inquiry, class, index);
  struct nt_rank_set who = {0}, agreeing = {0};
  if (!finding)
    return -NT_ERR_MEMORY;
  int status = split_sides(inquiry, divergence, index, &agreeing);
  for (uint32_t i = first; i < divergence->deviation_count && !status; i++) {
    if (!same_story(inquiry, joint, story, &divergence->deviations[i]))
      continue;
    done[i] = true;
    uint32_t rank = joint->members[divergence->deviations[i].member].rank;
    status = nt_finding_add(inquiry->job, &who, rank);
    if (blames && !status)
      status = nt_finding_add(inquiry->job, &finding->blame, rank);
  }
  uint32_t named = story->edit.how == NT_EDIT_EXTRA ? story->member : divergence->reference;
  const struct nt_model_call *call =
      nt_member_call(inquiry->job, &joint->members[named], story->position);
  finding->fn = call ? call->fn : 0;
  finding->seq = story->position;
  finding->confidence = !blames ? NT_UNDECIDED
                        : story->foretold || divergence->agreeing * 2 <= divergence->voters
                            ? NT_LIKELY
                            : NT_CERTAIN;
  if (!status)
    status =
        fill_waiting(inquiry, finding, divergence, class != NT_CLASS_MISSING,
                     nt_member_call(inquiry->job, &joint->members[named], divergence->position));
  char place[NT_DESCRIBE], a[NT_DESCRIBE], b[NT_DESCRIBE];
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, finding->seq, index);
  say_story(finding, story, place, nt_describe_ranks(a, sizeof a, &who),
            nt_describe_ranks(b, sizeof b, &agreeing));
  say_call(inquiry, finding, index, divergence->reference, story->position, &agreeing);
  say_call(inquiry, finding, index, story->member, story->position, &who);
  if (story->foretold)
    nt_lines_add(&finding->evidence,
                 "in earlier turns the call of %s comes right after the one that is missing", a);
  if (divergence->witnessed)
    nt_lines_add(&finding->evidence,
                 "ranks of other communicators that were at the same place went on as %s did", b);
  if (story->anchor)
    nt_lines_add(&finding->evidence,
                 "%s, this was the first; calls with equal arguments paired up until #%u",
                 nt_anchor_text(story->anchor), divergence->position);
  nt_rank_set_free(&who);
  nt_rank_set_free(&agreeing);
  return status;
}

static int fill_vote(struct nt_inquiry *inquiry, const struct nt_divergence *divergence,
                     const struct nt_vote *vote, struct nt_finding *finding,
                     struct nt_rank_set *minority) {
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  int status = 0;
  uint32_t named = divergence->reference;
  for (uint32_t i = 0; i < vote->minority_count && !status; i++) {
    uint32_t rank = joint->members[vote->minority[i]].rank;
    status = nt_finding_add(inquiry->job, minority, rank);
    if (vote->decided && !status)
      status = nt_finding_add(inquiry->job, &finding->blame, rank);
    if (named == vote->minority[i])
      named = NT_NONE;
  }
  /* Name the operation as somebody with the common value called it. */
  for (uint32_t i = 0; named == NT_NONE && i < joint->member_count; i++) {
    int32_t world = nt_member_rank(inquiry->job, &joint->members[i])->world;
    if (nt_member_call(inquiry->job, &joint->members[i], divergence->position) &&
        !(world >= 0 && nt_rank_set_has(minority, (uint32_t)world)))
      named = i;
  }
  if (named == NT_NONE)
    named = divergence->reference;
  const struct nt_model_call *call =
      nt_member_call(inquiry->job, &joint->members[named], divergence->position);
  finding->fn = call ? call->fn : 0;
  return status;
}

/* One line for each different call, with the ranks that made it. */
static int say_votes(struct nt_inquiry *inquiry, const struct nt_divergence *divergence,
                     struct nt_finding *finding) {
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  bool *told = calloc(joint->member_count + 1u, sizeof *told);
  int status = told ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < joint->member_count && finding->evidence.count < 8 && !status; i++) {
    struct nt_rank_set alike = {0};
    const struct nt_model_call *call =
        nt_member_call(inquiry->job, &joint->members[i], divergence->position);
    if (told[i] || !call)
      continue;
    for (uint32_t j = i; j < joint->member_count && !status; j++) {
      const struct nt_model_call *other =
          nt_member_call(inquiry->job, &joint->members[j], divergence->position);
      if (!other || other->fn != call->fn || other->count != call->count ||
          other->dtype != call->dtype || other->op != call->op || other->peer != call->peer ||
          ((other->flags ^ call->flags) & NT_CALL_CAPTURED))
        continue;
      told[j] = true;
      status = nt_finding_add(inquiry->job, &alike, joint->members[j].rank);
    }
    say_call(inquiry, finding, finding->joint, i, divergence->position, &alike);
    nt_rank_set_free(&alike);
  }
  free(told);
  return status;
}

/* "count 100032, type f64": of one call, the fields in which it differs from the other. */
static char *values_text(char *out, size_t size, const struct nt_model_call *call,
                         const struct nt_model_call *other) {
  char text[64];
  size_t used = 0;
  out[0] = '\0';
  bool bytes = nt_fn_moves_bytes(call->fn), count = call->count != other->count;
  bool type =
      call->dtype != other->dtype && (!bytes || nt_call_bytes(call) != nt_call_bytes(other));
  if (count)
    used +=
        (size_t)snprintf(out + used, size - used, ", count %llu", (unsigned long long)call->count);
  if (type && used < size)
    used += (size_t)snprintf(out + used, size - used, ", type %s",
                             nt_dtype_text(text, sizeof text, call->dtype));
  if (!bytes && call->op != other->op && used < size)
    used += (size_t)snprintf(out + used, size - used, ", operator %s",
                             nt_redop_text(text, sizeof text, call->op));
  if (nt_call_has_root(call) && call->peer != other->peer && used < size)
    snprintf(out + used, size - used, ", root %d", call->peer);
  if (out[0])
    memmove(out, out + 2, strlen(out + 2) + 1);
  return out;
}

/* What those to blame passed, and what the others did; false if they differ among themselves. */
static bool say_values(struct nt_inquiry *inquiry, const struct nt_divergence *divergence,
                       struct nt_finding *finding, const struct nt_vote *vote, const char *place,
                       const char *who, const char *waiting) {
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  const struct nt_model_call *wrong = NULL, *right = NULL;
  for (uint32_t i = 0, next = 0; i < joint->member_count; i++) {
    const struct nt_model_call *call =
        nt_member_call(inquiry->job, &joint->members[i], divergence->position);
    bool minor = next < vote->minority_count && vote->minority[next] == i;
    next += minor;
    if (!call)
      continue;
    const struct nt_model_call **side = minor ? &wrong : &right;
    if (*side && nt_call_signature(*side) != nt_call_signature(call) && minor)
      return false;
    if (!*side || (!minor && i == divergence->reference))
      *side = call;
  }
  char passed[160], others[160];
  if (!wrong || !right || nt_fn_canonical(wrong->fn) != nt_fn_canonical(right->fn))
    return false;
  values_text(passed, sizeof passed, wrong, right);
  values_text(others, sizeof others, right, wrong);
  if (!*passed || !*others)
    return false;
  /* "count 100032, the others 100000": the name need not stand twice if it is the only one */
  const char *value = strchr(others, ',') ? others : strchr(others, ' ') + 1;
  nt_finding_say(finding, "%s passed %s, the others %s, to %s%s", who, passed, value, place,
                 waiting);
  return true;
}

/* "rank 3 called AllGather where the others called AllReduce #5 on A": the functions of those to blame, each once. */
static void say_other_call(struct nt_inquiry *inquiry, const struct nt_divergence *divergence,
                           struct nt_finding *finding, const struct nt_vote *vote,
                           const char *place, const char *who, const char *waiting) {
  enum { NAMED = 3 };
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  char names[3 * 64 + 32] = "", name[64];
  uint8_t told[NAMED];
  uint32_t count = 0, captured = 0;
  bool same = true;
  for (uint32_t i = 0; i < vote->minority_count; i++) {
    const struct nt_model_call *call =
        nt_member_call(inquiry->job, &joint->members[vote->minority[i]], divergence->position);
    uint32_t k = 0;
    if (!call)
      continue;
    captured += (call->flags & NT_CALL_CAPTURED) != 0;
    same &= nt_fn_canonical(call->fn) == nt_fn_canonical(finding->fn);
    while (k < count && told[k] != call->fn)
      k++;
    if (k < count || count == NAMED)
      continue;
    told[count] = call->fn;
    const size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s", count++ ? " or " : "",
             nt_call_function(name, sizeof name, call->fn));
  }
  if (same)
    nt_finding_say(finding,
                   captured ? "%s captured %s into a graph, the others called it%s"
                            : "%s called %s outside of a graph, the others captured it%s",
                   who, place, waiting);
  else
    nt_finding_say(finding, "%s called %s where the others called %s%s", who, names, place,
                   waiting);
}

static int tell_vote(struct nt_inquiry *inquiry, uint32_t index,
                     const struct nt_divergence *divergence, const struct nt_vote *vote,
                     struct nt_rank_set *told) {
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_MISMATCH, index);
  struct nt_rank_set minority = {0};
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->field = nt_field_name(vote->field);
  finding->seq = divergence->position;
  finding->past = divergence->later != 0;
  finding->confidence = vote->decided ? NT_CERTAIN : NT_UNDECIDED;
  int status = fill_vote(inquiry, divergence, vote, finding, &minority);
  if (!status)
    status = fill_waiting(inquiry, finding, divergence, true, NULL);
  char place[NT_DESCRIBE], who[NT_DESCRIBE], waiting[NT_DESCRIBE + 64];
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, finding->seq, index);
  nt_describe_ranks(who, sizeof who, &minority);
  nt_inquiry_waiting(waiting, sizeof waiting, finding);
  if (vote->decided && vote->field == NT_FIELD_CALL)
    say_other_call(inquiry, divergence, finding, vote, place, who, waiting);
  else if (vote->decided && say_values(inquiry, divergence, finding, vote, place, who, waiting))
    ; /* with the values */
  else if (vote->decided)
    nt_finding_say(finding, "%s called %s with another %s than the other members%s", who, place,
                   finding->field, waiting);
  else
    nt_finding_say(finding, "%s differ in the %s of %s; no value has a majority%s", who,
                   finding->field, place, waiting);
  if (!status)
    status = say_votes(inquiry, divergence, finding);
  if (finding->past)
    nt_lines_add(&finding->evidence,
                 "it holds nobody up: all members finished it, and %u later operation%s of the "
                 "communicator",
                 divergence->later, divergence->later == 1 ? "" : "s");
  for (uint32_t w = nt_rank_set_next(&minority, 0); w < NT_RANK_MAX && !status;
       w = nt_rank_set_next(&minority, w + 1))
    status = nt_rank_set_add(told, w);
  nt_rank_set_free(&minority);
  return status;
}

/* One finding for each field that has a minority of its own; one undecided field says it all. */
static int judge_changed(struct nt_inquiry *inquiry, uint32_t index,
                         const struct nt_divergence *divergence) {
  const struct nt_joint *joint = &inquiry->job->joints[index];
  struct nt_rank_set told = {0};
  enum nt_field after = NT_FIELD_NONE;
  int status = 0;
  while (!status && after < NT_FIELD_LIMIT - 1) {
    struct nt_vote vote;
    bool fresh = false;
    status = nt_align_vote(inquiry->job, joint, divergence, after, &vote);
    for (uint32_t i = 0; i < vote.minority_count && !status; i++) {
      int32_t world = nt_member_rank(inquiry->job, &joint->members[vote.minority[i]])->world;
      fresh |= world < 0 || !nt_rank_set_has(&told, (uint32_t)world);
    }
    if (!status && fresh)
      status = tell_vote(inquiry, index, divergence, &vote, &told);
    after = vote.field == NT_FIELD_NONE || !vote.decided ? NT_FIELD_LIMIT - 1 : vote.field;
    free(vote.minority);
  }
  nt_rank_set_free(&told);
  return status;
}

/* Whose sums agree with the reference's at the end of the interval, and whose do not. An observation, no vote:
 * what was called is gone. */
static int say_sums(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t index) {
  const struct nt_divergence *divergence = &inquiry->divergences[index];
  const struct nt_joint *joint = &inquiry->job->joints[index];
  struct nt_rank_set alike = {0}, others = {0};
  char a[NT_DESCRIBE], b[NT_DESCRIBE];
  uint64_t wanted, own;
  int status = 0;
  if (!nt_align_sum(inquiry->job, &joint->members[divergence->reference], divergence->hidden_high,
                    &wanted))
    return 0;
  for (uint32_t i = 0; i < joint->member_count && !status; i++)
    if (nt_align_sum(inquiry->job, &joint->members[i], divergence->hidden_high, &own))
      status =
          nt_finding_add(inquiry->job, own == wanted ? &alike : &others, joint->members[i].rank);
  if (joint->member_count > 2)
    nt_lines_add(&finding->evidence,
                 "at #%u the sums of %s agree with each other, those of %s differ from them",
                 divergence->hidden_high, nt_describe_ranks(a, sizeof a, &alike),
                 nt_describe_ranks(b, sizeof b, &others));
  nt_rank_set_free(&alike);
  nt_rank_set_free(&others);
  return status;
}

static int judge_hidden(struct nt_inquiry *inquiry, uint32_t index) {
  const struct nt_divergence *divergence = &inquiry->divergences[index];
  const struct nt_joint *joint = &inquiry->job->joints[index];
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_UNDECIDED, index);
  char label[NT_DESCRIBE];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->confidence = NT_UNDECIDED;
  finding->seq = divergence->hidden_low + 1;
  int32_t a = nt_member_rank(inquiry->job, &joint->members[divergence->reference])->world;
  int32_t b = nt_member_rank(inquiry->job, &joint->members[divergence->hidden_member])->world;
  nt_finding_say(
      finding,
      "ranks %d and %d first differ on %s between operations #%u and #%u, and those calls %s",
      a < b ? a : b, a < b ? b : a, nt_describe_joint(label, sizeof label, inquiry->job, index),
      divergence->hidden_low + 1, divergence->hidden_high,
      inquiry->job->model->bounded ? "were not read" : "are no longer in the traces");
  nt_lines_add(&finding->evidence, "running sums agree up to #%u and differ at #%u",
               divergence->hidden_low, divergence->hidden_high);
  return say_sums(inquiry, finding, index);
}

int nt_judge_divergences(struct nt_inquiry *inquiry) {
  int status = 0;
  for (uint32_t i = 0; i < inquiry->job->joint_count && !status; i++) {
    const struct nt_divergence *divergence = &inquiry->divergences[i], *past = &inquiry->past[i];
    if (past->position)
      status = judge_changed(inquiry, i, past);
    if (divergence->hidden_high && !status)
      status = judge_hidden(inquiry, i);
    if (!divergence->position || divergence->hidden_high)
      continue;
    bool *done = calloc((size_t)divergence->deviation_count + 1, sizeof *done);
    bool changed = false;
    if (!done)
      return -NT_ERR_MEMORY;
    for (uint32_t j = 0; j < divergence->deviation_count && !status; j++) {
      if (divergence->deviations[j].edit.how == NT_EDIT_CHANGED)
        changed = true;
      else if (!done[j])
        status = judge_story(inquiry, i, j, done);
    }
    if (changed && !status)
      status = judge_changed(inquiry, i, divergence);
    free(done);
  }
  return status;
}
