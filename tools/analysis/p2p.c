/* SPDX-License-Identifier: Apache-2.0 */
/* In the order of the queues (p2p_ends.h) both sides of a message stand together. */
#include "analysis/p2p.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/edit.h"
#include "analysis/p2p_ends.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

const struct nt_model_call *nt_p2p_call(const struct nt_job *job, const struct nt_p2p_end *end) {
  return &job->model->ranks[end->rank].calls[end->call];
}

const struct nt_member *nt_p2p_partner(const struct nt_job *job, const struct nt_p2p_end *end) {
  const struct nt_member *member =
      nt_joint_member(&job->joints[end->joint], end->is_send ? end->destination : end->source);
  return member && nt_member_rank(job, member)->cut ? NULL : member;
}

/* When the rank entered the oldest call that is there. `oldest`, by rank, keeps it; 0: not asked for yet. */
static int64_t oldest_of(const struct nt_job *job, uint32_t r, int64_t *oldest) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  if (oldest[r])
    return oldest[r];
  oldest[r] = INT64_MAX;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].enter_ns < oldest[r])
      oldest[r] = rank->calls[i].enter_ns;
  return oldest[r];
}

/* Would the partner's call be in its trace if it had been made? `last`: the greatest position that the partner has in the
 * queue, 0 if it has none. */
static bool would_show(const struct nt_job *job, const struct nt_p2p_end *end, uint32_t last,
                       int64_t *oldest) {
  const struct nt_member *partner = nt_p2p_partner(job, end);
  if (!partner)
    return true; /* no trace: reported as such */
  const struct nt_model_rank *rank = nt_member_rank(job, partner);
  if (!rank->lost && !rank->overwritten)
    return true;
  if (last >= end->seq)
    return false; /* made before the oldest that is there */
  if (last && !rank->lost)
    return true;
  if (!end->is_send && nt_p2p_call(job, end)->progress == NT_PROGRESS_FINISHED)
    return false; /* what was received has been sent */
  return oldest_of(job, partner->rank, oldest) < nt_p2p_call(job, end)->enter_ns;
}

/* AlltoAll, Gather and Scatter are sends and receives to NCCL: does one of the partner stand at the other side of
 * this end's place in the queue? Also true where what came before it is gone, so that its place is not known. */
static bool meets_collective(const struct nt_job *job, const struct nt_p2p_end *end) {
  const struct nt_member *partner = nt_p2p_partner(job, end);
  if (!partner || end->signal)
    return false;
  const struct nt_model_rank *rank = nt_member_rank(job, partner);
  if (!nt_model_may_have(rank, NT_SHAPE_COLL_P2P))
    return false;
  const enum nt_shape counterpart = end->is_send ? NT_SHAPE_RECV : NT_SHAPE_SEND;
  const int32_t peer = end->is_send ? end->source : end->destination;
  bool known = !rank->lost && !rank->overwritten;
  uint32_t position = 0;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    const enum nt_shape shape = nt_fn_shape(call->fn);
    if (call->view != partner->view || call->enter_ns > job->cut_ns || !nt_call_counts(call))
      continue;
    if (shape == counterpart && call->peer == peer) {
      position = call->seq;
      known = true;
    } else if (shape == NT_SHAPE_COLL_P2P && (!known || ++position == end->seq)) {
      return true;
    }
  }
  return false;
}

bool nt_p2p_same_queue(const struct nt_p2p_end *a, const struct nt_p2p_end *b) {
  return a->joint == b->joint && a->source == b->source && a->destination == b->destination &&
         a->signal == b->signal;
}

bool nt_p2p_is_pair(const struct nt_p2p_end *send, const struct nt_p2p_end *recv) {
  return send->is_send && !recv->is_send && send->seq == recv->seq && nt_p2p_same_queue(send, recv);
}

static bool find_shift(const struct nt_job *job, const struct nt_p2p *p2p, uint32_t uneven,
                       struct nt_p2p_shift *out) {
  uint64_t sends[NT_EDIT_WINDOW] = {0}, recvs[NT_EDIT_WINDOW] = {0};
  uint32_t send_at[NT_EDIT_WINDOW] = {0}, recv_at[NT_EDIT_WINDOW] = {0}, n = 0, m = 0;
  for (uint32_t i = uneven; i < p2p->count && nt_p2p_same_queue(&p2p->ends[i], &p2p->ends[uneven]);
       i++) {
    const uint64_t bytes = nt_call_bytes(nt_p2p_call(job, &p2p->ends[i]));
    uint32_t *count = p2p->ends[i].is_send ? &n : &m;
    if (*count == NT_EDIT_WINDOW)
      break;
    (p2p->ends[i].is_send ? sends : recvs)[*count] = bytes;
    (p2p->ends[i].is_send ? send_at : recv_at)[(*count)++] = i;
  }
  if (!n || !m)
    return false;
  const struct nt_edit edit = nt_edit_compare(sends, n, recvs, m);
  if ((edit.how != NT_EDIT_SKIPPED && edit.how != NT_EDIT_EXTRA) || !edit.matched)
    return false;
  const bool sent = edit.how == NT_EDIT_SKIPPED; /* there, and never received */
  if (edit.matched != (sent ? m : n) || (uint32_t)abs(edit.shift) != edit.run)
    return false; /* nor if others, further on, have to be left out as well */
  *out = (struct nt_p2p_shift){
      .uneven = uneven, .lonely = sent ? send_at[0] : recv_at[0], .agree = edit.matched};
  return true;
}

static int find_shifts(const struct nt_job *job, struct nt_p2p *out) {
  const struct nt_p2p_end *told = NULL;
  out->shifts = malloc(((size_t)out->uneven_count + 1) * sizeof *out->shifts);
  if (!out->shifts)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < out->uneven_count; i++) {
    const struct nt_p2p_end *send = &out->ends[out->uneven[i]];
    if (told && nt_p2p_same_queue(told, send))
      continue;
    told = send;
    if (!find_shift(job, out, out->uneven[i], &out->shifts[out->shift_count]))
      continue;
    out->shift_count++;
    for (uint32_t j = 0; j < out->unmatched_count; j++)
      if (nt_p2p_same_queue(&out->ends[out->unmatched[j]], send))
        out->ends[out->unmatched[j]].shifted = true;
  }
  return 0;
}

static int by_uneven(const void *key, const void *item) {
  const uint32_t *wanted = key;
  const struct nt_p2p_shift *shift = item;
  return *wanted < shift->uneven ? -1 : *wanted > shift->uneven;
}

const struct nt_p2p_shift *nt_p2p_shift_at(const struct nt_p2p *p2p, uint32_t uneven) {
  if (!p2p->shift_count)
    return NULL;
  return bsearch(&uneven, p2p->shifts, p2p->shift_count, sizeof *p2p->shifts, by_uneven);
}

/* The greatest positions of both sides in the queue that begins at `from`; returns where the next one begins. */
static uint32_t find_last(const struct nt_p2p *p2p, uint32_t from, uint32_t last[2]) {
  uint32_t i = from;
  last[0] = last[1] = 0;
  for (; i < p2p->count && nt_p2p_same_queue(&p2p->ends[i], &p2p->ends[from]); i++)
    last[p2p->ends[i].is_send] = p2p->ends[i].seq; /* they are sorted */
  return i;
}

int nt_p2p_match(const struct nt_job *job, struct nt_p2p *out) {
  uint32_t last[2] = {0, 0}, following = 0;
  memset(out, 0, sizeof *out);
  int status = nt_p2p_list_ends(job, &out->ends, &out->count);
  if (status)
    return status;
  out->unmatched = malloc(((size_t)out->count + 1) * sizeof *out->unmatched);
  out->uneven = malloc(((size_t)out->count + 1) * sizeof *out->uneven);
  int64_t *oldest = calloc((size_t)job->model->rank_count + 1, sizeof *oldest);
  if (!out->unmatched || !out->uneven || !oldest) {
    free(oldest);
    return -NT_ERR_MEMORY;
  }
  for (uint32_t i = 0; i < out->count; i++) {
    const struct nt_p2p_end *a = &out->ends[i], *b = a + 1;
    if (i == following)
      following = find_last(out, i, last);
    if (i + 1 == out->count || !nt_p2p_is_pair(a, b)) {
      if (!(a->signal && a->is_send) && would_show(job, a, last[!a->is_send], oldest) &&
          !meets_collective(job, a))
        out->unmatched[out->unmatched_count++] = i;
      continue;
    }
    if (nt_call_bytes(nt_p2p_call(job, a)) != nt_call_bytes(nt_p2p_call(job, b)))
      out->uneven[out->uneven_count++] = i;
    i++;
  }
  free(oldest);
  return find_shifts(job, out);
}

void nt_p2p_free(struct nt_p2p *p2p) {
  free(p2p->ends);
  free(p2p->unmatched);
  free(p2p->uneven);
  free(p2p->shifts);
  memset(p2p, 0, sizeof *p2p);
}
