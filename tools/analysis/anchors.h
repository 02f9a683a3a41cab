/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tells calls of equal arguments apart.
 *
 * NCCL pairs them up whatever was skipped, so their arguments show a skip at the end only, or where a
 * different one comes. Where the call was made, which buffer it used and what the rank did on other
 * communicators show it where it happened. Ranks may differ in these with good reason, so only a story
 * that explains every later call is believed.
 */
#ifndef NT_ANCHORS_H
#define NT_ANCHORS_H

#include "analysis/edit.h"
#include "analysis/identify.h"

enum nt_anchor {
  NT_ANCHOR_NONE,
  NT_ANCHOR_BUFFER, /* which of the communicator's buffers it uses, by first use */
  NT_ANCHOR_SITE,   /* the line of the program */
  NT_ANCHOR_OTHERS, /* how far the rank was on other communicators that both are in */
  NT_ANCHOR_COUNT, /* how many host waits and calls elsewhere it had made, at lines that both have */
  NT_ANCHOR_LIMIT,
};

struct nt_shift {
  uint32_t position;    /* of the first call that was skipped, or is too many; 0: not told */
  enum nt_edit_how how; /* NT_EDIT_SKIPPED or NT_EDIT_EXTRA, of `member` */
  uint32_t run;
  enum nt_anchor anchor;
  uint32_t agree,
      broken;         /* later calls that agree by the shift, and that would differ without it */
  uint32_t otherwise; /* the latter by another kind of anchor */
};

/* Where `member` left the sequence of `reference`, both indices into the joint's members, of positions from `from` on. */
struct nt_shift nt_anchors_shift(const struct nt_job *job, const struct nt_joint *joint,
                                 uint32_t reference, uint32_t member, uint32_t from);

/* Most members with a trace have made all calls but `last`, and a minority waits there: is it left over from a call too many
 * that these made? Tells where it was, in all of them; position 0 if that is not so. */
struct nt_shift nt_anchors_extra(const struct nt_job *job, const struct nt_joint *joint,
                                 uint32_t last, uint32_t from);

/* "by the buffers they use" */
const char *nt_anchor_text(enum nt_anchor anchor);

#endif
