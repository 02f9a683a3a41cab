/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream is a queue with one worker thread, started by its first work. Every piece of work has a
 * ticket; "finished up to" is one number under the stream's lock, and host waits, device waits and
 * dependencies between streams are all waits for a ticket. The legacy stream of a device orders
 * itself against the device's blocking streams by such dependencies.
 *
 * Work of microseconds (events, small copies) runs in the caller's thread if the stream is idle: a
 * thread switch for each would dominate. Workers are detached and block all signals, so a process
 * exits as it does with CUDA, whatever its streams are waiting for.
 */
#include "sim_stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SIM_LAUNCH_QUEUE 1024

struct sim_work {
  struct sim_work *next;
  sim_stream_fn *fn;
  void *arg;
  bool launch;
};

struct sim_stream {
  struct sim_stream *next_known;
  pthread_mutex_t lock;
  pthread_cond_t work_added;
  pthread_cond_t work_done;
  struct sim_work *head, **tail;
  uint64_t enqueued, finished;
  unsigned int launches;
  unsigned int flags;
  int device;
  uint64_t id;
  bool has_worker, destroyed, busy;
  atomic_int refs;
};

struct sim_wait {
  struct sim_stream *other;
  uint64_t ticket;
};

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_stream *known;
static struct sim_stream *legacy[SIM_MAX_DEVICES];
static uint64_t last_id;

static struct sim_stream *stream_new(int device, unsigned int flags) {
  struct sim_stream *s = calloc(1, sizeof(*s));
  if (!s)
    return NULL;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work_added, NULL);
  pthread_cond_init(&s->work_done, NULL);
  s->tail = &s->head;
  s->device = device;
  s->flags = flags;
  atomic_init(&s->refs, 1);
  pthread_mutex_lock(&known_lock);
  s->id = ++last_id;
  s->next_known = known;
  known = s;
  pthread_mutex_unlock(&known_lock);
  return s;
}

CUresult sim_stream_create(CUstream *out, unsigned int flags) {
  if (!out)
    return CUDA_ERROR_INVALID_VALUE;
  if (sim_device_count() == 0)
    return CUDA_ERROR_NO_DEVICE;
  struct sim_stream *s = stream_new(sim_device_current(), flags);
  *out = (CUstream)(void *)s;
  return s ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct sim_stream *legacy_stream(int device) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  if (!legacy[device])
    legacy[device] = stream_new(device, CU_STREAM_NON_BLOCKING);
  pthread_mutex_unlock(&lock);
  return legacy[device];
}

/* The calling thread's default stream. What it was given goes on after the thread's end. */
static struct sim_stream *own_stream(int device) {
  static _Thread_local struct sim_stream *own[SIM_MAX_DEVICES];
  if (!own[device])
    own[device] = stream_new(device, CU_STREAM_DEFAULT);
  return own[device];
}

struct sim_stream *sim_stream_find(CUstream handle) {
  if ((uintptr_t)handle < 2)
    return legacy_stream(sim_device_current());
  if ((uintptr_t)handle == 2)
    return own_stream(sim_device_current());
  pthread_mutex_lock(&known_lock);
  struct sim_stream *s = known;
  while (s && ((void *)s != (void *)handle || s->destroyed))
    s = s->next_known;
  pthread_mutex_unlock(&known_lock);
  return s;
}

void sim_stream_ref(struct sim_stream *s) {
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void sim_stream_unref(struct sim_stream *s) {
  if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
    return;
  pthread_mutex_lock(&known_lock);
  for (struct sim_stream **at = &known; *at; at = &(*at)->next_known) {
    if (*at == s) {
      *at = s->next_known;
      break;
    }
  }
  pthread_mutex_unlock(&known_lock);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->work_added);
  pthread_cond_destroy(&s->work_done);
  free(s);
}

CUresult sim_stream_destroy(CUstream handle) {
  struct sim_stream *s = (uintptr_t)handle <= 2 ? NULL : sim_stream_find(handle);
  if (!s)
    return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&known_lock);
  s->destroyed = true;
  pthread_mutex_unlock(&known_lock);
  pthread_mutex_lock(&s->lock);
  pthread_cond_broadcast(&s->work_added);
  pthread_mutex_unlock(&s->lock);
  sim_stream_unref(s);
  return CUDA_SUCCESS;
}

int sim_stream_device(const struct sim_stream *s) {
  return s->device;
}

uint64_t sim_stream_id(const struct sim_stream *s) {
  return s->id;
}

unsigned int sim_stream_flags(const struct sim_stream *s) {
  return s->flags;
}

static void *worker_main(void *arg) {
  struct sim_stream *s = arg;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    struct sim_work *w = s->head;
    if (!w && s->destroyed)
      break;
    if (!w) {
      pthread_cond_wait(&s->work_added, &s->lock);
      continue;
    }
    s->head = w->next;
    if (!s->head)
      s->tail = &s->head;
    s->busy = true;
    pthread_mutex_unlock(&s->lock);
    w->fn(w->arg);
    pthread_mutex_lock(&s->lock);
    s->busy = false;
    s->finished++;
    if (w->launch)
      s->launches--;
    pthread_cond_broadcast(&s->work_done);
    free(w);
  }
  pthread_mutex_unlock(&s->lock);
  sim_stream_unref(s);
  return NULL;
}

/* Called with the stream's lock held. */
static void start_worker(struct sim_stream *s) {
  pthread_attr_t attr;
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, 256 << 10);
  sim_stream_ref(s);
  if (pthread_create(&thread, &attr, worker_main, s))
    abort();
  pthread_attr_destroy(&attr);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  s->has_worker = true;
}

static uint64_t append(struct sim_stream *s, sim_stream_fn *fn, void *arg, bool is_short,
                       bool launch) {
  pthread_mutex_lock(&s->lock);
  while (launch && s->launches >= SIM_LAUNCH_QUEUE)
    pthread_cond_wait(&s->work_done, &s->lock);
  uint64_t ticket = ++s->enqueued;
  if (is_short && !s->head && !s->busy) {
    fn(arg);
    s->finished++;
    pthread_cond_broadcast(&s->work_done);
    pthread_mutex_unlock(&s->lock);
    return ticket;
  }
  struct sim_work *w = malloc(sizeof(*w));
  if (!w)
    abort();
  *w = (struct sim_work){.fn = fn, .arg = arg, .launch = launch};
  s->launches += launch;
  *s->tail = w;
  s->tail = &w->next;
  if (!s->has_worker)
    start_worker(s);
  pthread_cond_signal(&s->work_added);
  pthread_mutex_unlock(&s->lock);
  return ticket;
}

/* The legacy stream and blocking streams of one device wait for each other's earlier work. */
static void order_with_legacy(struct sim_stream *s) {
  struct sim_stream *others[256];
  size_t n = 0;
  pthread_mutex_lock(&known_lock);
  for (struct sim_stream *o = known; o && n < 256; o = o->next_known) {
    bool pair =
        s == legacy[s->device] ? !(o->flags & CU_STREAM_NON_BLOCKING) : o == legacy[s->device];
    if (o != s && o->device == s->device && pair && !o->destroyed) {
      sim_stream_ref(o);
      others[n++] = o;
    }
  }
  pthread_mutex_unlock(&known_lock);
  for (size_t i = 0; i < n; i++) {
    sim_stream_wait_ticket(s, others[i], sim_stream_last_ticket(others[i]));
    sim_stream_unref(others[i]);
  }
}

static void order_first(struct sim_stream *s) {
  if (s == legacy[s->device] || !(s->flags & CU_STREAM_NON_BLOCKING))
    order_with_legacy(s);
}

uint64_t sim_stream_enqueue(struct sim_stream *s, sim_stream_fn *fn, void *arg) {
  order_first(s);
  return append(s, fn, arg, false, false);
}

uint64_t sim_stream_launch(struct sim_stream *s, sim_stream_fn *fn, void *arg) {
  order_first(s);
  return append(s, fn, arg, false, true);
}

uint64_t sim_stream_enqueue_short(struct sim_stream *s, sim_stream_fn *fn, void *arg) {
  order_first(s);
  return append(s, fn, arg, true, false);
}

uint64_t sim_stream_last_ticket(struct sim_stream *s) {
  pthread_mutex_lock(&s->lock);
  uint64_t ticket = s->enqueued;
  pthread_mutex_unlock(&s->lock);
  return ticket;
}

void sim_stream_sync_ticket(struct sim_stream *s, uint64_t ticket) {
  pthread_mutex_lock(&s->lock);
  while (s->finished < ticket)
    pthread_cond_wait(&s->work_done, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static void run_wait(void *arg) {
  struct sim_wait *w = arg;
  sim_stream_sync_ticket(w->other, w->ticket);
  sim_stream_unref(w->other);
  free(w);
}

void sim_stream_wait_ticket(struct sim_stream *s, struct sim_stream *other, uint64_t ticket) {
  pthread_mutex_lock(&other->lock);
  bool done = other->finished >= ticket;
  pthread_mutex_unlock(&other->lock);
  if (done || s == other)
    return;
  struct sim_wait *w = malloc(sizeof(*w));
  if (!w)
    abort();
  sim_stream_ref(other);
  *w = (struct sim_wait){.other = other, .ticket = ticket};
  append(s, run_wait, w, false, false);
}

bool sim_stream_is_idle(struct sim_stream *s) {
  pthread_mutex_lock(&s->lock);
  bool idle = s->finished == s->enqueued;
  pthread_mutex_unlock(&s->lock);
  return idle;
}

void sim_stream_sync(struct sim_stream *s) {
  sim_stream_ref(s);
  sim_stream_sync_ticket(s, sim_stream_last_ticket(s));
  sim_stream_unref(s);
}

static pthread_mutex_t context_locks[SIM_MAX_DEVICES];
static pthread_once_t context_once = PTHREAD_ONCE_INIT;
static bool locking;

static void context_init(void) {
  const char *text = getenv("NTSIM_DRIVER_LOCK");
  locking = text && *text == '1';
  for (int i = 0; i < SIM_MAX_DEVICES; i++)
    pthread_mutex_init(&context_locks[i], NULL);
}

void sim_context_lock(int device) {
  pthread_once(&context_once, context_init);
  if (locking)
    pthread_mutex_lock(&context_locks[device]);
}

void sim_context_unlock(int device) {
  if (locking)
    pthread_mutex_unlock(&context_locks[device]);
}

void sim_stream_sync_device(int device) {
  struct sim_stream *busy[256];
  size_t n = 0;
  sim_context_lock(device);
  pthread_mutex_lock(&known_lock);
  for (struct sim_stream *s = known; s && n < 256; s = s->next_known) {
    if (s->device == device) {
      sim_stream_ref(s);
      busy[n++] = s;
    }
  }
  pthread_mutex_unlock(&known_lock);
  for (size_t i = 0; i < n; i++) {
    sim_stream_sync(busy[i]);
    sim_stream_unref(busy[i]);
  }
  sim_context_unlock(device);
}
