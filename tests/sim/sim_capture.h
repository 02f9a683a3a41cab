/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture and graphs. A graph is the list of what its capture was given, in that order. */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim_stream.h"

struct sim_node {
  /* Appends the node's work to the stream; may be called any number of times. */
  void (*launch)(struct sim_stream *s, void *arg);
  void (*drop)(void *arg);
  void *arg;
};

/* If the stream is capturing: takes the node, and is true. */
SIM_EXPORT bool sim_capture_add(struct sim_stream *s, struct sim_node node);
SIM_EXPORT bool sim_capture_is_active(struct sim_stream *s);
/* What an event recorded on the stream stands for: a point of the capture that the stream is in, 0 if none. */
SIM_EXPORT uint64_t sim_capture_point(struct sim_stream *s);
/* The stream waits for such a point and becomes part of the capture. */
SIM_EXPORT CUresult sim_capture_join(struct sim_stream *s, uint64_t point);
/* A forbidden call was made on a capturing stream: the capture is lost. */
SIM_EXPORT CUresult sim_capture_break(struct sim_stream *s, CUresult error);
/* For calls that CUDA calls potentially unsafe: breaks what this thread endangers. */
SIM_EXPORT CUresult sim_capture_unsafe_call(void);
SIM_EXPORT CUresult sim_capture_exchange_mode(CUstreamCaptureMode *mode);

SIM_EXPORT CUresult sim_capture_begin(CUstream stream, CUstreamCaptureMode mode);
/* Adds to a graph that is there already. */
SIM_EXPORT CUresult sim_capture_begin_to(CUstream stream, CUgraph graph, CUstreamCaptureMode mode);
SIM_EXPORT CUresult sim_capture_end(CUstream stream, CUgraph *graph);
SIM_EXPORT CUresult sim_capture_info(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id,
                                     CUgraph *graph);

/* sim_graph.c */
SIM_EXPORT CUresult sim_graph_create(CUgraph *graph);
void sim_graph_append(CUgraph graph, struct sim_node node);
/* The graph holds from now on what the child holds now. */
SIM_EXPORT CUresult sim_graph_nest(CUgraph graph, CUgraph child);
SIM_EXPORT CUresult sim_graph_clone(CUgraph *clone, CUgraph graph);
SIM_EXPORT CUresult sim_graph_update(CUgraphExec exec, CUgraph graph);
SIM_EXPORT CUresult sim_graph_instantiate(CUgraphExec *exec, CUgraph graph);
SIM_EXPORT CUresult sim_graph_launch(CUgraphExec exec, CUstream stream);
SIM_EXPORT CUresult sim_graph_destroy(CUgraph graph);
SIM_EXPORT CUresult sim_graph_destroy_exec(CUgraphExec exec);

#endif
