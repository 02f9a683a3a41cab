/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that the recorders of all shapes share: start a record, make it visible, complete it; take
 * numbers and settle them. Used by the call_*.c files only, in the calling application thread.
 */
#ifndef NT_CALL_PARTS_H
#define NT_CALL_PARTS_H

#include "preload/call.h"

static inline bool nt_accepted(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

static inline uint64_t nt_now(void) {
  return nt_clock_ticks(nt_process.clock);
}

/* The next record with everything that all shapes share; not visible until nt_record_publish. NULL
 * if there is no room: the call is counted as lost. */
struct nt_record *nt_record_start(struct nt_call *call);

/* The same without a stack, for what is too frequent and of too little interest. */
struct nt_record *nt_record_start_bare(struct nt_call *call);

/* Makes the call's record visible as open. */
void nt_record_publish(struct nt_call *call);

/* Completes the record, if there is one, and leaves the call. */
void nt_record_finish(struct nt_call *call, ncclResult_t result);

/* Slot of a stream in the area, 0 if there is no room. `device` tells default streams apart, which have
 * the same handle on every device; -1 if not known. */
uint16_t nt_stream_slot(cudaStream_t stream, int device);

/* Slot of a stream that has one already, 0 otherwise. */
uint16_t nt_stream_known(cudaStream_t stream);

/* Whether what the thread launches on the stream is being captured; asked once a stream of a group. A capture that is
 * seen here is one with operations of NCCL. */
struct nt_cuda_capture nt_capture_seen(struct nt_thread *thread, uint16_t slot,
                                       cudaStream_t stream);

/* The operator as all ranks would number it: user operators by their order of creation. */
uint8_t nt_normal_op(const struct nt_comm *comm, int op);

/*
 * Numbers are taken at entry, so that a call that hangs inside NCCL already stands in its place, and
 * given back when the call is refused or its group discarded. All counters of a communicator are
 * atomic and relaxed: they are read by other processes at any time, and NCCL itself allows several
 * threads on one communicator only if they agree on an order.
 */
uint32_t nt_take_collective(struct nt_call *call, const struct nt_args *args, uint8_t op);
uint32_t nt_take_p2p(struct nt_comm *comm, enum nt_shape shape, int peer);

/* Takes back what a call has taken. */
void nt_give_back(const struct nt_pending *taken);

/* A call that took numbers has returned: keep them, give them back, or let the group decide. */
void nt_settle(struct nt_call *call, const struct nt_args *args, ncclResult_t result);

#endif
