/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases in which everything finishes: data of all collectives, types and operators, point-to-point
 * patterns and groups. Device memory is reached by copies only, so that the
 * same program tells the truth about real NCCL.
 */
#include "sim_selftest.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ncclDataType_t types[] = {ncclInt8,    ncclUint8,   ncclInt32,   ncclUint32,
                                       ncclInt64,   ncclUint64,  ncclFloat16, ncclFloat32,
                                       ncclFloat64, ncclBfloat16};
static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

/* Half precision for zero and for positive normal numbers, which is all that is used here. */
static uint16_t half_of(double v) {
  int exponent;
  double mantissa = frexp(v, &exponent);
  return v > 0 ? (uint16_t)(((exponent + 14) << 10) + (int)rint(mantissa * 2048) - 1024) : 0;
}

static double half_value(uint16_t h) {
  return h ? ldexp(1 + (h & 1023) / 1024.0, (h >> 10) - 15) : 0;
}

static void put(ncclDataType_t type, void *at, size_t i, double v) {
  float f = (float)v;
  uint32_t bits;
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    ((uint8_t *)at)[i] = (uint8_t)(int64_t)v;
    break;
  case ncclInt32:
  case ncclUint32:
    ((uint32_t *)at)[i] = (uint32_t)(int64_t)v;
    break;
  case ncclInt64:
  case ncclUint64:
    ((int64_t *)at)[i] = (int64_t)v;
    break;
  case ncclFloat16:
    ((uint16_t *)at)[i] = half_of(v);
    break;
  case ncclFloat32:
    ((float *)at)[i] = f;
    break;
  case ncclFloat64:
    ((double *)at)[i] = v;
    break;
  default:
    memcpy(&bits, &f, sizeof(bits));
    ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
  }
}

static double get(ncclDataType_t type, const void *at, size_t i) {
  float f;
  uint32_t bits;
  switch (type) {
  case ncclInt8:
    return ((const int8_t *)at)[i];
  case ncclUint8:
    return ((const uint8_t *)at)[i];
  case ncclInt32:
    return ((const int32_t *)at)[i];
  case ncclUint32:
    return ((const uint32_t *)at)[i];
  case ncclInt64:
    return (double)((const int64_t *)at)[i];
  case ncclUint64:
    return (double)((const uint64_t *)at)[i];
  case ncclFloat16:
    return half_value(((const uint16_t *)at)[i]);
  case ncclFloat32:
    return (double)((const float *)at)[i];
  case ncclFloat64:
    return ((const double *)at)[i];
  default:
    bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    memcpy(&f, &bits, sizeof(f));
    return (double)f;
  }
}

static double value(int rank, size_t i) {
  return 1 + (double)(((size_t)rank + i) % 2);
}

double st_reduced(int n, size_t i, ncclRedOp_t op) {
  double r = value(0, i);
  for (int k = 1; k < n; k++) {
    double v = value(k, i);
    r = op == ncclProd ? r * v : op == ncclMax ? fmax(r, v) : op == ncclMin ? fmin(r, v) : r + v;
  }
  return op == ncclAvg ? r / n : r;
}

struct st_buffers st_buffers_new(struct st_rank *t, ncclDataType_t type, size_t elements) {
  struct st_buffers b = {.bytes = elements * sizes[type]};
  b.host = malloc(b.bytes + 1);
  b.send = st_buffer(b.bytes);
  b.recv = st_buffer(b.bytes);
  for (size_t i = 0; i < elements; i++)
    put(type, b.host, i, value(t->rank, i));
  ST_CHECK(cudaMemcpy(b.send, b.host, b.bytes, cudaMemcpyHostToDevice));
  return b;
}

void st_fetch(struct st_rank *t, struct st_buffers *b, const void *from) {
  ST_CHECK(cudaStreamSynchronize(t->stream));
  ST_CHECK(cudaMemcpy(b->host, from, b->bytes, cudaMemcpyDeviceToHost));
}

void st_release(struct st_buffers *b) {
  ST_CHECK(cudaFree(b->send));
  ST_CHECK(cudaFree(b->recv));
  free(b->host);
}

void st_expect(ncclDataType_t type, const struct st_buffers *b, size_t i, double v,
               const char *what) {
  char one[16];
  put(type, one, 0, v);
  double want = get(type, one, 0), have = get(type, b->host, i);
  if (fabs(have - want) > (sizes[type] == 2 ? 0.02 : 1e-6) * fabs(want))
    st_fail("%s type %d element %zu: %g instead of %g", what, type, i, have, want);
}

void st_check_reductions(struct st_rank *t, ncclDataType_t type, size_t count, ncclRedOp_t op) {
  int n = t->nranks, root = n / 2;
  struct st_buffers b = st_buffers_new(t, type, count * (size_t)n);
  ST_CHECK(ncclAllReduce(b.send, b.recv, count, type, op, t->comm, t->stream));
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    st_expect(type, &b, i, st_reduced(n, i, op), "allreduce");
  ST_CHECK(ncclReduce(b.send, b.recv, count, type, op, root, t->comm, t->stream));
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    st_expect(type, &b, i, st_reduced(n, i, op), "reduce");
  ST_CHECK(ncclReduceScatter(b.send, b.recv, count, type, op, t->comm, t->stream));
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    st_expect(type, &b, i, st_reduced(n, (size_t)t->rank * count + i, op), "reducescatter");
  ST_CHECK(ncclAllReduce(b.send, b.send, count, type, op, t->comm, t->stream));
  st_fetch(t, &b, b.send);
  for (size_t i = 0; i < count; i++)
    st_expect(type, &b, i, st_reduced(n, i, op), "allreduce in place");
  st_release(&b);
}

void st_check_moves(struct st_rank *t, ncclDataType_t type, size_t count) {
  int n = t->nranks, root = n - 1;
  size_t all = count * (size_t)n;
  struct st_buffers b = st_buffers_new(t, type, all);
  ST_CHECK(ncclBroadcast(b.send, b.recv, count, type, root, t->comm, t->stream));
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    st_expect(type, &b, i, value(root, i), "broadcast");
  ST_CHECK(ncclAllGather(b.send, b.recv, count, type, t->comm, t->stream));
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; i < all; i++)
    st_expect(type, &b, i, value((int)(i / count), i % count), "allgather");
  ST_CHECK(ncclAlltoAll(b.send, b.recv, count, type, t->comm, t->stream));
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; i < all; i++)
    st_expect(type, &b, i, value((int)(i / count), (size_t)t->rank * count + i % count),
              "alltoall");
  ST_CHECK(cudaMemset(b.recv, 0, b.bytes));
  ST_CHECK(ncclGather(b.send, b.recv, count, type, root, t->comm, t->stream));
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; t->rank == root && i < all; i++)
    st_expect(type, &b, i, value((int)(i / count), i % count), "gather");
  ST_CHECK(ncclScatter(b.send, b.recv, count, type, root, t->comm, t->stream));
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    st_expect(type, &b, i, value(root, (size_t)t->rank * count + i), "scatter");
  ST_CHECK(ncclBcast(b.send, count, type, root, t->comm, t->stream));
  st_fetch(t, &b, b.send);
  for (size_t i = 0; i < count; i++)
    st_expect(type, &b, i, value(root, i), "bcast");
  st_release(&b);
}

static void all_types(struct st_rank *t) {
  static const size_t counts[] = {1, 7, 33, 1000};
  for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
    for (size_t c = 0; c < 4; c++) {
      st_check_moves(t, types[k], counts[c]);
      for (ncclRedOp_t op = ncclSum; op <= ncclAvg; op++)
        st_check_reductions(t, types[k], counts[c], op);
    }
  }
}

static void large(struct st_rank *t) {
  st_check_moves(t, ncclFloat32, 300001);
  st_check_reductions(t, ncclFloat32, 300001, ncclSum);
  st_check_reductions(t, ncclFloat64, 700001, ncclMax);
}

/* A ring of messages of many sizes, each rank sending to the next inside a group. */
static void p2p_ring(struct st_rank *t) {
  static const size_t counts[] = {0, 1, 5, 16384, 40000, 3000000};
  int next = (t->rank + 1) % t->nranks, prev = (t->rank + t->nranks - 1) % t->nranks;
  for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
    struct st_buffers b = st_buffers_new(t, ncclFloat32, counts[c]);
    ST_CHECK(ncclGroupStart());
    ST_CHECK(ncclSend(b.send, counts[c], ncclFloat32, next, t->comm, t->stream));
    ST_CHECK(ncclRecv(b.recv, counts[c], ncclFloat32, prev, t->comm, t->stream));
    ST_CHECK(ncclGroupEnd());
    st_fetch(t, &b, b.recv);
    for (size_t i = 0; i < counts[c]; i++)
      st_expect(ncclFloat32, &b, i, value(prev, i), "ring");
    st_release(&b);
  }
}

/* First in, first out between two ranks, in a group and over several calls. */
static void p2p_fifo(struct st_rank *t) {
  struct st_buffers b = st_buffers_new(t, ncclInt32, 64);
  int32_t *send = b.send, *recv = b.recv, host[64];
  for (int i = 0; i < 64; i++)
    host[i] = 100 * t->rank + i;
  ST_CHECK(cudaMemcpy(send, host, sizeof(host), cudaMemcpyHostToDevice));
  for (int i = 0; i < 64; i++) {
    if (i == 32)
      ST_CHECK(ncclGroupStart());
    if (t->rank == 0)
      ST_CHECK(ncclSend(send + i, 1, ncclInt32, 1, t->comm, t->stream));
    else
      ST_CHECK(ncclRecv(recv + i, 1, ncclInt32, 0, t->comm, t->stream));
  }
  ST_CHECK(ncclGroupEnd());
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; t->rank == 1 && i < 64; i++)
    st_expect(ncclInt32, &b, i, (double)i, "fifo");
}

/* Two streams in one group, the second behind slow work; later work of both waits for the group. */
static void group_streams(struct st_rank *t) {
  struct st_buffers a = st_buffers_new(t, ncclFloat32, 5000),
                    b = st_buffers_new(t, ncclFloat32, 100);
  ST_CHECK(ncclGroupStart());
  ST_CHECK(ncclAllReduce(a.send, a.recv, t->rank ? 5000 : 5000, ncclFloat32, ncclSum, t->comm,
                         t->stream));
  ST_CHECK(ncclAllReduce(b.send, b.recv, 100, ncclFloat32, ncclSum, t->comm, t->side));
  ST_CHECK(ncclAllReduce(b.send, b.send, 50, ncclFloat32, ncclMax, t->other, t->side));
  ST_CHECK(ncclGroupEnd());
  ST_CHECK(cudaStreamSynchronize(t->side));
  st_fetch(t, &a, a.recv);
  st_fetch(t, &b, b.recv);
  st_expect(ncclFloat32, &a, 4999, st_reduced(t->nranks, 4999, ncclSum), "first");
  st_expect(ncclFloat32, &b, 99, st_reduced(t->nranks, 99, ncclSum), "second");
}

/* A refused call poisons its group, a simulated group does nothing; neither counts anywhere. */
static void group_errors(struct st_rank *t) {
  struct st_buffers b = st_buffers_new(t, ncclFloat32, 100);
  ncclSimInfo_t info = {.size = sizeof(info)};
  if (t->rank == 0) {
    ST_CHECK(ncclGroupStart());
    ST_CHECK(ncclAllReduce(b.send, b.recv, 100, ncclFloat32, ncclSum, t->comm, t->stream));
    ST_TRUE(ncclBroadcast(b.send, b.recv, 1, ncclFloat32, 99, t->comm, t->stream) ==
            ncclInvalidArgument);
    ST_TRUE(ncclGroupEnd() == ncclInvalidArgument);
    ST_CHECK(ncclGroupStart());
    ST_CHECK(ncclAllReduce(b.send, b.recv, 100, ncclFloat32, ncclSum, t->comm, t->stream));
    ST_CHECK(ncclGroupSimulateEnd(&info));
  }
  ST_TRUE(ncclGroupEnd() == ncclInvalidUsage);
  ST_TRUE(ncclAllReduce(b.send, b.recv, 1, ncclFloat32, ncclSum, NULL, t->stream) ==
          ncclInvalidArgument);
  ST_TRUE(ncclAllReduce(b.send, b.recv, 1, 77, ncclSum, t->comm, t->stream) == ncclInvalidArgument);
  ST_TRUE(ncclAllReduce(b.send, b.recv, 1, ncclFloat32, 9, t->comm, t->stream) ==
          ncclInvalidArgument);
  ST_TRUE(ncclSend(b.send, 1, ncclFloat32, t->nranks, t->comm, t->stream) == ncclInvalidArgument);
  ST_CHECK(ncclAllReduce(b.send, b.recv, 100, ncclFloat32, ncclSum, t->comm, t->stream));
  st_fetch(t, &b, b.recv);
  st_expect(ncclFloat32, &b, 5, st_reduced(t->nranks, 5, ncclSum), "after errors");
}

static void premul(struct st_rank *t) {
  struct st_buffers b = st_buffers_new(t, ncclFloat32, 10);
  ncclRedOp_t op;
  float factor = 3;
  ST_CHECK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, t->comm));
  ST_CHECK(ncclAllReduce(b.send, b.recv, 10, ncclFloat32, op, t->comm, t->stream));
  ST_CHECK(ncclRedOpDestroy(op, t->comm));
  st_fetch(t, &b, b.recv);
  for (size_t i = 0; i < 10; i++)
    st_expect(ncclFloat32, &b, i, 3 * st_reduced(t->nranks, i, ncclSum), "premul");
}

const struct st_case st_data_cases[] = {
    {"types-1", 1, "D", all_types, false},
    {"types-2", 2, "DD", all_types, false},
    {"types-3", 3, "DDD", all_types, false},
    {"types-4", 4, "DDDD", all_types, false},
    {"types-8", 8, "DDDDDDDD", all_types, false},
    {"large-1", 1, "D", large, false},
    {"large-2", 2, "DD", large, false},
    {"large-3", 3, "DDD", large, false},
    {"large-8", 8, "DDDDDDDD", large, false},
    {"p2p-ring-1", 1, "D", p2p_ring, false},
    {"p2p-ring-2", 2, "DD", p2p_ring, false},
    {"p2p-ring-4", 4, "DDDD", p2p_ring, false},
    {"p2p-fifo", 2, "DD", p2p_fifo, false},
    {"group-streams", 3, "DDD", group_streams, false},
    {"group-errors", 2, "DD", group_errors, false},
    {"premul", 3, "DDD", premul, false},
    {NULL, 0, NULL, NULL, false},
};
