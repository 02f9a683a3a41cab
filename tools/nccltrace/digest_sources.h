/* SPDX-License-Identifier: Apache-2.0 */
/* What nccltrace digest is to cut: each process once, with what a first look saw of it. */
#ifndef NT_DIGEST_SOURCES_H
#define NT_DIGEST_SOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/reader.h"

struct nt_digest_source {
  char *path; /* trace file or area */
  char *file; /* where its trace file lies, "" if it has none */
  uint32_t pid;
  uint64_t start_time, nonce;
  bool live;
  int64_t last_ns;    /* its last call of NCCL */
  uint64_t gpu_steps; /* launches that its streams had come to and finished */
};

struct nt_digest_sources {
  struct nt_digest_source *items;
  size_t count, room;
  bool failed; /* some could not be opened: said on stderr */
};

/* Files, directories with the processes that write there, or, if there are none, all processes of the node.
 * Returns 0 or -NT_ERR_MEMORY; free it either way. */
int nt_digest_sources_find(char **paths, int count, struct nt_digest_sources *out);
void nt_digest_sources_free(struct nt_digest_sources *sources);

/* Since the first look it made a call, or its GPU got further. */
bool nt_digest_moved(const struct nt_digest_source *source, const struct nt_trace *trace);

#endif
