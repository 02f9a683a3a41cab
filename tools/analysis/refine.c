/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of equal arguments pair up whatever was skipped, so their order says nothing to NCCL; but which
 * buffer comes next often does. Only a story that explains every later call is believed.
 */
#include "analysis/refine.h"

#include "analysis/edit.h"

static uint64_t mark(const struct nt_job *job, const struct nt_member *member, uint32_t position) {
  const struct nt_model_call *call = nt_member_call(job, member, position);
  if (!call || !call->buffer)
    return 0;
  return member->sig[position - member->first] ^ (call->buffer * UINT64_C(0x9e3779b97f4a7c15));
}

static uint32_t tail(const struct nt_job *job, const struct nt_member *member, uint32_t position,
                     uint64_t *out, uint32_t room) {
  uint32_t count = 0;
  for (uint32_t p = position; p <= member->called && count < room; p++)
    if (!(out[count++] = mark(job, member, p)))
      return 0;
  return count;
}

uint32_t nt_refine_skip(const struct nt_job *job, const struct nt_member *reference,
                        const struct nt_member *laggard) {
  uint64_t a[NT_EDIT_WINDOW], b[NT_EDIT_WINDOW];
  uint32_t p = reference->first > laggard->first ? reference->first : laggard->first;
  if (reference->called <= laggard->called)
    return 0;
  for (; p <= laggard->called; p++) {
    uint64_t x = mark(job, reference, p), y = mark(job, laggard, p);
    if (!x || !y)
      return 0;
    if (x != y)
      break;
  }
  if (p > laggard->called)
    return 0;
  uint32_t behind = reference->called - laggard->called;
  uint32_t m = tail(job, laggard, p, b, NT_EDIT_WINDOW / 2);
  uint32_t n = tail(job, reference, p, a, NT_EDIT_WINDOW);
  if (!m || !n)
    return 0;
  struct nt_edit edit = nt_edit_compare(a, n, b, m);
  return edit.how == NT_EDIT_SKIPPED && edit.matched == m && edit.run <= behind ? p : 0;
}
