/* SPDX-License-Identifier: Apache-2.0 */
/* First difference, votes, edits. Linear in calls; the edit distance is taken for deviating members only. */
#include "analysis/align.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/align_parts.h"
#include "analysis/foretell.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* Members beyond this many that deviate get the edit of the last one aligned. */
#define MAX_ALIGNED 256
#define FORETOLD 16

const char *nt_field_name(enum nt_field field) {
  static const char *const names[NT_FIELD_LIMIT] = {
      [NT_FIELD_CALL] = "call", [NT_FIELD_COUNT] = "count", [NT_FIELD_DTYPE] = "dtype",
      [NT_FIELD_OP] = "op",     [NT_FIELD_ROOT] = "root",
  };
  return field < NT_FIELD_LIMIT ? names[field] : NULL;
}

static void swap_calls(struct nt_member *member, uint32_t a, uint32_t b) {
  uint32_t i = a - member->first, j = b - member->first;
  uint64_t sig = member->sig[i];
  uint32_t call = member->call[i];
  member->sig[i] = member->sig[j];
  member->call[i] = member->call[j];
  member->sig[j] = sig;
  member->call[j] = call;
}

/* Brings a member's calls of a group into the reference's order as far as both have them. */
static bool reorder_group(const struct nt_job *job, const struct nt_member *reference,
                          struct nt_member *member, uint32_t position) {
  uint32_t a, b, c, d;
  nt_member_group(job, reference, position, &a, &b);
  nt_member_group(job, member, position, &c, &d);
  uint32_t begin = a < c ? a : c, end = b > d ? b : d;
  if (begin == end)
    return false;
  if (begin < member->first)
    begin = member->first;
  if (end > member->called)
    end = member->called;
  if (begin < position)
    begin = position;
  for (uint32_t p = begin; p <= end; p++) {
    uint64_t wanted = nt_align_signature(reference, p);
    if (!wanted || nt_align_signature(member, p) == wanted)
      continue;
    for (uint32_t q = p + 1; q <= end; q++)
      if (nt_align_signature(member, q) == wanted && nt_align_signature(reference, q) != wanted) {
        swap_calls(member, p, q);
        break;
      }
  }
  return true;
}

/* First position from `from` on at which two members differ, 0 if none in what both have. */
static uint32_t first_difference(const struct nt_job *job, const struct nt_member *reference,
                                 struct nt_member *member, uint32_t from) {
  const uint32_t low = nt_members_begin(reference, member, from);
  uint32_t high = reference->called < member->called ? reference->called : member->called;
  uint32_t settled = 0; /* groups up to here have been brought into order */
  for (uint32_t p = low; p <= high && p; p++) {
    uint64_t x = nt_align_signature(reference, p), y = nt_align_signature(member, p);
    if (x == y || !x || !y)
      continue;
    if (p <= settled || !reorder_group(job, reference, member, p))
      return p;
    settled = p;
    if (nt_align_signature(member, p) != x)
      return p;
  }
  return 0;
}

static uint32_t pick_reference(const struct nt_joint *joint) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < joint->member_count; i++) {
    const struct nt_member *a = &joint->members[i], *b = &joint->members[best];
    if (a->called > b->called || (a->called == b->called && a->first < b->first))
      best = i;
  }
  return best;
}

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* The most frequent of the values; *unique tells whether it is more frequent than any other. */
static uint64_t most_frequent(uint64_t *values, uint32_t count, bool *unique, uint32_t *votes) {
  uint64_t best = 0;
  uint32_t best_count = 0;
  qsort(values, count, sizeof *values, by_value);
  for (uint32_t i = 0, n; i < count; i += n) {
    for (n = 1; i + n < count && values[i + n] == values[i];)
      n++;
    *unique = n == best_count ? false : n > best_count ? true : *unique;
    if (n > best_count) {
      best_count = n;
      best = values[i];
    }
  }
  *votes = best_count;
  return best;
}

static uint32_t tail(const struct nt_member *member, uint32_t position, uint64_t *out,
                     uint32_t room) {
  uint32_t count = 0;
  for (uint32_t p = position; p <= member->called && count < room; p++)
    out[count++] = nt_align_signature(member, p);
  return count;
}

/* One against one, a call too many must be proven: not if both, going on as they did in earlier turns, would
 * have made these same calls after another one in the same place. */
static void prove_shift(const struct nt_job *job, const struct nt_member *reference,
                        const struct nt_member *other, uint64_t *a, uint32_t n, uint64_t *b,
                        uint32_t m, struct nt_edit *edit) {
  if (edit->how != NT_EDIT_SKIPPED && edit->how != NT_EDIT_EXTRA)
    return;
  if (!edit->matched) {
    edit->how = NT_EDIT_CHANGED;
    return;
  }
  n += nt_foretell(job, reference, a + n, FORETOLD);
  m += nt_foretell(job, other, b + m, FORETOLD);
  struct nt_edit longer = nt_edit_compare(a, n, b, m);
  if (longer.how == NT_EDIT_CHANGED)
    *edit = longer;
}

/* Calls of equal arguments may have paired up wrongly before the first that differs. */
static void look_before(const struct nt_job *job, const struct nt_joint *joint,
                        const struct nt_divergence *divergence, struct nt_deviation *deviation) {
  struct nt_edit *edit = &deviation->edit;
  if (edit->how == NT_EDIT_ORDER || (edit->how == NT_EDIT_CHANGED && !divergence->decided))
    return;
  const struct nt_shift shift =
      nt_anchors_shift(job, joint, divergence->reference, deviation->member, divergence->from);
  if (!shift.position || shift.position >= divergence->position ||
      (edit->how != NT_EDIT_CHANGED && edit->how != shift.how))
    return;
  edit->how = shift.how;
  edit->run = shift.run;
  deviation->position = shift.position;
  deviation->anchor = shift.anchor;
}

/* Host waits and calls elsewhere that the member's thread made between its calls at two positions. */
static uint32_t made_between(const struct nt_job *job, const struct nt_member *member,
                             uint32_t from, uint32_t to) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  const uint32_t first = member->call[from - member->first],
                 last = member->call[to - member->first];
  uint32_t count = 0;
  for (uint32_t i = first + 1; i < last; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    count +=
        call->thread == rank->calls[first].thread &&
        (nt_fn_is_host_wait(call->fn) || (call->view != NT_NONE && call->view != member->view));
  }
  return count;
}

/* Two calls that the reference made the other way round, and no third: where calls take turns, the first of these may as well
 * have been left out, and the second be that of the next turn. Not if the reference's host waits in front of that one, and this
 * one's did not, or the other way round. */
static bool is_swapped(const struct nt_job *job, const struct nt_member *reference,
                       const struct nt_member *other, uint32_t at, const uint64_t *a, uint32_t n,
                       const uint64_t *b, uint32_t m) {
  return n > 2 && m == 2 && a[0] == b[1] && a[1] == b[0] && a[2] == a[0] &&
         made_between(job, reference, at + 1, at + 2) != made_between(job, other, at, at + 1);
}

/* One call in front of the only one that agrees, which may be that of the next turn: so it is if the one in front, and not this,
 * comes as far behind the call before both as the reference's does. */
static bool is_in_its_place(const struct nt_job *job, const struct nt_member *reference,
                            const struct nt_member *other, uint32_t at, uint32_t n, uint32_t m) {
  if (n != 1 || m != 2 || at <= reference->first || at <= other->first)
    return false;
  const uint32_t usual = made_between(job, reference, at - 1, at);
  return usual == made_between(job, other, at - 1, at) &&
         usual != made_between(job, other, at - 1, at + 1);
}

static void align_member(const struct nt_job *job, const struct nt_joint *joint,
                         const struct nt_divergence *divergence, struct nt_deviation *deviation) {
  uint64_t a[NT_EDIT_WINDOW] = {0}, b[NT_EDIT_WINDOW] = {0};
  const struct nt_member *reference = &joint->members[divergence->reference];
  const struct nt_member *other = &joint->members[deviation->member];
  uint32_t n = tail(reference, divergence->position, a, NT_EDIT_WINDOW - FORETOLD);
  uint32_t m = tail(other, divergence->position, b, NT_EDIT_WINDOW - FORETOLD);
  deviation->edit = nt_edit_compare(a, n, b, m);
  if (deviation->edit.how == NT_EDIT_SKIPPED &&
      is_swapped(job, reference, other, divergence->position, a, n, b, m))
    deviation->edit = (struct nt_edit){.how = NT_EDIT_ORDER, .run = 1};
  if (deviation->edit.how == NT_EDIT_EXTRA &&
      is_in_its_place(job, reference, other, divergence->position, n, m))
    deviation->edit = (struct nt_edit){.how = NT_EDIT_CHANGED, .run = 1};
  if (!divergence->decided) {
    prove_shift(job, reference, other, a, n, b, m, &deviation->edit);
    return;
  }
  if (n >= NT_EDIT_WINDOW - FORETOLD)
    return;
  uint32_t more = nt_foretell(job, reference, a + n, FORETOLD);
  if (deviation->edit.how == NT_EDIT_EXTRA && deviation->edit.run > 1 &&
      m < NT_EDIT_WINDOW - FORETOLD) {
    /* Several too many in front of the only call that agrees: it may be the same call of the next turn. */
    const uint32_t later = nt_foretell(job, other, b + m, FORETOLD);
    const struct nt_edit longer = nt_edit_compare(a, n + more, b, m + later);
    if (longer.how == NT_EDIT_CHANGED)
      deviation->edit = longer;
    return;
  }
  if (deviation->edit.how != NT_EDIT_CHANGED)
    return;
  struct nt_edit edit = nt_edit_compare(a, n + more, b, m);
  if (edit.how == NT_EDIT_SKIPPED && edit.matched > deviation->edit.matched) {
    deviation->edit = edit;
    deviation->foretold = true;
  }
}

/* Of the members with this value, the one that got furthest. */
static uint32_t furthest(const struct nt_joint *joint, uint32_t position, uint64_t value) {
  uint32_t best = NT_NONE;
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (nt_align_signature(&joint->members[i], position) == value &&
        (best == NT_NONE || joint->members[i].called > joint->members[best].called))
      best = i;
  return best;
}

/* The member's newest call with this signature in front of `position`, NULL if there is none. */
static const struct nt_model_call *call_before(const struct nt_job *job,
                                               const struct nt_member *member, uint32_t position,
                                               uint64_t sig) {
  for (uint32_t p = position; p-- > member->first;)
    if (nt_align_signature(member, p) == sig)
      return nt_member_call(job, member, p);
  return NULL;
}

/* Where the member's first call with this signature from `position` on is; 0 if there is none. */
static uint32_t position_after(const struct nt_member *member, uint32_t position, uint64_t sig) {
  for (uint32_t p = position; p <= member->called; p++)
    if (nt_align_signature(member, p) == sig)
      return p;
  return 0;
}

/* Made at one line? What is not known counts as another. */
static bool same_line(const struct nt_model_call *a, const struct nt_model_call *b) {
  return a && b && a->at && a->at == b->at;
}

enum later { LATER_NO, LATER_MAYBE, LATER_YES };

/* Is the call that others make at `position` made later, in its old place, and not just because the turn comes round
 * again? Then it is another order. Where it was the last of its turn that came too early, one more turn must tell. */
static enum later comes_later(const struct nt_job *job, const struct nt_member *member,
                              uint32_t position, const uint64_t *turn, uint32_t skipped) {
  const uint32_t at = position_after(member, position, turn[0]);
  const struct nt_model_call *later = nt_member_call(job, member, at);
  const struct nt_model_call *before = call_before(job, member, position, turn[0]);
  if (!at || (later && before && later->at && before->at && later->at != before->at))
    return LATER_NO;
  for (uint32_t t = 1; position + t <= at && skipped + t < FORETOLD; t++)
    if (nt_align_signature(member, position + t) != turn[skipped + t])
      return LATER_YES;
  if (at != position + 1)
    return LATER_NO;
  for (uint32_t t = 2; t <= skipped + 1; t++) {
    const uint64_t own = nt_align_signature(member, position + t);
    if (!own)
      return LATER_MAYBE;
    if (skipped + t >= FORETOLD || own != turn[skipped + t])
      return LATER_YES;
  }
  return LATER_NO;
}

/* How far behind in the turn the call is, 0 if it is not in it. */
static uint32_t place_in(const uint64_t *turn, uint64_t sig) {
  for (uint32_t i = 1; i < FORETOLD; i++)
    if (turn[i] == sig)
      return i;
  return 0;
}

enum turn {
  TURN_NONE,
  TURN_SKIPPED, /* some go on in their turn, all others are where it goes on later */
  TURN_ENDED, /* the same, but it may be otherwise: their loop has ended, or it is another order */
};

/*
 * Skipped calls are no vote: where all had gone round in equal turns, some go on so, and all the others make the
 * call that would come later in the turn, at the line where that had been made, those have left out what comes in
 * between. Tells what was to come, and how many they left out.
 */
static enum turn leave_turn(const struct nt_job *job, const struct nt_joint *joint,
                            uint32_t position, uint64_t *next, uint32_t *skipped) {
  uint64_t turn[FORETOLD], value = 0;
  enum turn found = TURN_SKIPPED;
  *next = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const uint64_t own = nt_align_signature(member, position);
    if (!own)
      continue;
    if (!nt_foretell_turn(member, position, turn, FORETOLD) || (*next && turn[0] != *next))
      return TURN_NONE;
    *next = turn[0];
    if (own == *next)
      continue;
    *skipped = place_in(turn, own);
    const enum later later =
        *skipped ? comes_later(job, member, position, turn, *skipped) : LATER_YES;
    if ((value && own != value) || later == LATER_YES)
      return TURN_NONE;
    if (later == LATER_MAYBE ||
        !same_line(nt_member_call(job, member, position), call_before(job, member, position, own)))
      found = TURN_ENDED;
    value = own;
  }
  return value ? found : TURN_NONE;
}

static int collect_votes(const struct nt_job *job, const struct nt_joint *joint,
                         struct nt_divergence *out) {
  uint64_t *values = malloc(joint->member_count * sizeof *values);
  if (!values)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    uint64_t value = nt_align_signature(&joint->members[i], out->position);
    if (value)
      values[out->voters++] = value;
  }
  uint64_t value = most_frequent(values, out->voters, &out->decided, &out->agreeing);
  free(values);
  if (!out->decided) /* any of them may stand for the others; take the lowest rank's */
    for (uint32_t i = 0; i < joint->member_count; i++)
      if ((value = nt_align_signature(&joint->members[i], out->position)))
        break;
  uint32_t skipped = 0;
  uint64_t next;
  const enum turn turn = leave_turn(job, joint, out->position, &next, &skipped);
  const bool against = turn != TURN_NONE && furthest(joint, out->position, next) != NT_NONE &&
                       (!out->decided || next != value);
  const bool by_turn = against && turn == TURN_SKIPPED;
  if (against && turn == TURN_ENDED) {
    out->disputed = true;
    out->decided = false;
  }
  if (by_turn) {
    value = next;
    out->decided = true;
    out->agreeing = 0;
    for (uint32_t i = 0; i < joint->member_count; i++)
      out->agreeing += nt_align_signature(&joint->members[i], out->position) == value;
  }
  uint32_t parted = out->position;
  const uint64_t right =
      out->decided ? 0 : nt_align_side_of_witnesses(job, joint, out->position, &parted);
  if (right) {
    value = right;
    out->decided = out->witnessed = true;
    out->disputed = false;
  }
  out->sure = out->decided && (!joint->absent || 2 * out->agreeing > out->voters + joint->absent);
  out->reference = furthest(joint, out->position, value);
  out->deviations = calloc(out->voters, sizeof *out->deviations);
  if (!out->deviations)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    uint64_t own = nt_align_signature(&joint->members[i], out->position);
    if (!own || own == value)
      continue;
    struct nt_deviation *deviation = &out->deviations[out->deviation_count++];
    if (out->deviation_count > MAX_ALIGNED) {
      *deviation = deviation[-1];
      deviation->member = i;
      continue;
    }
    deviation->member = i;
    deviation->position = out->position;
    if (own == ~value) { /* nt_call_signature: the same call, captured or not */
      deviation->edit = (struct nt_edit){.how = NT_EDIT_CHANGED, .run = 1};
      out->captured = true;
      continue;
    }
    if (by_turn) {
      deviation->edit = (struct nt_edit){.how = NT_EDIT_SKIPPED, .run = skipped};
      deviation->foretold = true;
      continue;
    }
    align_member(job, joint, out, deviation);
    look_before(job, joint, out, deviation);
    if (out->witnessed && parted < deviation->position)
      nt_align_tell_parting(job, &joint->members[out->reference], &joint->members[i], parted,
                            deviation);
  }
  nt_align_share_stories(joint, out);
  return 0;
}

/* Running sums at absolute multiples of powers of two tell whether two members agreed up to there,
 * even where the calls are gone. Narrows a difference before `limit`; returns whether there is one. */
static bool compare_sums(const struct nt_job *job, const struct nt_member *a,
                         const struct nt_member *b, uint32_t limit, uint32_t *low, uint32_t *high) {
  const struct nt_model_view *x = nt_member_view(job, a), *y = nt_member_view(job, b);
  *low = 0;
  *high = 0;
  if (!x->sums || !y->sums)
    return false;
  for (int level = 0; level < NT_SUM_LEVELS; level++)
    for (uint32_t k = 0; k < NT_SUM_KEPT; k++) {
      uint32_t last_x = x->collectives >> level, last_y = y->collectives >> level;
      if (last_x < k || last_y < k)
        continue;
      uint32_t at_x = last_x - k, at_y = last_y > at_x ? last_y - at_x : at_x - last_y;
      if (!at_x || at_x > last_y || at_y >= NT_SUM_KEPT)
        continue;
      uint64_t position = (uint64_t)at_x << level;
      if (position >= limit)
        continue;
      const uint64_t own = x->sums[level][at_x % NT_SUM_KEPT],
                     other = y->sums[level][at_x % NT_SUM_KEPT];
      if (!own || !other) /* a digest had no room for it */
        continue;
      const bool same = own == other;
      if (same && position > *low)
        *low = (uint32_t)position;
      if (!same && (!*high || position < *high))
        *high = (uint32_t)position;
    }
  return *high > *low;
}

bool nt_align_sum(const struct nt_job *job, const struct nt_member *member, uint32_t position,
                  uint64_t *sum) {
  const struct nt_model_view *view = nt_member_view(job, member);
  for (int level = 0; view->sums && level < NT_SUM_LEVELS; level++) {
    const uint32_t multiple = position >> level, last = view->collectives >> level;
    if (multiple << level != position || !multiple || multiple > last ||
        last - multiple >= NT_SUM_KEPT)
      continue;
    *sum = view->sums[level][multiple % NT_SUM_KEPT];
    return *sum != 0;
  }
  return false;
}

static void look_behind(const struct nt_job *job, const struct nt_joint *joint, uint32_t reference,
                        struct nt_divergence *out) {
  const struct nt_member *base = &joint->members[reference];
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    uint32_t begin = nt_members_begin(base, member, 1), low, high;
    if (i == reference || begin <= 1 || !compare_sums(job, base, member, begin, &low, &high))
      continue;
    if (!out->hidden_high || high < out->hidden_high) {
      out->hidden_low = low;
      out->hidden_high = high;
      out->hidden_member = i;
    }
  }
}

int nt_align_joint(const struct nt_job *job, struct nt_joint *joint, struct nt_divergence *out) {
  return nt_align_from(job, joint, 1, out);
}

int nt_align_from(const struct nt_job *job, struct nt_joint *joint, uint32_t from,
                  struct nt_divergence *out) {
  memset(out, 0, sizeof *out);
  out->from = from;
  if (joint->member_count < 2)
    return 0;
  uint32_t reference = pick_reference(joint);
  out->reference = reference;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    if (i == reference)
      continue;
    uint32_t p = first_difference(job, &joint->members[reference], &joint->members[i], from);
    if (p && (!out->position || p < out->position))
      out->position = p;
  }
  if (from == 1)
    look_behind(job, joint, reference, out);
  if (out->hidden_high && (!out->position || out->position > out->hidden_high)) {
    out->reference = reference;
    return 0;
  }
  out->hidden_low = out->hidden_high = 0;
  return out->position ? collect_votes(job, joint, out) : 0;
}

bool nt_divergence_only_changed(const struct nt_divergence *divergence) {
  for (uint32_t i = 0; i < divergence->deviation_count; i++)
    if (divergence->deviations[i].edit.how != NT_EDIT_CHANGED)
      return false;
  return true;
}

void nt_divergence_free(struct nt_divergence *divergence) {
  free(divergence->deviations);
  free(divergence->mixed);
  memset(divergence, 0, sizeof *divergence);
}

static uint64_t field_value(const struct nt_model_call *call, enum nt_field field) {
  bool bytes = nt_fn_moves_bytes(call->fn);
  switch (field) {
  case NT_FIELD_CALL:
    return nt_fn_canonical(call->fn) | (call->flags & NT_CALL_CAPTURED ? 256u : 0u);
  case NT_FIELD_COUNT:
    return bytes ? nt_call_bytes(call) : call->count;
  case NT_FIELD_DTYPE:
    return bytes ? 0 : call->dtype;
  case NT_FIELD_OP:
    return bytes ? 0 : call->op;
  case NT_FIELD_ROOT:
    return nt_call_has_root(call) ? (uint32_t)call->peer : 0;
  default:
    return 0;
  }
}

/* Members whose call at the position takes part: those that agree, and those with a changed call. */
static uint32_t list_voters(const struct nt_joint *joint, const struct nt_divergence *divergence,
                            uint32_t *out) {
  uint32_t count = 0, next = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_deviation *deviation = NULL;
    if (next < divergence->deviation_count && divergence->deviations[next].member == i)
      deviation = &divergence->deviations[next++];
    if (nt_align_signature(&joint->members[i], divergence->position) &&
        (!deviation || deviation->edit.how == NT_EDIT_CHANGED))
      out[count++] = i;
  }
  return count;
}

int nt_align_vote(const struct nt_job *job, const struct nt_joint *joint,
                  const struct nt_divergence *divergence, enum nt_field after,
                  struct nt_vote *vote) {
  memset(vote, 0, sizeof *vote);
  uint32_t *voters = malloc(joint->member_count * sizeof *voters);
  uint64_t *values = malloc(joint->member_count * sizeof *values);
  vote->minority = malloc(joint->member_count * sizeof *vote->minority);
  int status = voters && values && vote->minority ? 0 : -NT_ERR_MEMORY;
  uint32_t count = status ? 0 : list_voters(joint, divergence, voters), votes = 0;
  for (enum nt_field field = after + 1; field < NT_FIELD_LIMIT && count; field++) {
    for (uint32_t i = 0; i < count; i++)
      values[i] =
          field_value(nt_member_call(job, &joint->members[voters[i]], divergence->position), field);
    uint64_t common = most_frequent(values, count, &vote->decided, &votes);
    if (votes == count)
      continue;
    vote->decided = votes * 2 > count + joint->absent && !divergence->disputed;
    vote->field = field;
    for (uint32_t i = 0; i < count; i++) {
      const struct nt_model_call *call =
          nt_member_call(job, &joint->members[voters[i]], divergence->position);
      if (!vote->decided || field_value(call, field) != common)
        vote->minority[vote->minority_count++] = voters[i];
    }
    break;
  }
  free(voters);
  free(values);
  return status;
}
