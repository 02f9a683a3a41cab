/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which capture a graph or an executable graph comes from.
 *
 * Lock-free and of a fixed size; any thread. A handle is changed by one thread at a time, as CUDA demands of the
 * graph itself. A handle that finds no room is counted: from then on an unknown handle may be one of those.
 */
#ifndef NT_GRAPH_TABLE_H
#define NT_GRAPH_TABLE_H

#include <stdint.h>

/* vLLM replays a piece per layer and batch size: 80 layers x 67 sizes are 5,400. Pages come as they are touched. */
enum { NT_GRAPH_PLACES = 65536, NT_GRAPH_PROBES = 16 /* powers of two */ };

/* The capture of the graph, 0 if unknown. */
uint32_t nt_graph_capture(const void *handle);

/* Remembers or, with 0, forgets. */
void nt_graph_keep(const void *handle, uint32_t capture);

/* A number for a graph that is of no capture alone: none of CUDA's, nor are its low 16 bits while captures are few. */
uint32_t nt_graph_number(void);

/* How many found no room since the start of the process. */
uint32_t nt_graphs_without_room(void);

#endif
