/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of NCCL_DEBUG=INFO, as NCCL 2.18 to 2.30 spell it.
 *
 *   HOST:PID:TID [DEVICE] NCCL INFO AllReduce: opCount 3 sendbuff 0x… recvbuff 0x… count 1024 datatype 7
 *     op 0 root 0 comm 0x… [nranks=4] stream 0x…
 *   HOST:PID:TID [DEVICE] NCCL INFO ncclCommInitRank comm 0x… rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 60
 *     commId 0x… - Init START
 *
 * Fields are found by their names, so others may stand between them. In front of it a launcher may have put
 * the rank and anything else. Several processes that share a file may write into one line; each part that
 * begins as above is a line of its own. Pure functions.
 */
#ifndef NT_NCCL_LOG_LINE_H
#define NT_NCCL_LOG_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nt_log_kind {
  NT_LOG_OTHER,
  NT_LOG_CALL,
  NT_LOG_INIT_START,
  NT_LOG_INIT_COMPLETE,
  NT_LOG_DESTROYED,
  NT_LOG_ABORTED, /* or revoked */
  NT_LOG_VERSION,
  NT_LOG_WARNING,
  NT_LOG_REMOTE_ERROR, /* a call inside NCCL got ncclRemoteError */
  NT_LOG_DAMAGED,      /* begins as a call or a creation, and has not all of its fields */
};

/* Texts point into the line. */
struct nt_log_line {
  enum nt_log_kind kind;
  const char *host, *text; /* text: what stands behind "NCCL INFO " */
  size_t host_length, text_length;
  uint32_t pid, tid;
  int32_t label; /* rank that the launcher put in front, -1 if none */
  uint8_t fn;    /* enum nt_fn of a call or creation */
  uint64_t comm, parent, comm_id, op_count, count, send, recv, pci;
  int32_t dtype, op, root, rank, nranks, device, color;
  int64_t child; /* number among the children of the parent, -1 if not told */
  bool has_id, has_parent;
  bool glued; /* stands behind another in one line: its host may have the end of a word in front */
};

/* The first part of NCCL's in [line, line + length) that begins at or behind *at. Returns false if there is
 * none; else fills `out` and sets *at behind it. */
bool nt_log_line_next(const char *line, size_t length, size_t *at, struct nt_log_line *out);

#endif
