/* SPDX-License-Identifier: Apache-2.0 */
/* One sort brings both sides of every message together. */
#include "analysis/p2p.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

const struct nt_model_call *nt_p2p_call(const struct nt_job *job, const struct nt_p2p_end *end) {
  return &job->model->ranks[end->rank].calls[end->call];
}

const struct nt_member *nt_p2p_partner(const struct nt_job *job, const struct nt_p2p_end *end) {
  return nt_joint_member(&job->joints[end->joint], end->is_send ? end->destination : end->source);
}

static int by_queue(const void *a, const void *b) {
  const struct nt_p2p_end *x = a, *y = b;
  if (x->joint != y->joint)
    return x->joint < y->joint ? -1 : 1;
  if (x->source != y->source)
    return x->source < y->source ? -1 : 1;
  if (x->destination != y->destination)
    return x->destination < y->destination ? -1 : 1;
  if (x->seq != y->seq)
    return x->seq < y->seq ? -1 : 1;
  if (x->is_send != y->is_send)
    return x->is_send ? -1 : 1;
  return x->call < y->call ? -1 : x->call > y->call;
}

static bool is_message(const struct nt_job *job, uint32_t rank, const struct nt_model_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  if ((shape != NT_SHAPE_SEND && shape != NT_SHAPE_RECV) || call->view == NT_NONE ||
      call->enter_ns > job->cut_ns || !nt_call_counts(call))
    return false;
  struct nt_place place = job->places[rank][call->view];
  /* Where communicator ranks are guesses, peers would be too. */
  return place.joint != NT_NONE && job->joints[place.joint].size_known;
}

static int collect(const struct nt_job *job, struct nt_p2p *out) {
  uint32_t total = 0;
  for (uint32_t r = 0; r < job->model->rank_count; r++)
    for (uint32_t i = 0; i < job->model->ranks[r].call_count; i++)
      total += is_message(job, r, &job->model->ranks[r].calls[i]);
  out->ends = malloc((total ? total : 1) * sizeof *out->ends);
  out->unmatched = malloc((total ? total : 1) * sizeof *out->unmatched);
  out->uneven = malloc((total ? total : 1) * sizeof *out->uneven);
  if (!out->ends || !out->unmatched || !out->uneven)
    return -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < job->model->rank_count; r++)
    for (uint32_t i = 0; i < job->model->ranks[r].call_count; i++) {
      const struct nt_model_call *call = &job->model->ranks[r].calls[i];
      if (!is_message(job, r, call))
        continue;
      struct nt_place place = job->places[r][call->view];
      int32_t self = job->joints[place.joint].members[place.member].comm_rank;
      bool is_send = nt_fn_shape(call->fn) == NT_SHAPE_SEND;
      out->ends[out->count++] = (struct nt_p2p_end){.joint = place.joint,
                                                    .source = is_send ? self : call->peer,
                                                    .destination = is_send ? call->peer : self,
                                                    .seq = call->seq,
                                                    .rank = r,
                                                    .call = i,
                                                    .is_send = is_send};
    }
  return 0;
}

/* Would the partner's call be in its trace if it had been made? */
static bool would_show(const struct nt_job *job, const struct nt_p2p_end *end) {
  const struct nt_member *partner = nt_p2p_partner(job, end);
  if (!partner)
    return true; /* no trace: reported as such */
  const struct nt_model_rank *rank = nt_member_rank(job, partner);
  if (!rank->lost && !rank->overwritten)
    return true;
  int64_t oldest = INT64_MAX;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].enter_ns < oldest)
      oldest = rank->calls[i].enter_ns;
  return oldest < nt_p2p_call(job, end)->enter_ns;
}

int nt_p2p_match(const struct nt_job *job, struct nt_p2p *out) {
  memset(out, 0, sizeof *out);
  int status = collect(job, out);
  if (status)
    return status;
  qsort(out->ends, out->count, sizeof *out->ends, by_queue);
  for (uint32_t i = 0; i < out->count; i++) {
    const struct nt_p2p_end *a = &out->ends[i], *b = a + 1;
    bool pair = i + 1 < out->count && a->joint == b->joint && a->source == b->source &&
                a->destination == b->destination && a->seq == b->seq && a->is_send && !b->is_send;
    if (!pair) {
      if (would_show(job, a))
        out->unmatched[out->unmatched_count++] = i;
      continue;
    }
    if (nt_call_bytes(nt_p2p_call(job, a)) != nt_call_bytes(nt_p2p_call(job, b)))
      out->uneven[out->uneven_count++] = i;
    i++;
  }
  return 0;
}

void nt_p2p_free(struct nt_p2p *p2p) {
  free(p2p->ends);
  free(p2p->unmatched);
  free(p2p->uneven);
  memset(p2p, 0, sizeof *p2p);
}
