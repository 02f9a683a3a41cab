/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl/comm_id.h"

#include <string.h>

#include "nccl/nccl_api.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { TAG_INIT = 1, TAG_SPLIT = 2, TAG_SHRINK = 3, TAG_GROW = 4 };

/* Fixed-width words in a fixed order: ids must agree between builds. */
static struct nt_id128 derive(uint64_t tag, struct nt_id128 base, uint64_t a, uint64_t b,
                              uint64_t c) {
  const uint64_t words[6] = {tag, base.lo, base.hi, a, b, c};
  return nt_hash(words, sizeof(words));
}

struct nt_id128 nt_hash(const void *data, size_t size) {
  XXH128_hash_t h = XXH3_128bits(data, size);
  return (struct nt_id128){.lo = h.low64, .hi = h.high64};
}

struct nt_id128 nt_comm_id_init(struct nt_id128 uid_hash, int nranks, uint32_t ordinal) {
  return derive(TAG_INIT, uid_hash, (uint32_t)nranks, ordinal, 0);
}

struct nt_id128 nt_comm_id_split(struct nt_id128 parent, uint32_t k, int color) {
  return derive(TAG_SPLIT, parent, k, (uint32_t)color, 0);
}

struct nt_id128 nt_comm_id_shrink(struct nt_id128 parent, struct nt_id128 excluded,
                                  uint32_t ordinal) {
  return derive(TAG_SHRINK, parent, excluded.lo, excluded.hi, ordinal);
}

struct nt_id128 nt_comm_id_grow(uint64_t magic, int nranks) {
  return derive(TAG_GROW, (struct nt_id128){0, 0}, magic, (uint32_t)nranks, 0);
}

/* The finaliser of splitmix64: a bijection whose output bits all depend on all input bits. */
static inline uint64_t scramble(uint64_t x) {
  x ^= x >> 30;
  x *= UINT64_C(0xbf58476d1ce4e5b9);
  x ^= x >> 27;
  x *= UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

uint64_t nt_signature(unsigned fn, uint64_t count, int dtype, int op, int root) {
  uint64_t kind = nt_fn_canonical(fn);
  if (nt_fn_moves_bytes(fn)) {
    size_t size = nt_dtype_size(dtype);
    count *= size ? size : 1;
    dtype = 0xff;
  }
  uint64_t fields = kind | (uint64_t)(uint8_t)dtype << 8 | (uint64_t)(uint8_t)op << 16 |
                    (uint64_t)(uint32_t)root << 32;
  return scramble(scramble(fields) + count);
}

uint64_t nt_signature_mix(uint64_t signature, uint32_t position) {
  return scramble(signature + position * UINT64_C(0x9e3779b97f4a7c15));
}
