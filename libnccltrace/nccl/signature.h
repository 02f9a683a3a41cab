/* SPDX-License-Identifier: Apache-2.0 */
/* What makes two calls the same operation, as a number. Inline: it is taken in every call. Pure functions. */
#ifndef NT_SIGNATURE_H
#define NT_SIGNATURE_H

#include "nccl/nccl_api.h"

/* The finaliser of splitmix64: a bijection whose output bits all depend on all input bits. */
static inline uint64_t nt_scramble(uint64_t x) {
  x ^= x >> 30;
  x *= UINT64_C(0xbf58476d1ce4e5b9);
  x ^= x >> 27;
  x *= UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/*
 * Signature of a collective: what all ranks must pass alike. Operations that only move bytes are
 * compared in bytes, user operators by their order of creation, Bcast and Broadcast are one.
 * `op` and `root` are -1 where the call has none.
 */
static inline __attribute__((always_inline)) uint64_t
nt_signature_of(struct nt_fn_kind kind, uint64_t count, int dtype, int op, int root) {
  if (kind.moves_bytes) {
    size_t size = nt_dtype_size(dtype);
    count *= size ? size : 1;
    dtype = 0xff;
  }
  uint64_t fields = kind.canonical | (uint64_t)(uint8_t)dtype << 8 | (uint64_t)(uint8_t)op << 16 |
                    (uint64_t)(uint32_t)root << 32;
  return nt_scramble(nt_scramble(fields) + count);
}

static inline uint64_t nt_signature(unsigned fn, uint64_t count, int dtype, int op, int root) {
  return nt_signature_of(nt_fn_kind(fn), count, dtype, op, root);
}

/* The term that one collective adds to a communicator's running sum: inside a group all members
 * take the position of the group's first call, which makes the sum free of their order. */
static inline uint64_t nt_signature_mix(uint64_t signature, uint32_t position) {
  return nt_scramble(signature + position * UINT64_C(0x9e3779b97f4a7c15));
}

#endif
