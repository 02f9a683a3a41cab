/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of one thread: the 64 bytes that the wrapper writes and everything later reads.
 *
 * Written by the application's thread into its own chunk (ring.h), copied by the helper into
 * frames (codec.h), and read back by the tools (reader.h). Fixed width, little-endian, no padding;
 * docs/FORMAT.md is the specification and tests/unit/test_format.c compares the two.
 */
#ifndef NT_RECORD_H
#define NT_RECORD_H

#include <stdint.h>

struct nt_record {
  uint64_t enter;    /*  0 clock ticks (clock.h) when the application called */
  uint32_t duration; /*  8 encoded ticks from enter to return, nt_duration_decode() */
  uint32_t seq;      /* 12 1-based position, see below; 0 if the call has none */
  uint64_t count;    /* 16 elements as passed; see "overloads" */
  uint64_t send;     /* 24 send buffer, or an overload */
  uint64_t recv;     /* 32 receive buffer, or an overload */
  int32_t peer;      /* 40 root, p2p peer, colour; -1 if none */
  uint32_t stack;    /* 44 interned stack id, 0 if none */
  uint32_t launch;   /* 48 number of the launch on its stream, 0 if not known; see "captured" */
  uint16_t comm;     /* 52 slot in the area, 0 if none; frames hold the communicator number */
  uint16_t stream;   /* 54 slot in the area, 0 if none; frames hold the stream number */
  uint16_t group;    /* 56 low bits of the thread's group number; 0 outside a group */
  uint8_t fn;        /* 58 enum nt_fn */
  uint8_t dtype;     /* 59 ncclDataType_t, NT_OTHER, 255 if none */
  uint8_t op;        /* 60 ncclRedOp_t, see "operators"; 255 if none */
  uint8_t result;    /* 61 ncclResult_t or NT_OTHER once closed; NT_RESULT_OPEN while inside NCCL */
  uint16_t flags;    /* 62 NT_CALL_* */
};
_Static_assert(sizeof(struct nt_record) == 64, "a record is one cache line");

/*
 * seq. Collectives: position in the communicator, all of AllReduce … Scatter counted together.
 * Send and Recv: position in the (peer, direction) queue of the communicator, in which AlltoAll,
 * Gather and Scatter count once as well. Life-cycle calls: ordinal of their kind on `comm`.
 * A record is void (and its seq is used again) when the call was refused or its group discarded.
 *
 * Overloads. CommInitRank[Config|Scalable]: comm = the new communicator, peer = rank, count =
 * nranks. CommSplit: comm = parent, peer = colour, count = key (two's complement), recv = number
 * of the new communicator or 0. CommShrink: comm = parent, count = ranks excluded, send = hash of
 * the sorted list, recv = number of the new communicator. CommGrow: comm = parent, count = new
 * size, recv = number of the new communicator. RedOpCreatePreMulSum: op = the normalised number.
 * CommGetAsyncError: recorded when the reported error changes; count = the error.
 * GroupEnd: count = calls in the group. cudaGraphLaunch: recv = the executable graph, count = the capture it was
 * made by. A call that puts a graph into another (cudaGraphAddChildGraphNode, cudaStreamEndCapture of a capture into a
 * graph): recv = the other graph, count = number of what is put into it, and above 32 bits of what it held; launch = its
 * number from then on, with bit 31, of no capture.
 * PutSignal, Signal, WaitSignal: recv = context << 32 | number of the signal; of a WaitSignal a record for each descriptor,
 * peer = who has to send, count = how many signals.
 *
 * Captured. Such a call moves nothing and launches nothing; launch is CUDA's number of the capture, 0 if not
 * known. A collective takes its place in the sequence all the same, once, whatever is replayed; a send or receive
 * takes none, since the queues of messages know only what is carried out.
 */

/*
 * Operators. NCCL's own have NCCL's numbers. Those of the application have handles that differ between ranks: they
 * count by their creation on the communicator, from NT_OP_USER and after NT_OP_USERS of them again. What is neither
 * is an operator of a newer NCCL, NT_OP_NEWER + its number, or one whose creation was not seen, NT_OTHER.
 */
enum { NT_OP_USER = 5, NT_OP_USERS = 200, NT_OP_NEWER = NT_OP_USER + NT_OP_USERS - 5 };

#define NT_OTHER 254 /* a value that has no place in a byte */
#define NT_RESULT_OPEN 255

/* A number as a byte has it: NT_OTHER if it does not fit. */
static inline uint8_t nt_byte_of(int64_t value) {
  return value >= 0 && value < NT_OTHER ? (uint8_t)value : NT_OTHER;
}

/* An operator that is none of the known and none of the application's. Handles of the latter are spread over 31 bits. */
static inline uint8_t nt_op_newer(int64_t op) {
  return op >= NT_OP_USER && op < NT_OTHER - NT_OP_NEWER ? (uint8_t)(NT_OP_NEWER + op) : NT_OTHER;
}

#define NT_CALL_IN_PLACE 0x0001    /* send and receive buffer coincide */
#define NT_CALL_VOID 0x0002        /* refused by NCCL, or its group was discarded */
#define NT_CALL_ABANDONED 0x0004   /* never returned: longjmp, exception, thread cancellation */
#define NT_CALL_CAPTURED 0x0008    /* issued under stream capture */
#define NT_CALL_NO_STACK 0x0010    /* a stack was wanted and could not be had */
#define NT_CALL_IN_PROGRESS 0x0020 /* returned ncclInProgress: committed, launched later */

/* Durations below 2^31 ticks are exact; longer ones keep 31 bits in units of 2^16 ticks. */
static inline uint32_t nt_duration_encode(uint64_t ticks) {
  if (ticks < (UINT64_C(1) << 31))
    return (uint32_t)ticks;
  ticks >>= 16;
  if (ticks >= (UINT64_C(1) << 31))
    ticks = (UINT64_C(1) << 31) - 1;
  return (uint32_t)(ticks | (UINT64_C(1) << 31));
}

static inline uint64_t nt_duration_decode(uint32_t encoded) {
  if (encoded & (UINT32_C(1) << 31))
    return (uint64_t)(encoded & 0x7fffffffu) << 16;
  return encoded;
}

#endif
