/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everybody sends first: messages that all have their counterpart and yet cannot move.
 *
 * A send too large for NCCL's buffers finishes only once its receive is at the head of its stream. Where that
 * receive stands behind a send of the same kind, outside of a group, and so on around a cycle, no rank gets
 * any further. It is judged only where the ranks were seen to do nothing else afterwards, and it is likely at
 * best: how much is buffered depends on transport and settings.
 */
#include <stdlib.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

#define UNBUFFERED_BYTES (UINT64_C(1) << 20)
#define OLD_NS INT64_C(1000000000)

/* The rank's last large send outside a group, if it made nothing but receives after it. */
static uint32_t last_send(const struct nt_inquiry *inquiry, uint32_t r) {
  const struct nt_model_rank *rank = &inquiry->job->model->ranks[r];
  uint32_t last = nt_last_call(inquiry->job, r);
  while (last != NT_NONE && last > 0 && nt_fn_shape(rank->calls[last].fn) == NT_SHAPE_RECV &&
         rank->calls[last].thread == rank->calls[last - 1].thread && !rank->calls[last].group)
    last--;
  if (last == NT_NONE)
    return NT_NONE;
  const struct nt_model_call *call = &rank->calls[last];
  int64_t now = inquiry->freeze->ns < inquiry->job->model->now_ns ? inquiry->freeze->ns
                                                                  : inquiry->job->model->now_ns;
  bool fits = nt_fn_shape(call->fn) == NT_SHAPE_SEND && !call->group && !rank->moved &&
              nt_call_counts(call) && nt_call_bytes(call) > UNBUFFERED_BYTES &&
              now - call->enter_ns >= OLD_NS && inquiry->freeze->fates[r].kind == NT_FATE_ALIVE;
  return fits ? last : NT_NONE;
}

/* Rank whose last send stands in front of the receive that rank `r` waits for; NT_NONE if none. */
static void find_next(const struct nt_inquiry *inquiry, const uint32_t *sends, uint32_t *next) {
  for (uint32_t i = 0; i + 1 < inquiry->p2p.count; i++) {
    const struct nt_p2p_end *send = &inquiry->p2p.ends[i], *recv = send + 1;
    if (!send->is_send || recv->is_send || sends[send->rank] != send->call ||
        recv->joint != send->joint || recv->source != send->source ||
        recv->destination != send->destination || recv->seq != send->seq)
      continue;
    uint32_t front = sends[recv->rank];
    if (front == NT_NONE || front >= recv->call)
      continue;
    const struct nt_model_rank *rank = &inquiry->job->model->ranks[recv->rank];
    if (rank->calls[front].stream == rank->calls[recv->call].stream)
      next[send->rank] = recv->rank;
  }
}

static int tell(struct nt_inquiry *inquiry, const uint32_t *sends, const uint32_t *next,
                uint32_t start) {
  const struct nt_model_rank *rank = &inquiry->job->model->ranks[start];
  const struct nt_model_call *call = &rank->calls[sends[start]];
  struct nt_finding *finding =
      nt_inquiry_add(inquiry, NT_CLASS_P2P, inquiry->job->places[start][call->view].joint);
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = call->fn;
  finding->seq = call->seq;
  finding->since_ns = call->enter_ns;
  finding->confidence = NT_LIKELY;
  uint32_t r = start;
  int status = 0;
  do {
    char line[NT_DESCRIBE];
    const struct nt_model_rank *other = &inquiry->job->model->ranks[r];
    status = nt_finding_add(inquiry->job, &finding->blame, r);
    if (!status)
      status = nt_finding_add(inquiry->job, &finding->waiting, r);
    if (other->calls[sends[r]].enter_ns < finding->since_ns)
      finding->since_ns = other->calls[sends[r]].enter_ns;
    if (finding->evidence.count < 16)
      nt_lines_add(&finding->evidence, "rank %d calls %s before its receive, outside of a group",
                   other->world, nt_describe_call(line, sizeof line, inquiry->job, r, sends[r]));
    r = next[r];
  } while (r != start && !status);
  char who[NT_DESCRIBE];
  nt_finding_say(finding, "%s all send first, and the messages are too large to be buffered",
                 nt_describe_ranks(who, sizeof who, &finding->blame));
  return status;
}

int nt_judge_send_cycles(struct nt_inquiry *inquiry) {
  uint32_t ranks = inquiry->job->model->rank_count;
  if (nt_inquiry_explains(inquiry) || !inquiry->p2p.count)
    return 0;
  uint32_t *sends = malloc(((size_t)ranks + 1) * sizeof *sends);
  uint32_t *next = malloc(((size_t)ranks + 1) * sizeof *next);
  uint32_t *visit = calloc((size_t)ranks + 1, sizeof *visit);
  int status = sends && next && visit ? 0 : -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < ranks && !status; r++) {
    sends[r] = last_send(inquiry, r);
    next[r] = NT_NONE;
  }
  if (!status)
    find_next(inquiry, sends, next);
  for (uint32_t r = 0; r < ranks && !status; r++) {
    uint32_t at = r;
    while (at != NT_NONE && !visit[at]) {
      visit[at] = r + 1;
      at = next[at];
    }
    if (at != NT_NONE && visit[at] == r + 1)
      status = tell(inquiry, sends, next, at);
  }
  free(sends);
  free(next);
  free(visit);
  return status;
}
