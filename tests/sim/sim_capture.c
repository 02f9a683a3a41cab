/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture turns calls on a stream into nodes of a graph (sim_graph.c), in the order of the calls.
 *
 * What must not be called meanwhile is refused as in CUDA, and costs the capture: waiting for or
 * asking about a capturing stream, and, unless a thread's capture mode allows it, the calls that
 * CUDA calls potentially unsafe. Tools that poll depend on just these rules. One lock for all.
 */
#include "sim_capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A point of a capture: what an event that is recorded on one of its streams stands for. */
enum { POINT_STREAM_BITS = 8, POINT_TURN_BITS = 24 };

struct capture {
  struct capture *next;
  CUgraph graph;
  bool into; /* a graph that was there already, which stays whatever becomes of the capture */
  uint64_t id;
  struct sim_stream *streams[32]; /* the first began it; all referenced */
  uint32_t changed[32];           /* turn of the last thing that a stream was given */
  uint32_t joined[32];            /* turn up to which others have waited for it */
  uint32_t turn;
  size_t stream_count;
  CUstreamCaptureMode mode;
  pthread_t thread;
  bool broken;
};

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static _Atomic unsigned int active; /* so that nobody else pays for captures */
static uint64_t last_capture;
static _Thread_local CUstreamCaptureMode thread_mode;

/* Called with the lock held. */
static struct capture *capture_of(const struct sim_stream *s) {
  for (struct capture *c = captures; c; c = c->next) {
    for (size_t i = 0; i < c->stream_count; i++) {
      if (c->streams[i] == s)
        return c;
    }
  }
  return NULL;
}

bool sim_capture_is_active(struct sim_stream *s) {
  return sim_capture_point(s) != 0;
}

/* Called with the lock held, for a stream of the capture. */
static uint32_t index_of(const struct capture *c, const struct sim_stream *s) {
  uint32_t i = 0;
  while (c->streams[i] != s)
    i++;
  return i;
}

uint64_t sim_capture_point(struct sim_stream *s) {
  if (!atomic_load_explicit(&active, memory_order_acquire))
    return 0;
  pthread_mutex_lock(&capture_lock);
  struct capture *c = capture_of(s);
  uint64_t point =
      c ? (c->id << POINT_TURN_BITS | c->turn) << POINT_STREAM_BITS | index_of(c, s) : 0;
  pthread_mutex_unlock(&capture_lock);
  return point;
}

bool sim_capture_add(struct sim_stream *s, struct sim_node node) {
  if (!atomic_load_explicit(&active, memory_order_acquire))
    return false;
  pthread_mutex_lock(&capture_lock);
  struct capture *c = capture_of(s);
  if (c) {
    sim_graph_append(c->graph, node);
    c->changed[index_of(c, s)] = ++c->turn;
  }
  pthread_mutex_unlock(&capture_lock);
  return c != NULL;
}

CUresult sim_capture_join(struct sim_stream *s, uint64_t point) {
  CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  uint32_t from = point & ((1u << POINT_STREAM_BITS) - 1);
  uint32_t turn = point >> POINT_STREAM_BITS & ((1u << POINT_TURN_BITS) - 1);
  pthread_mutex_lock(&capture_lock);
  struct capture *mine = capture_of(s), *c = captures;
  while (c && c->id != point >> (POINT_STREAM_BITS + POINT_TURN_BITS))
    c = c->next;
  if (c && mine == c) {
    result = CUDA_SUCCESS;
  } else if (c && !mine && c->stream_count < 32) {
    sim_stream_ref(s);
    c->streams[c->stream_count++] = s;
    result = CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS && c->streams[from] != s) {
    c->joined[from] = turn > c->joined[from] ? turn : c->joined[from];
    c->changed[index_of(c, s)] = ++c->turn;
  }
  pthread_mutex_unlock(&capture_lock);
  return result;
}

CUresult sim_capture_break(struct sim_stream *s, CUresult error) {
  if (!atomic_load_explicit(&active, memory_order_acquire))
    return CUDA_SUCCESS;
  pthread_mutex_lock(&capture_lock);
  struct capture *c = capture_of(s);
  if (c)
    c->broken = true;
  pthread_mutex_unlock(&capture_lock);
  return c ? error : CUDA_SUCCESS;
}

CUresult sim_capture_unsafe_call(void) {
  CUresult result = CUDA_SUCCESS;
  if (!atomic_load_explicit(&active, memory_order_acquire) ||
      thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_SUCCESS;
  pthread_mutex_lock(&capture_lock);
  for (struct capture *c = captures; c; c = c->next) {
    bool own = pthread_equal(c->thread, pthread_self());
    bool global =
        c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && (own || global)) {
      c->broken = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  pthread_mutex_unlock(&capture_lock);
  return result;
}

CUresult sim_capture_exchange_mode(CUstreamCaptureMode *mode) {
  if (!mode || *mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  CUstreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

static CUresult begin(CUstream stream, CUgraph graph, CUstreamCaptureMode mode) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s)
    return CUDA_ERROR_INVALID_HANDLE;
  if ((uintptr_t)stream < 2 || sim_capture_is_active(s))
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  struct capture *c = calloc(1, sizeof(*c));
  if (!c || (!graph && sim_graph_create(&c->graph) != CUDA_SUCCESS)) {
    free(c);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  c->into = graph != NULL;
  if (graph)
    c->graph = graph;
  c->mode = mode;
  c->thread = pthread_self();
  c->streams[c->stream_count++] = s;
  sim_stream_ref(s);
  pthread_mutex_lock(&capture_lock);
  c->id = ++last_capture;
  c->next = captures;
  captures = c;
  atomic_fetch_add_explicit(&active, 1, memory_order_release);
  pthread_mutex_unlock(&capture_lock);
  return CUDA_SUCCESS;
}

CUresult sim_capture_begin(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, NULL, mode);
}

CUresult sim_capture_begin_to(CUstream stream, CUgraph graph, CUstreamCaptureMode mode) {
  return graph ? begin(stream, graph, mode) : CUDA_ERROR_INVALID_VALUE;
}

/* Every stream that joined must have been waited for, in the end by the one that began. */
static bool is_joined(const struct capture *c) {
  for (size_t i = 1; i < c->stream_count; i++) {
    if (c->joined[i] < c->changed[i])
      return false;
  }
  return true;
}

CUresult sim_capture_end(CUstream stream, CUgraph *graph) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s || !graph)
    return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&capture_lock);
  struct capture *c = capture_of(s);
  if (!c || c->streams[0] != s) {
    pthread_mutex_unlock(&capture_lock);
    return c ? CUDA_ERROR_STREAM_CAPTURE_UNMATCHED : CUDA_ERROR_ILLEGAL_STATE;
  }
  if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self())) {
    pthread_mutex_unlock(&capture_lock);
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  struct capture **at = &captures;
  while (*at != c)
    at = &(*at)->next;
  *at = c->next;
  atomic_fetch_sub_explicit(&active, 1, memory_order_relaxed);
  pthread_mutex_unlock(&capture_lock);
  for (size_t i = 0; i < c->stream_count; i++)
    sim_stream_unref(c->streams[i]);
  CUresult result = c->broken       ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    : !is_joined(c) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                    : CUDA_SUCCESS;
  *graph = result == CUDA_SUCCESS ? c->graph : NULL;
  if (result != CUDA_SUCCESS && !c->into)
    sim_graph_destroy(c->graph);
  free(c);
  return result;
}

CUresult sim_capture_info(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id,
                          CUgraph *graph) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s || !status)
    return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&capture_lock);
  struct capture *c = capture_of(s);
  *status = !c          ? CU_STREAM_CAPTURE_STATUS_NONE
            : c->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                        : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (c && id)
    *id = c->id;
  if (c && graph)
    *graph = c->graph;
  pthread_mutex_unlock(&capture_lock);
  return CUDA_SUCCESS;
}
