/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Neighbours on the node: who vanished first.
 *
 * When a scheduler has killed everything, the order of deaths is in nobody's own trace. So each helper looks at
 * the locks of the other processes of its job and notes the moment one becomes free. It notes whom it knows, too: whose lock
 * none of these saw free, though its heart had stopped, was stopped and not dead. Helper thread only.
 */
#ifndef NT_PEERS_H
#define NT_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/area.h"

struct nt_peer {
  struct nt_area area; /* mapped read-only, kept open so that its lock can be asked for */
  bool gone;           /* its note says so already */
};

enum { NT_STRANGERS = 64 };

struct nt_peers {
  struct nt_peer peer[NT_PEER_NOTES]; /* the note of each is at the same place */
  unsigned count;
  int directory; /* where the areas lie */
  uint64_t stranger
      [NT_STRANGERS]; /* names of areas of other jobs and of the dead, not to be opened again */
  unsigned strangers; /* so many were met; the latest are kept */
};

/* Before all else; keeps a descriptor of the directory. */
void nt_peers_start(struct nt_peers *peers, const char *directory);

/* Finds new neighbours in `directory` and notes them in `own`'s header. */
void nt_peers_discover(struct nt_peers *peers, const char *directory, struct nt_area *own);

/* Whether an area was made or removed there in the last seconds: else looking would be opening others' areas again. */
bool nt_peers_may_have_come(const struct nt_peers *peers);

/* Notes those that have gone in `own`'s header: a system call a neighbour, so that the order of deaths is
 * known to one tick. */
void nt_peers_check(struct nt_peers *peers, struct nt_area *own);

#endif
