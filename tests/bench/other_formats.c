/* SPDX-License-Identifier: Apache-2.0 */
#include "other_formats.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nccl/nccl_api.h"

static bool is_message(unsigned fn) {
  return fn == NT_FN_Send || fn == NT_FN_Recv;
}

size_t nccl_log_line(const struct nt_batch_call *call, char out[OTHER_FORMATS_MOST]) {
  const struct nt_record *r = &call->record;
  if (!nt_fn_is_collective(r->fn) && !is_message(r->fn))
    return 0;
  return (size_t)snprintf(out, OTHER_FORMATS_MOST,
                          "node0001:40000:40000 [0] NCCL INFO %s: opCount %" PRIx32
                          " sendbuff %p recvbuff %p count %" PRIu64
                          " datatype %d op %d root %d comm %p [nranks=8] stream %p\n",
                          nt_fn_name(r->fn), r->seq, (void *)(uintptr_t)r->send,
                          (void *)(uintptr_t)r->recv, r->count, r->dtype, r->op == 255 ? 0 : r->op,
                          r->peer < 0 ? 0 : r->peer,
                          (void *)(uintptr_t)(0x485f9580 + call->comm * 0x1000),
                          (void *)(uintptr_t)(0x5590c000 + call->stream * 64));
}

/* ---- a pickle, protocol 2 ------------------------------------------------------------------------ */

struct pickle {
  unsigned char *at;
};

static void put(struct pickle *p, int byte) {
  *p->at++ = (unsigned char)byte;
}

static void put_bytes(struct pickle *p, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    put(p, (int)(value >> 8 * i & 255));
}

/* Something that stands in the dump already. */
static void put_known(struct pickle *p, int place) {
  put(p, 'h');
  put(p, place);
}

static void put_int(struct pickle *p, uint64_t value) {
  if (value < 256) {
    put(p, 'K');
    put_bytes(p, value, 1);
  } else if (value < 65536) {
    put(p, 'M');
    put_bytes(p, value, 2);
  } else if (value < UINT64_C(1) << 31) {
    put(p, 'J');
    put_bytes(p, value, 4);
  } else {
    put(p, 0x8a);
    put(p, 8);
    put_bytes(p, value, 8);
  }
}

static void put_named(struct pickle *p, int key, uint64_t value) {
  put_known(p, key);
  put_int(p, value);
}

static void put_flag(struct pickle *p, int key, bool value) {
  put_known(p, key);
  put(p, value ? 0x88 : 0x89);
}

static void put_text(struct pickle *p, int key, int text) {
  put_known(p, key);
  put_known(p, text);
}

/* One tensor of one dimension, and its type. */
static void put_tensor(struct pickle *p, int sizes, int types, uint64_t count) {
  put_known(p, sizes);
  memcpy(p->at, "](](", 4);
  p->at += 4;
  put_int(p, count);
  memcpy(p->at, "ee", 2);
  p->at += 2;
  put_known(p, types);
  memcpy(p->at, "](", 2);
  p->at += 2;
  put_known(p, 47);
  put(p, 'e');
}

size_t flight_recorder_entry(const struct nt_batch_call *call, uint64_t number, int frames,
                             unsigned char out[OTHER_FORMATS_MOST]) {
  const struct nt_record *r = &call->record;
  const uint64_t nanoseconds = UINT64_C(1795962155000000000) + r->enter / 2;
  struct pickle p = {out};
  const bool message = is_message(r->fn);
  if (!nt_fn_is_collective(r->fn) && !message && r->fn != NT_FN_GroupEnd)
    return 0;
  put(&p, '}');
  put(&p, '(');
  put_known(&p, 16); /* frames */
  put(&p, ']');
  put(&p, '(');
  for (int i = 0; i < frames; i++)
    put_known(&p, 60 + i);
  put(&p, 'e');
  put_named(&p, 32, number);     /* record_id */
  put_named(&p, 33, call->comm); /* pg_id */
  put_known(&p, 34);             /* process_group */
  put_known(&p, 3);
  put_known(&p, 6);
  put(&p, 0x86);
  put_text(&p, 35, 36);                    /* thread_name */
  put_text(&p, 37, 38);                    /* thread_id */
  put_named(&p, 39, message ? 0 : r->seq); /* collective_seq_id */
  put_named(&p, 40, message ? r->seq : 0); /* p2p_seq_id */
  put_named(&p, 41, r->seq);               /* op_id */
  put_text(&p, 42, 43);                    /* profiling_name */
  put_named(&p, 44, nanoseconds);          /* time_created_ns */
  put_tensor(&p, 45, 46, r->count);        /* input_sizes, input_dtypes */
  put_tensor(&p, 48, 49, r->count);        /* output_sizes, output_dtypes */
  put_text(&p, 50, 57);                    /* state */
  put_known(&p, 52);                       /* time_discovered_started_ns */
  put(&p, 'N');
  put_named(&p, 53, nanoseconds); /* time_discovered_completed_ns */
  put_flag(&p, 54, true);         /* retired */
  put_named(&p, 55, 600000);      /* timeout_ms */
  put_flag(&p, 56, message);      /* is_p2p */
  put(&p, 'u');
  return (size_t)(p.at - out);
}
