/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events, shared by the three simulated libraries. A stream handle is a pointer to its
 * CUstream_st; NULL and cudaStreamLegacy are the device's legacy stream, cudaStreamPerThread the thread's own.
 */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "sim_device.h"

/* Runs on the stream's worker thread when everything before it has finished. It must free arg. */
typedef void sim_stream_fn(void *arg);

struct sim_stream;

SIM_EXPORT CUresult sim_stream_create(CUstream *out, unsigned int flags);
/* Returns at once; queued work still runs, as in CUDA. */
SIM_EXPORT CUresult sim_stream_destroy(CUstream handle);
/* A handle's stream, or NULL for a handle that is none. The reference is borrowed. */
SIM_EXPORT struct sim_stream *sim_stream_find(CUstream handle);
SIM_EXPORT int sim_stream_device(const struct sim_stream *s);
SIM_EXPORT uint64_t sim_stream_id(const struct sim_stream *s);
SIM_EXPORT unsigned int sim_stream_flags(const struct sim_stream *s);

/* Appends work and returns its ticket: tickets of a stream count from 1. */
SIM_EXPORT uint64_t sim_stream_enqueue(struct sim_stream *s, sim_stream_fn *fn, void *arg);
/* The same for what would occupy CUDA's launch queue: blocks the caller while 1024 are pending. */
SIM_EXPORT uint64_t sim_stream_launch(struct sim_stream *s, sim_stream_fn *fn, void *arg);
/* Runs short work in the caller's thread if the stream is idle, else appends it. */
SIM_EXPORT uint64_t sim_stream_enqueue_short(struct sim_stream *s, sim_stream_fn *fn, void *arg);
/* Work appended to s from now on waits for other's ticket. */
SIM_EXPORT void sim_stream_wait_ticket(struct sim_stream *s, struct sim_stream *other,
                                       uint64_t ticket);
/* The ticket of the last work appended to s. */
SIM_EXPORT uint64_t sim_stream_last_ticket(struct sim_stream *s);
/* A stream stays valid after its destruction as long as a reference is held. */
SIM_EXPORT void sim_stream_ref(struct sim_stream *s);
SIM_EXPORT void sim_stream_unref(struct sim_stream *s);

SIM_EXPORT bool sim_stream_is_idle(struct sim_stream *s);
SIM_EXPORT void sim_stream_sync(struct sim_stream *s);
SIM_EXPORT void sim_stream_sync_ticket(struct sim_stream *s, uint64_t ticket);
SIM_EXPORT void sim_stream_sync_device(int device);

/* The context's lock of drivers that keep it while they wait for the device; nothing unless NTSIM_DRIVER_LOCK=1. */
void sim_context_lock(int device);
void sim_context_unlock(int device);

SIM_EXPORT CUresult sim_event_create(CUevent *out, unsigned int flags);
SIM_EXPORT CUresult sim_event_destroy(CUevent event);
SIM_EXPORT CUresult sim_event_record(CUevent event, CUstream stream);
SIM_EXPORT CUresult sim_event_query(CUevent event);
SIM_EXPORT CUresult sim_event_sync(CUevent event);
SIM_EXPORT CUresult sim_event_elapsed(float *ms, CUevent start, CUevent end);
SIM_EXPORT CUresult sim_event_stream_wait(CUstream stream, CUevent event);

/* size bytes (4 or 8) at addr, compared as cuStreamWaitValue's flags say. */
SIM_EXPORT CUresult sim_stream_wait_value(CUstream stream, void *addr, uint64_t value, int size,
                                          unsigned int flags);
SIM_EXPORT CUresult sim_stream_write_value(CUstream stream, void *addr, uint64_t value, int size);
SIM_EXPORT CUresult sim_stream_copy(CUstream stream, void *dst, const void *src, size_t size);
SIM_EXPORT CUresult sim_stream_fill(CUstream stream, void *dst, int value, size_t size);
/* After a copy that a pageable side makes synchronous, and for the synchronous calls. */
SIM_EXPORT CUresult sim_stream_sync_handle(CUstream stream);

#endif
