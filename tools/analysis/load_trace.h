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

/* One load of a job: add every trace, then finish. */
struct nt_trace_loader {
  struct nt_model model;
  struct nt_peer_note *peers; /* what the processes noted of each other */
  uint32_t peer_count;
  struct nt_kernel_kill *kills; /* from dumps */
  uint32_t kill_count;
};

/* Copies one process into the model; the trace may be closed afterwards. On failure (a negative enum
 * nt_err, err filled) the model is as before. */
int nt_trace_loader_add(struct nt_trace_loader *loader, struct nt_trace *trace, const char *source,
                        struct nt_error *err);

/* Joins what processes noted of each other, settles the model and hands it over. `now_ns` is when the
 * job was looked at; 0 takes the newest sign of life. The loader is empty afterwards. */
int nt_trace_loader_finish(struct nt_trace_loader *loader, int64_t now_ns, struct nt_model *out);

void nt_trace_loader_free(struct nt_trace_loader *loader);

#endif
