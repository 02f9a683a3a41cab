/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl/comm_id.h"

#include <string.h>
#include <sys/socket.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { TAG_INIT = 1, TAG_SPLIT = 2, TAG_SHRINK = 3, TAG_GROW = 4, TAG_GROW_NEW = 5 };

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

struct nt_id128 nt_comm_id_grow(struct nt_id128 parent, uint32_t k, int nranks) {
  return derive(TAG_GROW, parent, k, (uint32_t)nranks, 0);
}

struct nt_id128 nt_comm_id_grow_new(struct nt_id128 uid_hash, int nranks) {
  return derive(TAG_GROW_NEW, uid_hash, (uint32_t)nranks, 0, 0);
}

size_t nt_unique_id_address(const void *id) {
  const size_t places[2] = {8, 0};
  for (int i = 0; i < 2; i++) {
    sa_family_t family;
    memcpy(&family, (const char *)id + places[i], sizeof(family));
    if (family == AF_INET || family == AF_INET6)
      return places[i];
  }
  return places[0];
}
