/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs. Launching one makes each of its nodes append its work to a stream, in the order in which they were
 * added. Branches of a graph therefore run one after the other, which is one of the orders that CUDA allows.
 *
 * What a graph holds is shared with its clones, the graphs it is nested in and what was instantiated from it; who
 * adds to shared content begins a new one, whose first node is the old. A graph is changed by one thread at a time.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "sim_capture.h"

struct content {
  atomic_int refs;
  struct sim_node *nodes;
  size_t count, room;
};

struct CUgraph_st {
  struct content *content;
};

/* One launch runs at a time, whatever the streams. */
struct CUgraphExec_st {
  struct content *content;
  pthread_mutex_t lock;
  struct sim_stream *last_stream; /* of the last launch; referenced */
  uint64_t last_ticket;
};

static struct content *content_new(void) {
  struct content *content = calloc(1, sizeof(*content));
  if (!content)
    abort();
  atomic_init(&content->refs, 1);
  return content;
}

static struct content *content_ref(struct content *content) {
  atomic_fetch_add_explicit(&content->refs, 1, memory_order_relaxed);
  return content;
}

static void content_unref(void *arg) {
  struct content *content = arg;
  if (atomic_fetch_sub_explicit(&content->refs, 1, memory_order_acq_rel) != 1)
    return;
  for (size_t i = 0; i < content->count; i++) {
    if (content->nodes[i].drop)
      content->nodes[i].drop(content->nodes[i].arg);
  }
  free(content->nodes);
  free(content);
}

static void content_launch(struct sim_stream *s, void *arg) {
  const struct content *content = arg;
  for (size_t i = 0; i < content->count; i++)
    content->nodes[i].launch(s, content->nodes[i].arg);
}

static void append(struct content *content, struct sim_node node) {
  if (content->count == content->room) {
    content->room = content->room ? 2 * content->room : 16;
    content->nodes = realloc(content->nodes, content->room * sizeof(*content->nodes));
    if (!content->nodes)
      abort();
  }
  content->nodes[content->count++] = node;
}

static struct sim_node node_of(struct content *content) {
  return (struct sim_node){content_launch, content_unref, content_ref(content)};
}

CUresult sim_graph_create(CUgraph *graph) {
  if (!graph || !(*graph = calloc(1, sizeof(**graph))))
    return graph ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  (*graph)->content = content_new();
  return CUDA_SUCCESS;
}

void sim_graph_append(CUgraph graph, struct sim_node node) {
  if (atomic_load_explicit(&graph->content->refs, memory_order_acquire) > 1) {
    struct content *content = content_new();
    append(content, node_of(graph->content));
    content_unref(graph->content);
    graph->content = content;
  }
  append(graph->content, node);
}

CUresult sim_graph_nest(CUgraph graph, CUgraph child) {
  if (!graph || !child)
    return CUDA_ERROR_INVALID_VALUE;
  sim_graph_append(graph, node_of(child->content));
  return CUDA_SUCCESS;
}

CUresult sim_graph_clone(CUgraph *clone, CUgraph graph) {
  if (!graph || sim_graph_create(clone) != CUDA_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  content_unref((*clone)->content);
  (*clone)->content = content_ref(graph->content);
  return CUDA_SUCCESS;
}

CUresult sim_graph_destroy(CUgraph graph) {
  if (!graph)
    return CUDA_ERROR_INVALID_VALUE;
  content_unref(graph->content);
  free(graph);
  return CUDA_SUCCESS;
}

CUresult sim_graph_instantiate(CUgraphExec *exec, CUgraph graph) {
  if (!exec || !graph)
    return CUDA_ERROR_INVALID_VALUE;
  struct CUgraphExec_st *e = calloc(1, sizeof(*e));
  if (!e)
    return CUDA_ERROR_OUT_OF_MEMORY;
  e->content = content_ref(graph->content);
  pthread_mutex_init(&e->lock, NULL);
  *exec = e;
  return CUDA_SUCCESS;
}

CUresult sim_graph_update(CUgraphExec exec, CUgraph graph) {
  if (!exec || !graph)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&exec->lock);
  struct content *old = exec->content;
  exec->content = content_ref(graph->content);
  pthread_mutex_unlock(&exec->lock);
  content_unref(old);
  return CUDA_SUCCESS;
}

CUresult sim_graph_launch(CUgraphExec exec, CUstream stream) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s || !exec)
    return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&exec->lock);
  /* Under capture the launch becomes a nested graph. */
  struct sim_node nested = node_of(exec->content);
  if (sim_capture_add(s, nested)) {
    pthread_mutex_unlock(&exec->lock);
    return CUDA_SUCCESS;
  }
  if (exec->last_stream && exec->last_stream != s)
    sim_stream_wait_ticket(s, exec->last_stream, exec->last_ticket);
  content_launch(s, exec->content);
  content_unref(nested.arg);
  if (exec->last_stream)
    sim_stream_unref(exec->last_stream);
  sim_stream_ref(s);
  exec->last_stream = s;
  exec->last_ticket = sim_stream_last_ticket(s);
  pthread_mutex_unlock(&exec->lock);
  return CUDA_SUCCESS;
}

CUresult sim_graph_destroy_exec(CUgraphExec exec) {
  if (!exec)
    return CUDA_ERROR_INVALID_VALUE;
  content_unref(exec->content);
  if (exec->last_stream)
    sim_stream_unref(exec->last_stream);
  pthread_mutex_destroy(&exec->lock);
  free(exec);
  return CUDA_SUCCESS;
}
