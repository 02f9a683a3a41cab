/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of loading one trace; load_trace.c calls them once the calls are there. */
#ifndef NT_LOAD_PARTS_H
#define NT_LOAD_PARTS_H

#include "analysis/load_trace.h"
#include "analysis/model.h"

/* How far the device got with each call: from the marks of its stream, else from host waits that
 * returned. `calls` are those that rank->calls were made from, index by index. */
void nt_load_progress(struct nt_model_rank *rank, const struct nt_trace *trace,
                      const struct nt_call *calls);

/* When it first aborted a communicator, INT64_MAX if it did not: after that hung operations read as finished. */
int64_t nt_load_first_abort(const struct nt_model_rank *rank);
/* When the device came to calls and was done with them, from the same. Returns 0 or -NT_ERR_MEMORY. */
int nt_load_seen(struct nt_model_rank *rank, const struct nt_trace *trace,
                 const struct nt_call *calls);

/* Marks tell what was unfinished when somebody looked last; of a process that was stopped, or whose thread
 * for it is gone, that says nothing about `now_ns`. */
void nt_age_progress(struct nt_model_rank *rank, int64_t now_ns);

/* Of what size the messages are that were not read. Returns 0 or -NT_ERR_MEMORY. */
int nt_load_queues(struct nt_model_rank *rank, struct nt_trace *trace);

/* Stacks of the last calls, from the same. Returns 0 or a negative enum nt_err. */
int nt_load_stacks(struct nt_model_rank *rank, struct nt_trace *trace, const struct nt_call *calls);

/* The texts of one stack. Returns 0 or a negative enum nt_err; out's texts are the caller's either way. */
int nt_load_stack(struct nt_model_stack *out, const struct nt_stack_frame *frames, size_t count,
                  bool cut);

/* The newest dump. Returns 0 or a negative enum nt_err. */
int nt_load_dump(struct nt_model_rank *rank, const struct nt_trace *trace);

/* State, end and signs of life, from the trace alone. */
void nt_load_fate(struct nt_model_rank *rank, const struct nt_trace *trace);
/* What another process, `by`, noted; nothing happens if it is about a third one. Notes of those that are still there come
 * after all others. */
void nt_load_note(struct nt_model_rank *rank, const struct nt_peer_note *note,
                  const struct nt_model_rank *by);
/* Appends what the dumps' kernel logs tell of out-of-memory kills. Returns 0 or -NT_ERR_MEMORY. */
int nt_load_kernel_kills(const struct nt_trace *trace, struct nt_kernel_kill **list,
                         uint32_t *count);
/* Processes whose heart had stopped while their neighbours saw that they still were there. Before nt_model_settle. */
void nt_settle_stopped(struct nt_model *model);
/* Once all traces and notes are there: which of those that vanished were killed for memory. */
void nt_settle_kills(struct nt_model *model, const struct nt_kernel_kill *kills, uint32_t count);
/* What another rank's abort let go on a rank's device counts as it stood before: each rank itself knows only of its own abort. */
void nt_settle_released(struct nt_model *model);

/* NCCL's version and environment. Returns 0 or a negative enum nt_err. */
int nt_load_settings(struct nt_model_rank *rank, const struct nt_trace *trace);
/* What it tells of copies of NCCL that are not traced. 0 or -NT_ERR_MEMORY. */
int nt_load_untraced(struct nt_model_rank *rank, const struct nt_trace *trace);

#endif
