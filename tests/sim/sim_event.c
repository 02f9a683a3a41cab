/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events and the other work that a stream can hold: waits for and writes of memory values, copies,
 * fills. An event counts its records and the last record that was reached; a query compares the
 * two numbers and takes no lock, because tools poll. Waits name the record they wait for, so that
 * recording an event again does not move earlier waits.
 *
 * With NTSIM_DRIVER_LOCK=1 a query takes the context's lock, which cudaFree and cudaDeviceSynchronize
 * then hold while they wait: so it is stuck as long as they are.
 */
#include "sim_stream.h"
#include "sim_capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Copies up to this size may run in the caller's thread. */
#define SIM_SHORT_COPY (256u << 10)

struct CUevent_st {
  uint64_t magic;
  pthread_mutex_t lock;
  pthread_cond_t reached_more;
  _Atomic uint64_t recorded, reached;
  struct timespec time;
  _Atomic uint64_t capture; /* the point of a capture of its last record, 0 if that was real */
  unsigned int flags;
  atomic_int refs;
};

#define EVENT_MAGIC 0x4556454e54534d31ull

struct event_work {
  struct CUevent_st *event;
  uint64_t record;
};

struct memory_work {
  char *dst;
  const char *src;
  size_t size;
  int value;
  uint64_t word;
  unsigned int flags;
};

static struct CUevent_st *event_check(CUevent e) {
  return e && e->magic == EVENT_MAGIC ? e : NULL;
}

CUresult sim_event_create(CUevent *out, unsigned int flags) {
  if (!out)
    return CUDA_ERROR_INVALID_VALUE;
  struct CUevent_st *e = calloc(1, sizeof(*e));
  if (!e)
    return CUDA_ERROR_OUT_OF_MEMORY;
  e->magic = EVENT_MAGIC;
  e->flags = flags;
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->reached_more, NULL);
  atomic_init(&e->refs, 1);
  *out = e;
  return CUDA_SUCCESS;
}

static void event_unref(struct CUevent_st *e) {
  if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
    return;
  pthread_mutex_destroy(&e->lock);
  pthread_cond_destroy(&e->reached_more);
  free(e);
}

CUresult sim_event_destroy(CUevent event) {
  if (!event_check(event))
    return CUDA_ERROR_INVALID_HANDLE;
  event->magic = 0;
  event_unref(event);
  return CUDA_SUCCESS;
}

static struct event_work *event_work_new(struct CUevent_st *e, uint64_t record) {
  struct event_work *w = malloc(sizeof(*w));
  if (!w)
    abort();
  atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
  *w = (struct event_work){.event = e, .record = record};
  return w;
}

static void run_record(void *arg) {
  struct event_work *w = arg;
  struct CUevent_st *e = w->event;
  pthread_mutex_lock(&e->lock);
  if (atomic_load_explicit(&e->reached, memory_order_relaxed) < w->record) {
    clock_gettime(CLOCK_MONOTONIC, &e->time);
    atomic_store_explicit(&e->reached, w->record, memory_order_release);
    pthread_cond_broadcast(&e->reached_more);
  }
  pthread_mutex_unlock(&e->lock);
  event_unref(e);
  free(w);
}

static void event_wait(struct CUevent_st *e, uint64_t record) {
  pthread_mutex_lock(&e->lock);
  while (atomic_load_explicit(&e->reached, memory_order_relaxed) < record)
    pthread_cond_wait(&e->reached_more, &e->lock);
  pthread_mutex_unlock(&e->lock);
}

static void run_wait_event(void *arg) {
  struct event_work *w = arg;
  event_wait(w->event, w->record);
  event_unref(w->event);
  free(w);
}

CUresult sim_event_record(CUevent event, CUstream stream) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!event_check(event) || !s)
    return CUDA_ERROR_INVALID_HANDLE;
  uint64_t capture = sim_capture_point(s);
  atomic_store_explicit(&event->capture, capture, memory_order_relaxed);
  if (capture) /* a dependency inside the graph, nothing that will ever happen outside */
    return CUDA_SUCCESS;
  uint64_t record = atomic_fetch_add_explicit(&event->recorded, 1, memory_order_relaxed) + 1;
  sim_stream_enqueue_short(s, run_record, event_work_new(event, record));
  return CUDA_SUCCESS;
}

/* Asking about a captured event is an error, asking about any may endanger somebody's capture. */
static CUresult usable(CUevent event) {
  if (atomic_load_explicit(&event->capture, memory_order_relaxed))
    return CUDA_ERROR_CAPTURED_EVENT;
  return sim_capture_unsafe_call();
}

/* A kernel of the application that touches memory that is not there: from then on every question to the
 * device is answered with that error, as CUDA does. Not an interface of CUDA. */
static _Atomic int fault;

static void run_fault(void *unused) {
  (void)unused;
  atomic_store_explicit(&fault, CUDA_ERROR_ILLEGAL_ADDRESS, memory_order_release);
}

SIM_EXPORT void ntsim_illegal_access(CUstream stream);
void ntsim_illegal_access(CUstream stream) {
  sim_stream_enqueue(sim_stream_find(stream), run_fault, NULL);
}

static CUresult faulty(void) {
  return (CUresult)atomic_load_explicit(&fault, memory_order_acquire);
}

CUresult sim_event_query(CUevent event) {
  if (!event_check(event))
    return CUDA_ERROR_INVALID_HANDLE;
  if (faulty())
    return faulty();
  CUresult refused = usable(event);
  if (refused != CUDA_SUCCESS)
    return refused;
  sim_context_lock(sim_device_current());
  sim_context_unlock(sim_device_current());
  uint64_t recorded = atomic_load_explicit(&event->recorded, memory_order_relaxed);
  uint64_t reached = atomic_load_explicit(&event->reached, memory_order_acquire);
  return reached >= recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult sim_event_sync(CUevent event) {
  if (!event_check(event))
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult refused = usable(event);
  if (refused != CUDA_SUCCESS)
    return refused;
  event_wait(event, atomic_load_explicit(&event->recorded, memory_order_relaxed));
  return CUDA_SUCCESS;
}

CUresult sim_event_elapsed(float *ms, CUevent start, CUevent end) {
  if (!ms)
    return CUDA_ERROR_INVALID_VALUE;
  if (!event_check(start) || !event_check(end) || (start->flags & CU_EVENT_DISABLE_TIMING) ||
      (end->flags & CU_EVENT_DISABLE_TIMING))
    return CUDA_ERROR_INVALID_HANDLE;
  if (sim_event_query(start) || sim_event_query(end))
    return CUDA_ERROR_NOT_READY;
  *ms = (float)(end->time.tv_sec - start->time.tv_sec) * 1e3f +
        (float)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6f;
  return CUDA_SUCCESS;
}

CUresult sim_event_stream_wait(CUstream stream, CUevent event) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!event_check(event) || !s)
    return CUDA_ERROR_INVALID_HANDLE;
  uint64_t capture = atomic_load_explicit(&event->capture, memory_order_relaxed);
  if (capture)
    return sim_capture_join(s, capture);
  CUresult refused = sim_capture_break(s, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (refused != CUDA_SUCCESS)
    return refused;
  uint64_t record = atomic_load_explicit(&event->recorded, memory_order_relaxed);
  if (atomic_load_explicit(&event->reached, memory_order_acquire) >= record)
    return CUDA_SUCCESS;
  sim_stream_enqueue(s, run_wait_event, event_work_new(event, record));
  return CUDA_SUCCESS;
}

static bool value_is_there(const struct memory_work *w) {
  uint64_t now = w->size == 4
                     ? __atomic_load_n((const uint32_t *)(const void *)w->src, __ATOMIC_ACQUIRE)
                     : __atomic_load_n((const uint64_t *)(const void *)w->src, __ATOMIC_ACQUIRE);
  switch (w->flags & 3) {
  case CU_STREAM_WAIT_VALUE_EQ:
    return now == w->word;
  case CU_STREAM_WAIT_VALUE_AND:
    return (now & w->word) != 0;
  case CU_STREAM_WAIT_VALUE_NOR:
    return w->size == 4 ? (uint32_t) ~(now | w->word) != 0 : ~(now | w->word) != 0;
  default:
    return w->size == 4 ? (int32_t)(uint32_t)(now - w->word) >= 0 : (int64_t)(now - w->word) >= 0;
  }
}

/* Memory can be written by anyone, so this polls: soon at first, at most 25 times a second later. */
static void run_wait_value(void *arg) {
  struct memory_work *w = arg;
  struct timespec pause = {.tv_nsec = 100000};
  while (!value_is_there(w)) {
    nanosleep(&pause, NULL);
    pause.tv_nsec = pause.tv_nsec < 20000000 ? 2 * pause.tv_nsec : 40000000;
  }
  free(w);
}

static void run_write_value(void *arg) {
  struct memory_work *w = arg;
  if (w->size == 4)
    __atomic_store_n((uint32_t *)(void *)w->dst, (uint32_t)w->word, __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint64_t *)(void *)w->dst, w->word, __ATOMIC_RELEASE);
  free(w);
}

static void run_copy(void *arg) {
  struct memory_work *w = arg;
  memmove(w->dst, w->src, w->size);
  free(w);
}

static void run_fill(void *arg) {
  struct memory_work *w = arg;
  memset(w->dst, w->value, w->size);
  free(w);
}

struct memory_node {
  sim_stream_fn *fn;
  struct memory_work work;
  bool is_short;
};

static CUresult append_memory(struct sim_stream *s, const struct memory_node *node) {
  struct memory_work *w = malloc(sizeof(*w));
  if (!w)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *w = node->work;
  if (node->is_short)
    sim_stream_enqueue_short(s, node->fn, w);
  else
    sim_stream_enqueue(s, node->fn, w);
  return CUDA_SUCCESS;
}

static void launch_memory(struct sim_stream *s, void *arg) {
  append_memory(s, arg);
}

static CUresult enqueue_memory(CUstream stream, sim_stream_fn *fn, struct memory_work work,
                               bool is_short) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s)
    return CUDA_ERROR_INVALID_HANDLE;
  struct memory_node node = {.fn = fn, .work = work, .is_short = is_short};
  if (!sim_capture_is_active(s))
    return append_memory(s, &node);
  struct memory_node *copy = malloc(sizeof(*copy));
  if (!copy)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *copy = node;
  struct sim_node captured = {.launch = launch_memory, .drop = free, .arg = copy};
  if (!sim_capture_add(s, captured))
    free(copy);
  return CUDA_SUCCESS;
}

CUresult sim_stream_wait_value(CUstream stream, void *addr, uint64_t value, int size,
                               unsigned int flags) {
  if (!addr)
    return CUDA_ERROR_INVALID_VALUE;
  struct memory_work w = {.src = addr, .size = (size_t)size, .word = value, .flags = flags};
  return enqueue_memory(stream, run_wait_value, w, false);
}

CUresult sim_stream_write_value(CUstream stream, void *addr, uint64_t value, int size) {
  if (!addr)
    return CUDA_ERROR_INVALID_VALUE;
  struct memory_work w = {.dst = addr, .size = (size_t)size, .word = value};
  return enqueue_memory(stream, run_write_value, w, true);
}

CUresult sim_stream_copy(CUstream stream, void *dst, const void *src, size_t size) {
  if (size && (!dst || !src))
    return CUDA_ERROR_INVALID_VALUE;
  struct memory_work w = {.dst = dst, .src = src, .size = size};
  return enqueue_memory(stream, run_copy, w, size <= SIM_SHORT_COPY);
}

CUresult sim_stream_fill(CUstream stream, void *dst, int value, size_t size) {
  if (size && !dst)
    return CUDA_ERROR_INVALID_VALUE;
  struct memory_work w = {.dst = dst, .value = value, .size = size};
  return enqueue_memory(stream, run_fill, w, size <= SIM_SHORT_COPY);
}

CUresult sim_stream_sync_handle(CUstream stream) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult refused = sim_capture_break(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (refused != CUDA_SUCCESS)
    return refused;
  sim_stream_sync(s);
  return faulty();
}
