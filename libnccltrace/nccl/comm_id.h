/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes two ranks' communicators the same one.
 *
 * NCCL's own commHash is not unique (all shrinks of a parent share it, and with NCCL_COMM_ID every
 * unique id is equal) and its making changed between releases, so identity is derived here from
 * arguments that all ranks pass alike. Pure functions, any thread.
 */
#ifndef NT_COMM_ID_H
#define NT_COMM_ID_H

#include <stddef.h>
#include <stdint.h>

struct nt_id128 {
  uint64_t lo, hi;
};

/* Hash of `size` bytes, the same in every build and on every machine (XXH3, 128 bits). */
struct nt_id128 nt_hash(const void *data, size_t size);

/* init: the first unique id, the size, and how often this rank of it was made before (from 1). */
struct nt_id128 nt_comm_id_init(struct nt_id128 uid_hash, int nranks, uint32_t ordinal);
/* split: k counts the splits and grows of the parent from 1; ranks without a colour call too. */
struct nt_id128 nt_comm_id_split(struct nt_id128 parent, uint32_t k, int color);
/* shrink: `excluded` is the hash of the sorted exclude list, ordinal counts uses of that list. */
struct nt_id128 nt_comm_id_shrink(struct nt_id128 parent, struct nt_id128 excluded,
                                  uint32_t ordinal);
/* grow, of a rank of the parent: k as for splits. */
struct nt_id128 nt_comm_id_grow(struct nt_id128 parent, uint32_t k, int nranks);
/* grow, of a new rank: it knows the unique id only, and of the others only one does. The tools join the two by
 * what that one passed. */
struct nt_id128 nt_comm_id_grow_new(struct nt_id128 uid_hash, int nranks);

/* Where in a unique id (128 bytes) the socket address of the bootstrap root begins: behind 8 bytes of random since
 * NCCL 2.16, with the first byte before. */
size_t nt_unique_id_address(const void *id);

#endif
