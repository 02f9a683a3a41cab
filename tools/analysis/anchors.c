/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of anchor gives every call a mark; the marks of two members are compared as signatures are. */
#include "analysis/anchors.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* Calls that must not agree without the shift, where it decides who is to blame. */
enum { BROKEN_MIN = 2 };

/* Marks of one member from `low` on, a row for each kind. 0: not known. */
struct marks {
  uint64_t *row[NT_ANCHOR_LIMIT];
  uint32_t count;
};

const char *nt_anchor_text(enum nt_anchor anchor) {
  static const char *const texts[NT_ANCHOR_LIMIT] = {
      [NT_ANCHOR_NONE] = "",
      [NT_ANCHOR_BUFFER] = "by the buffers they use",
      [NT_ANCHOR_SITE] = "by the lines they were made at",
      [NT_ANCHOR_OTHERS] = "by the calls on other communicators around them",
      [NT_ANCHOR_COUNT] = "by the host waits and calls on other communicators in front of them",
  };
  return texts[anchor];
}

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ b * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
  x ^= x >> 32;
  return x ? x : 1;
}

/* By joint: is the rank of `partner` in it as well? */
static bool *shared_joints(const struct nt_job *job, const struct nt_member *partner) {
  bool *shared = calloc((size_t)job->joint_count + 1, sizeof *shared);
  const struct nt_model_rank *rank = &job->model->ranks[partner->rank];
  for (uint32_t v = 0; shared && v < rank->view_count; v++) {
    struct nt_place place = job->places[partner->rank][v];
    if (place.joint != NT_NONE)
      shared[place.joint] = true;
  }
  return shared;
}

/* What stood in front of a call. */
struct context {
  uint64_t others; /* the last call on another communicator of both */
  uint32_t
      made; /* host waits and calls elsewhere so far, of this thread, at lines that both have */
};

/* Lines at which a rank waits or calls, with the function, sorted. */
struct lines {
  uint32_t *at, count;
};

static int by_number(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

/* 0 if the line is not known. */
static uint32_t line_of(const struct nt_model_call *call) {
  return call->at ? call->at ^ call->fn * UINT32_C(0x9e3779b1) : 0;
}

static int list_lines(const struct nt_model_rank *rank, struct lines *out) {
  out->count = 0;
  out->at = malloc(((size_t)rank->call_count + 1) * sizeof *out->at);
  if (!out->at)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].at && (!i || line_of(&rank->calls[i]) != line_of(&rank->calls[i - 1])))
      out->at[out->count++] = line_of(&rank->calls[i]);
  qsort(out->at, out->count, sizeof *out->at, by_number);
  return 0;
}

static bool has_line(const struct lines *lines, uint32_t at) {
  return at && bsearch(&at, lines->at, lines->count, sizeof *lines->at, by_number);
}

/* In program order of each thread; by sequence number from `low` on. */
static void find_contexts(const struct nt_job *job, uint32_t joint, const struct nt_member *member,
                          const bool *shared, const struct lines *lines, uint32_t low,
                          struct context *contexts) {
  const struct nt_model_rank *rank = &job->model->ranks[member->rank];
  struct context now = {0};
  uint32_t thread = 0;
  bool begun = false;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->enter_ns > job->cut_ns)
      continue;
    if (call->thread != thread) {
      thread = call->thread;
      now = (struct context){0};
      begun = false;
    }
    uint32_t of = call->view == NT_NONE ? NT_NONE : job->places[member->rank][call->view].joint;
    enum nt_shape shape = nt_fn_shape(call->fn);
    bool collective = nt_fn_is_collective(call->fn) && nt_call_counts(call);
    if (collective && of == joint && call->seq >= low && call->seq <= member->called) {
      if (!begun)
        now.made = 0; /* counted from the first call that both have */
      begun = true;
      contexts[call->seq - low] = now;
    } else if (collective || shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV ||
               nt_fn_is_host_wait(call->fn)) {
      now.made += has_line(lines, line_of(call));
      if (collective && of != NT_NONE && of != joint && shared[of])
        now.others = mix(of + 1, call->seq);
    }
  }
}

static void fill_marks(const struct nt_job *job, const struct nt_member *member, uint32_t low,
                       const struct context *contexts, struct marks *marks) {
  for (uint32_t i = 0; i < marks->count; i++) {
    const struct nt_model_call *call = nt_member_call(job, member, low + i);
    if (!call || call->seq < low)
      continue;
    const uint64_t sig = nt_call_signature(call);
    const struct context *context = &contexts[call->seq - low];
    marks->row[NT_ANCHOR_BUFFER][i] = call->buffer ? mix(sig, call->buffer) : 0;
    marks->row[NT_ANCHOR_SITE][i] = call->at ? mix(sig, call->at) : 0;
    marks->row[NT_ANCHOR_OTHERS][i] = mix(sig, context->others);
    marks->row[NT_ANCHOR_COUNT][i] = mix(sig, context->made);
  }
}

static void free_marks(struct marks *marks) {
  free(marks->row[NT_ANCHOR_BUFFER]);
}

static int make_marks(const struct nt_job *job, const struct nt_joint *joint,
                      const struct nt_member *member, const struct nt_member *partner, uint32_t low,
                      struct marks *marks) {
  marks->count = member->called + 1 - low;
  uint64_t *rows = calloc((size_t)marks->count * (NT_ANCHOR_LIMIT - 1), sizeof *rows);
  struct context *contexts = calloc(marks->count, sizeof *contexts);
  bool *shared = shared_joints(job, partner);
  struct lines lines;
  int status = list_lines(&job->model->ranks[partner->rank], &lines);
  if (!rows || !contexts || !shared)
    status = -NT_ERR_MEMORY;
  for (uint32_t kind = NT_ANCHOR_BUFFER; rows && kind < NT_ANCHOR_LIMIT; kind++)
    marks->row[kind] = rows + (size_t)marks->count * (kind - 1);
  if (!status) {
    find_contexts(job, (uint32_t)(joint - job->joints), member, shared, &lines, low, contexts);
    fill_marks(job, member, low, contexts, marks);
  }
  free(contexts);
  free(shared);
  free(lines.at);
  return status;
}

/* First index at which two rows differ; `count` if none, or none that is known on both sides. */
static uint32_t first_difference(const uint64_t *a, const uint64_t *b, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (!a[i] || !b[i])
      return count;
    if (a[i] != b[i])
      return i;
  }
  return count;
}

static bool is_known(const uint64_t *row, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (!row[i])
      return false;
  return true;
}

/* Calls that pair up once `run` of the longer row are left out. */
static uint32_t pairs_after(const uint64_t *longer, uint32_t long_count, const uint64_t *shorter,
                            uint32_t short_count, uint32_t at, uint32_t run) {
  uint32_t t = 0;
  while (at + t < short_count && at + run + t < long_count &&
         longer[at + run + t] == shorter[at + t])
    t++;
  return t;
}

/* The other kinds of anchor must not contradict: where they knew everything and agreed before, they agree by the
 * shift as well, as far as `pairs` calls. */
static bool is_compatible(const struct marks *longer, const struct marks *shorter, uint32_t at,
                          uint32_t run, uint32_t pairs) {
  for (uint32_t kind = NT_ANCHOR_BUFFER; kind < NT_ANCHOR_LIMIT; kind++) {
    const uint64_t *a = longer->row[kind], *b = shorter->row[kind];
    uint32_t common = longer->count < shorter->count ? longer->count : shorter->count;
    uint32_t end = at + run + pairs < longer->count ? at + run + pairs : longer->count;
    if (!is_known(a, end) || !is_known(b, at + pairs) ||
        first_difference(a, b, at < common ? at : common) < at)
      continue;
    if (pairs_after(a, end, b, at + pairs, at, run) < pairs)
      return false;
  }
  return true;
}

static uint32_t differing(const uint64_t *a, const uint64_t *b, uint32_t from, uint32_t to) {
  uint32_t count = 0;
  for (uint32_t i = from; i < to; i++)
    count += a[i] != b[i];
  return count;
}

/* Calls that would differ without the shift, by the other kinds of anchor, which do not contradict: the most of one kind. */
static uint32_t differing_otherwise(const struct marks *longer, const struct marks *shorter,
                                    enum nt_anchor kind, uint32_t at, uint32_t end) {
  uint32_t most = 0;
  for (uint32_t other = NT_ANCHOR_BUFFER; other < NT_ANCHOR_LIMIT; other++) {
    const uint64_t *a = longer->row[other], *b = shorter->row[other];
    if (other == kind || !is_known(a, end) || !is_known(b, end) || first_difference(a, b, at) < at)
      continue;
    const uint32_t count = differing(a, b, at, end);
    most = count > most ? count : most;
  }
  return most;
}

/* Has `shorter` left calls of `longer` out at `at`, by one kind of anchor? Fills all of the shift but `how`. */
static bool is_shift(const struct marks *longer, const struct marks *shorter, enum nt_anchor kind,
                     uint32_t at, struct nt_shift *out) {
  const uint64_t *a = longer->row[kind], *b = shorter->row[kind];
  uint32_t n = longer->count - at, m = shorter->count - at;
  n = n < NT_EDIT_WINDOW ? n : NT_EDIT_WINDOW;
  m = m < NT_EDIT_WINDOW / 2 ? m : NT_EDIT_WINDOW / 2;
  struct nt_edit edit = nt_edit_compare(a + at, n, b + at, m);
  bool whole = edit.matched == m || edit.matched + edit.run == n;
  if (edit.how != NT_EDIT_SKIPPED || !whole)
    return false;
  uint32_t pairs = pairs_after(a, longer->count, b, shorter->count, at, edit.run);
  if (!pairs || !is_compatible(longer, shorter, at, edit.run, pairs))
    return false;
  uint32_t common = longer->count < shorter->count ? longer->count : shorter->count;
  out->position = at + 1;
  out->run = edit.run;
  out->anchor = kind;
  out->agree = pairs;
  const uint32_t end = at + pairs < common ? at + pairs : common;
  out->broken = differing(a, b, at, end);
  out->otherwise = differing_otherwise(longer, shorter, kind, at, end);
  return true;
}

static struct nt_shift shift_by(const struct marks *reference, const struct marks *member,
                                enum nt_anchor kind) {
  struct nt_shift shift = {0};
  uint32_t common = reference->count < member->count ? reference->count : member->count;
  const uint64_t *a = reference->row[kind], *b = member->row[kind];
  uint32_t at = first_difference(a, b, common);
  if (at == common || !is_known(a + at, reference->count - at) ||
      !is_known(b + at, member->count - at))
    return shift;
  if (is_shift(reference, member, kind, at, &shift))
    shift.how = NT_EDIT_SKIPPED;
  else if (is_shift(member, reference, kind, at, &shift))
    shift.how = NT_EDIT_EXTRA;
  return shift;
}

struct nt_shift nt_anchors_shift(const struct nt_job *job, const struct nt_joint *joint,
                                 uint32_t reference, uint32_t member, uint32_t from) {
  const struct nt_member *a = &joint->members[reference], *b = &joint->members[member];
  struct nt_shift best = {0};
  struct marks of_a = {0}, of_b = {0};
  const uint32_t low = nt_members_begin(a, b, from);
  if (!low || low > a->called || low > b->called)
    return best;
  int status = make_marks(job, joint, a, b, low, &of_a);
  if (!status)
    status = make_marks(job, joint, b, a, low, &of_b);
  for (uint32_t kind = NT_ANCHOR_BUFFER; kind < NT_ANCHOR_LIMIT && !status; kind++) {
    struct nt_shift shift = shift_by(&of_a, &of_b, kind);
    if (shift.position && (!best.position || shift.position + low - 1 < best.position)) {
      best = shift;
      best.position += low - 1;
    }
  }
  free_marks(&of_a);
  free_marks(&of_b);
  return best;
}

/* A member that made all calls but the last; NT_NONE unless most are so, if those without a trace are, and the others made that one. */
static uint32_t member_behind(const struct nt_joint *joint, uint32_t last) {
  uint32_t ahead = 0, behind = NT_NONE;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const uint32_t called = joint->members[i].called;
    if (called + 1 < last)
      return NT_NONE;
    ahead += called >= last;
    if (called < last && behind == NT_NONE)
      behind = i;
  }
  return ahead * 2 < joint->member_count + joint->absent ? behind : NT_NONE;
}

/* It made the call at a line from which none of those behind ever called, and other anchors break without the shift as well: the line
 * alone may be a branch to the same call. */
static bool is_at_its_own_line(const struct nt_job *job, const struct nt_joint *joint,
                               uint32_t member, uint32_t last, const struct nt_shift *shift) {
  const struct nt_model_call *call = nt_member_call(job, &joint->members[member], shift->position);
  if (shift->run != 1 || !call || !call->at || !shift->otherwise)
    return false;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_rank *rank = nt_member_rank(job, &joint->members[i]);
    if (joint->members[i].called < last &&
        (rank->overwritten || rank->lost || rank->cut || nt_model_site(rank, call->at)))
      return false;
  }
  return true;
}

/* Adds what one member ahead tells; false if it contradicts. That one call was made elsewhere, or that one wait came
 * in between, may be a branch; that nothing behind it fits is none. */
static bool add_extra(const struct nt_job *job, const struct nt_joint *joint, uint32_t reference,
                      uint32_t member, uint32_t last, uint32_t from, struct nt_shift *found) {
  const struct nt_shift shift = nt_anchors_shift(job, joint, reference, member, from);
  if (shift.how != NT_EDIT_EXTRA || !shift.position ||
      shift.run > joint->members[member].called + 1 - last ||
      (found->position && found->position != shift.position) || shift.anchor == NT_ANCHOR_COUNT)
    return false;
  if (shift.broken < BROKEN_MIN && !is_at_its_own_line(job, joint, member, last, &shift))
    return false;
  if (!found->position || shift.broken < found->broken)
    *found = shift;
  return true;
}

struct nt_shift nt_anchors_extra(const struct nt_job *job, const struct nt_joint *joint,
                                 uint32_t last, uint32_t from) {
  const struct nt_shift none = {0};
  struct nt_shift found = none;
  const uint32_t reference = member_behind(joint, last);
  if (reference == NT_NONE)
    return none;
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (joint->members[i].called >= last &&
        !add_extra(job, joint, reference, i, last, from, &found))
      return none;
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (i != reference && joint->members[i].called < last &&
        nt_anchors_shift(job, joint, reference, i, from).position)
      return none; /* those behind are not alike */
  return found;
}
