/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From PyTorch's names of operations, types and shapes to NCCL's.
 *
 * A recorder writes down the tensors that PyTorch was given; NCCL counts what one rank puts in, or of a scattering
 * operation what it gets out. What is all-to-all may be split unevenly, and nothing says so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/flight_parts.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

static const struct {
  const char *name;
  uint8_t fn;
} operations[] = {
    {"all_reduce", NT_FN_AllReduce},
    {"all_reduce_barrier", NT_FN_AllReduce},
    {"allreduce_coalesced", NT_FN_AllReduce},
    {"barrier", NT_FN_AllReduce},
    {"broadcast", NT_FN_Broadcast},
    {"_broadcast_oop", NT_FN_Broadcast},
    {"reduce", NT_FN_Reduce},
    {"_reduce_oop", NT_FN_Reduce},
    {"all_gather", NT_FN_AllGather},
    {"all_gather_single", NT_FN_AllGather},
    {"_all_gather_base", NT_FN_AllGather},
    {"all_gather_into_tensor_coalesced", NT_FN_AllGather},
    {"ALLGATHER_coalesced", NT_FN_AllGather},
    {"reduce_scatter", NT_FN_ReduceScatter},
    {"reduce_scatter_single", NT_FN_ReduceScatter},
    {"_reduce_scatter_base", NT_FN_ReduceScatter},
    {"reduce_scatter_tensor_coalesced", NT_FN_ReduceScatter},
    {"REDUCE_SCATTER_coalesced", NT_FN_ReduceScatter},
    {"all_to_all", NT_FN_AlltoAll},
    {"all_to_all_single", NT_FN_AlltoAll},
    {"all_to_all_v_single", NT_FN_AlltoAll},
    {"gather", NT_FN_Gather},
    {"scatter", NT_FN_Scatter},
    {"send", NT_FN_Send},
    {"recv", NT_FN_Recv},
};

/* `scale` elements of NCCL's type make one of PyTorch's: a complex number, or bytes that NCCL has no type for. */
static const struct {
  const char *name;
  uint8_t dtype, scale;
} types[] = {
    {"Float", ncclFloat32, 1},
    {"BFloat16", ncclBfloat16, 1},
    {"Half", ncclFloat16, 1},
    {"Double", ncclFloat64, 1},
    {"Long", ncclInt64, 1},
    {"Int", ncclInt32, 1},
    {"Byte", ncclUint8, 1},
    {"Char", ncclInt8, 1},
    {"Bool", ncclUint8, 1},
    {"Short", ncclUint8, 2},
    {"UInt16", ncclUint8, 2},
    {"UInt32", ncclUint32, 1},
    {"UInt64", ncclUint64, 1},
    {"ComplexHalf", ncclFloat16, 2},
    {"ComplexFloat", ncclFloat32, 2},
    {"ComplexDouble", ncclFloat64, 2},
    {"Float8_e4m3fn", ncclFloat8e4m3, 1},
    {"Float8_e5m2", ncclFloat8e5m2, 1},
};

/* "0->1" of a send, "1<-0" of a receive. */
static void read_peers(const char *text, struct nt_flight_op *op) {
  int first, second;
  char arrow[3];
  if (sscanf(text, "%9d%2[<>-]%9d", &first, arrow, &second) != 3 || first < 0 || second < 0)
    op->fn = NT_FN_NONE;
  else if (op->fn == NT_FN_Send && !strcmp(arrow, "->"))
    op->source = first, op->destination = second;
  else if (op->fn == NT_FN_Recv && !strcmp(arrow, "<-"))
    op->destination = first, op->source = second;
  else
    op->fn = NT_FN_NONE;
}

struct nt_flight_op nt_flight_op(const struct nt_value *profiling_name) {
  struct nt_flight_op op = {.fn = NT_FN_NONE, .source = -1, .destination = -1};
  char text[96], *name = text, *rest;
  nt_value_copy(text, sizeof text, profiling_name);
  if ((rest = strchr(name, ':')))
    name = rest + 1; /* "nccl:", "xccl:" … */
  if ((rest = strchr(name, ' ')))
    *rest++ = '\0';
  op.end = !strcmp(name, "coalesced") || !strcmp(name, "ALLGATHER_coalesced") ||
           !strcmp(name, "REDUCE_SCATTER_coalesced");
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
    if (!strcmp(name, operations[i].name))
      op.fn = operations[i].fn;
  if (op.fn == NT_FN_Send || op.fn == NT_FN_Recv)
    read_peers(rest ? rest : "", &op);
  return op;
}

/* Elements of all tensors; 0 for none. Saturates. */
static uint64_t elements(const struct nt_value *sizes) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < nt_value_count(sizes); i++) {
    const struct nt_value *shape = nt_value_at(sizes, i);
    uint64_t product = 1;
    for (uint32_t j = 0; j < nt_value_count(shape); j++) {
      int64_t size = nt_value_integer(nt_value_at(shape, j), 0);
      if (__builtin_mul_overflow(product, (uint64_t)(size < 0 ? 0 : size), &product))
        return NT_COUNT_UNKNOWN;
    }
    if (__builtin_add_overflow(total, product, &total))
      return NT_COUNT_UNKNOWN;
  }
  return total;
}

uint64_t nt_flight_count(uint8_t fn, const struct nt_flight_sizes *sizes, uint8_t *dtype) {
  bool by_output =
      fn == NT_FN_ReduceScatter || fn == NT_FN_Scatter || fn == NT_FN_Broadcast || fn == NT_FN_Recv;
  const struct nt_value *shapes = by_output ? sizes->output_sizes : sizes->input_sizes;
  const struct nt_value *kinds = by_output ? sizes->output_types : sizes->input_types;
  const struct nt_value *kind = nt_value_at(kinds, 0);
  if (!nt_value_count(shapes) && (fn == NT_FN_Recv || fn == NT_FN_Send || fn == NT_FN_Broadcast))
    shapes = by_output ? sizes->input_sizes : sizes->output_sizes; /* one tensor serves as both */
  if (!kind)
    kind = nt_value_at(by_output ? sizes->input_types : sizes->output_types, 0);
  uint64_t count = nt_value_count(shapes) ? elements(shapes) : NT_COUNT_UNKNOWN;
  *dtype = 255;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (nt_value_is_text(kind, types[i].name)) {
      *dtype = types[i].dtype;
      if (count <= UINT64_MAX / 16)
        count *= types[i].scale;
    }
  return fn == NT_FN_AlltoAll ? NT_COUNT_UNKNOWN : count;
}
