/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What belongs to one application thread: its place in the ring, the call it is in, its group.
 *
 * Thread-local with the initial-exec model: reaching it costs one instruction and never calls the
 * loader.
 */
#ifndef NT_THREAD_STATE_H
#define NT_THREAD_STATE_H

#include <stdint.h>

#include "preload/cuda_driver.h"
#include "preload/gpu_progress.h"
#include "preload/process.h"

struct nt_comm;
struct nt_library;

/* A call inside a group that has taken a number and gives it back if the group is discarded. */
struct nt_pending {
  struct nt_comm *comm;    /* on which it counts; the parent for splits */
  struct nt_comm *created; /* communicator that exists only if the group succeeds */
  uint64_t term;           /* of the running sum */
  int32_t peer;
  uint16_t shape;       /* enum nt_shape */
  uint16_t stream_slot; /* 0: launches nothing */
  cudaStream_t stream;
};

enum { NT_GROUP_STREAMS = 8 };

/* The launch of a group on one of its streams. */
struct nt_group_launch {
  uint16_t slot;
  cudaStream_t stream;
  struct nt_gpu_launch gpu;
};

struct nt_thread {
  struct nt_ring_writer ring;
  struct nt_record *open; /* of the outermost call, NULL outside and when it found no room */
  uintptr_t frame;        /* stack frame of the outermost wrapper, 0 outside */
  void *return_address;   /* as it lies in that frame */
  const struct nt_library *entered; /* of the outermost call, if it came by an entry; else NULL */
  struct nt_comm *last_comm;        /* most recently used communicator */
  const void *last_live;            /* its counters and its library, only to be asked for ahead */
  const struct nt_library *last_library;
  uint64_t last_stream;          /* key of the stream most recently used, 0 if none */
  uint16_t last_stream_slot;     /* its slot in the area */
  const void *recorded;          /* event that PyTorch has just recorded, NULL if none */
  cudaStream_t recorded_on;      /* its stream */
  cudaStream_t waiting, awaited; /* PyTorch has just had the first wait for the second … */
  bool waits_to_launch;          /* … in order to launch on it */
  uint32_t incarnation;          /* of the process for which `ring` is valid */
  uint32_t group_depth;
  uint32_t group; /* number of the group being built, 1…65535; meaningful while group_depth > 0 */
  uint16_t capture_slot; /* stream of the group that was asked last whether it is being captured */
  struct nt_cuda_capture capture; /* its answer */
  bool pending_creates;           /* a communicator, at least one of the pending calls */
  bool ends_group;                /* the open call is the end of the outermost group */
  uint32_t pending_count, pending_capacity;
  struct nt_pending *pending;
  uint32_t launch_count; /* of the group that is being ended; streams beyond the room go unmarked */
  struct nt_group_launch launches[NT_GROUP_STREAMS];
};

extern __thread struct nt_thread nt_thread __attribute__((tls_model("initial-exec")));

/* What a thread has is given back when it ends, from now on. Before any is registered, once in a process and its
 * children; without it the helper finds what ended threads leave. */
void nt_threads_start(void);

/* Gives the thread its number and table entry: once per thread. errno is kept. */
void nt_thread_register(struct nt_thread *thread);

/* Makes room for more entries in the thread's pending list; false if memory cannot be had. Once in a group that is
 * larger than any before. */
bool nt_thread_pend_more(struct nt_thread *thread);

/* Adds one entry to the list, NULL if memory cannot be had. */
static inline struct nt_pending *nt_thread_pend(struct nt_thread *thread) {
  if (NT_UNLIKELY(thread->pending_count == thread->pending_capacity) &&
      !nt_thread_pend_more(thread))
    return NULL;
  return &thread->pending[thread->pending_count++];
}

#endif
