/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of an NCCL log: what was read, before it becomes the model.
 *
 * A log gives no times, so the order of the records of a file stands for time: the first is at 1.
 */
#ifndef NT_NCCL_LOG_H
#define NT_NCCL_LOG_H

#include <uthash.h>

#include "analysis/nccl_log_line.h"

struct nt_log_comm {
  uint8_t id[16], parent_id[16], uid_hash[16]; /* id 0: its creation is not in the log */
  uint64_t comm, pci;                          /* address of the handle */
  int32_t rank, nranks, device, color;
  uint32_t ordinal, thread; /* use of the unique id; of its creation, by number from 1 */
  uint16_t origin, state;   /* NT_COMM_* */
  uint8_t fn;
  uint32_t begin, end; /* order of its creation's lines; end 0: it did not complete */
  uint32_t destroyed;  /* order, 0: it was not */
  uint32_t collectives, transfers, pairs;
  uint32_t last;     /* call, as index + 1 */
  uint64_t op_count; /* of that */
};

struct nt_log_call {
  uint64_t count;
  uint32_t comm, thread, order, seq, group, buffer;
  int32_t peer;
  uint8_t fn, dtype, op;
};

struct nt_log_process {
  char *name; /* "HOST:PID" */
  size_t host_length;
  uint32_t pid, number;
  int32_t label; /* rank in front of its lines; -1: none, -2: several */
  bool several;  /* it has several ranks of one communicator: one for each device */
  struct nt_log_comm *comms;
  uint32_t comm_count, comm_room;
  struct nt_log_call *calls;
  uint32_t call_count, call_room;
  uint32_t threads, groups, damaged, begin;
  char version[64], warning[160], error[160]; /* "" if none; the first */
  uint32_t warning_line, error_line;
  uint32_t error_order, error_thread; /* of the newest error from a peer, 0: none */
  UT_hash_handle hh;
};

struct nt_log_counter;

struct nt_log {
  struct nt_log_process *processes; /* in the order of their first lines */
  struct nt_log_counter *counters;
  uint32_t order, process_count;
  uint32_t damaged, first_damaged; /* lines that should have been records; the first of them */
  bool cut;                        /* the last line has no end */
};

/* Reads the whole log. Returns 0 or -NT_ERR_MEMORY; free it either way. */
int nt_log_read(struct nt_log *log, const char *bytes, size_t size);
void nt_log_free(struct nt_log *log);

#endif
