/* SPDX-License-Identifier: Apache-2.0 */
/* Trace files and live areas into the model. */
#ifndef NT_LOAD_TRACE_H
#define NT_LOAD_TRACE_H

#include "analysis/model.h"

/* The kernel's log on that host says that this process was killed for lack of memory. */
struct nt_kernel_kill {
  uint32_t pid;
  char host[64];
};

/* What a process noted of another of its node. */
struct nt_loaded_note {
  struct nt_peer_note note;
  uint32_t by; /* the loader's rank that noted it */
};

/* What one trace tells, copied out of it. */
struct nt_loaded_trace {
  struct nt_model_rank rank;
  struct nt_loaded_note *peers;
  uint32_t peer_count;
  struct nt_kernel_kill *kills; /* from its dumps */
  uint32_t kill_count;
};

/* One load of a job: add every trace, then finish. */
struct nt_trace_loader {
  struct nt_model model;
  struct nt_loaded_note *peers;
  uint32_t peer_count, peer_room;
  struct nt_kernel_kill *kills;
  uint32_t kill_count, kill_room;
};

/* Copies one process; the trace may be closed afterwards. Any thread. On failure (a negative enum nt_err, err
 * filled) there is nothing to free. */
int nt_trace_load(struct nt_trace *trace, const char *source, struct nt_loaded_trace *out,
                  struct nt_error *err);
void nt_loaded_trace_free(struct nt_loaded_trace *loaded);

/* Moves it into the model. On failure (-NT_ERR_MEMORY) both are as before. */
int nt_trace_loader_take(struct nt_trace_loader *loader, struct nt_loaded_trace *loaded);

/* Both at once. On failure (a negative enum nt_err, err filled) the model is as before. */
int nt_trace_loader_add(struct nt_trace_loader *loader, struct nt_trace *trace, const char *source,
                        struct nt_error *err);

/* Moves the ranks and notes of a loader that has nothing else into another. On failure (-NT_ERR_MEMORY) a part of them
 * stays where it was. */
int nt_trace_loader_join(struct nt_trace_loader *loader, struct nt_trace_loader *from);

/* Joins what processes noted of each other, settles the model and hands it over. `now_ns` is when the
 * job was looked at; 0 takes the newest sign of life. The loader is empty afterwards. */
int nt_trace_loader_finish(struct nt_trace_loader *loader, int64_t now_ns, struct nt_model *out);

void nt_trace_loader_free(struct nt_trace_loader *loader);

#endif
