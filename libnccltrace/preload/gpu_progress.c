/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Application threads write marks at the head of a stream's ring, the gpu thread removes them at its tail. A
 * stream is rarely launched on by two threads at once; the loser of that race goes unmarked, which costs
 * nothing but resolution, since launches of a stream finish in order.
 */
#include "preload/gpu_progress.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/cuda_driver.h"
#include "preload/own_thread.h"
#include "preload/process.h"
#include "preload/thread_state.h"
#include "preload/torch_object.h"

enum {
  MARKS = 256,      /* per stream; power of two */
  TIMED_EVERY = 64, /* one place in so many has events with timing */
  EARLY = 64,       /* so many first launches of a stream, see place_early */
  STREAMS = 256,
  HURRY_MS = 20, /* between two looks, while a stream's marks fill up … */
  BUSY_MS = 30,  /* … while launches are outstanding … */
  IDLE_MS = 100, /* … and while none are */
  STOP_MS = 20,
  LOOK_MS = 20,
};

struct mark {
  uint32_t launch;
  nt_cu_event start, end; /* made at first use of the place, then recorded again and again */
};

struct nt_gpu_track {
  struct nt_gpu_stream *progress; /* in the area */
  nt_cu_context context;
  _Atomic uint32_t busy;    /* a thread is between begin and end */
  _Atomic uint32_t started; /* start marks put; >= ended */
  _Atomic uint32_t ended;   /* end marks put */
  _Atomic uint32_t tail;    /* marks seen finished; gpu thread only */
  uint32_t reached;         /* marks seen reached; gpu thread only */
  uint16_t slot;
  bool broken; /* an entry point refused: no more marks */
  struct mark marks[MARKS];
};

static struct nt_gpu_track *_Atomic tracks[STREAMS];
static _Atomic uint32_t tracks_used; /* tracks[0, this) may be there */
bool nt_gpu_enabled;
/* Also the futex on which the thread sleeps and on which its end is awaited. */
enum { NONE, RUNNING, STOPPING, STOPPED };
static _Atomic uint32_t thread_state;
static _Atomic uint32_t looks_wanted, looks_done;
static void *(*_Atomic body_wanted)(void *); /* of a thread that this one is to start */

void nt_gpu_reset(bool on) {
  for (unsigned i = 0; i < STREAMS; i++)
    atomic_store_explicit(&tracks[i], NULL, memory_order_relaxed);
  atomic_store(&tracks_used, 0);
  atomic_store(&thread_state, NONE);
  atomic_store(&looks_wanted, 0);
  atomic_store(&looks_done, 0);
  atomic_store(&body_wanted, NULL);
  nt_gpu_enabled = on;
}

uint32_t nt_gpu_next(uint16_t slot) {
  if (!slot || slot >= STREAMS || !nt_gpu_on())
    return 0;
  struct nt_gpu_stream *progress = &nt_process.area.gpu_streams[slot];
  return atomic_load_explicit(&progress->issued, memory_order_relaxed) + 1;
}

/* ---- the polling thread -------------------------------------------------------------------- */

static void write_mark(const struct nt_gpu_track *track, enum nt_gpu_mark_kind kind, uint32_t first,
                       uint32_t last, uint64_t not_before, uint64_t by) {
  struct nt_area_header *header = nt_process.area.header;
  uint64_t at = atomic_load_explicit(&header->gpu_marks, memory_order_relaxed);
  struct nt_gpu_mark *mark = &nt_process.area.gpu_mark_ring[at % header->gpu_mark_count];
  *mark = (struct nt_gpu_mark){.stream = track->slot,
                               .kind = (uint16_t)kind,
                               .first = first,
                               .last = last,
                               .not_before = not_before,
                               .by = by};
  atomic_store_explicit(&header->gpu_marks, at + 1, memory_order_release);
}

static bool has_passed(struct nt_gpu_track *track, nt_cu_event event) {
  int answer = nt_cuda_driver_known()->event_query(event);
  if (answer != NT_CU_SUCCESS && answer != NT_CU_NOT_READY)
    atomic_store_explicit(&track->progress->error, (uint32_t)answer, memory_order_relaxed);
  return answer == NT_CU_SUCCESS;
}

/* The first of [from, to) whose end has not passed; newest asked first: usually that one answer is enough. */
static uint32_t first_unfinished(struct nt_gpu_track *track, uint32_t from, uint32_t to) {
  uint32_t at = to - 1;
  while (from != to) {
    if (has_passed(track, track->marks[at % MARKS].end))
      from = at + 1;
    else
      to = at;
    at = from + (to - from) / 2;
  }
  return from;
}

static void measure(const struct nt_gpu_track *track, uint32_t at) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  const struct mark *mark = &track->marks[at % MARKS];
  float milliseconds;
  if (at >= EARLY && at % TIMED_EVERY == 0 && driver->event_elapsed &&
      driver->event_elapsed(&milliseconds, mark->start, mark->end) == NT_CU_SUCCESS)
    write_mark(track, NT_GPU_DURATION, mark->launch, mark->launch,
               (uint64_t)((double)milliseconds * 1e6), 0);
}

static void look_at(struct nt_gpu_track *track) {
  struct nt_gpu_stream *progress = track->progress;
  uint64_t before = atomic_load_explicit(&progress->polled, memory_order_relaxed);
  uint32_t tail = atomic_load_explicit(&track->tail, memory_order_relaxed);
  uint32_t ended = atomic_load_explicit(&track->ended, memory_order_acquire);
  uint32_t started = atomic_load_explicit(&track->started, memory_order_acquire);
  uint32_t done = first_unfinished(track, tail, ended);
  uint32_t reached = done; /* the next one, too, if what is in front of it is done */
  if (started != done && has_passed(track, track->marks[done % MARKS].start))
    reached++;
  uint64_t now = nt_clock_ticks(nt_process.clock);
  /* An abort may have come between: what it released does not count. Pairs with nt_gpu_freeze. */
  atomic_thread_fence(memory_order_seq_cst);
  uint32_t frozen = atomic_load_explicit(&progress->frozen, memory_order_relaxed);
  for (uint32_t at = tail; at != done; at++)
    measure(track, at);
  if (reached != track->reached && (int32_t)(reached - track->reached) > 0) {
    uint32_t first = track->marks[track->reached % MARKS].launch;
    uint32_t last = track->marks[(reached - 1) % MARKS].launch;
    track->reached = reached;
    if (last > frozen) {
      atomic_store_explicit(&progress->reached, last, memory_order_relaxed);
      write_mark(track, NT_GPU_REACHED, first, last, before, now);
    }
  }
  if (done != tail) {
    uint32_t first = track->marks[tail % MARKS].launch;
    uint32_t last = track->marks[(done - 1) % MARKS].launch;
    if (last > frozen) {
      first = first > frozen ? first : frozen + 1;
      atomic_store_explicit(&progress->finished, last, memory_order_relaxed);
      write_mark(track, NT_GPU_FINISHED, first, last, before, now);
    }
    atomic_store_explicit(&track->tail, done, memory_order_release);
  }
  if (atomic_load_explicit(&progress->finished, memory_order_relaxed) >= frozen)
    atomic_store_explicit(&progress->followed,
                          started != done ? track->marks[done % MARKS].launch : 0,
                          memory_order_release); /* pairs with nt_area_stream */
  atomic_store_explicit(&progress->polled, now, memory_order_release);
}

/* How many marks were outstanding at most on one stream. */
static uint32_t look_at_all(nt_cu_context *current) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  const uint32_t used = atomic_load_explicit(&tracks_used, memory_order_acquire);
  uint32_t most = 0;
  for (unsigned i = 0; i < used; i++) {
    struct nt_gpu_track *track = atomic_load_explicit(&tracks[i], memory_order_acquire);
    const uint32_t outstanding = track
                                     ? atomic_load_explicit(&track->started, memory_order_relaxed) -
                                           atomic_load_explicit(&track->tail, memory_order_relaxed)
                                     : 0;
    if (!outstanding)
      continue;
    most = outstanding > most ? outstanding : most;
    if (*current != track->context && driver->ctx_set_current(track->context) == NT_CU_SUCCESS)
      *current = track->context;
    look_at(track);
  }
  return most;
}

static long pause_ms(uint32_t outstanding) {
  if (!outstanding)
    return IDLE_MS;
  return outstanding > MARKS / 2 ? HURRY_MS : BUSY_MS;
}

static void *poll_main(void *unused) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  struct nt_area_header *header = nt_process.area.header;
  nt_cu_context current = NULL;
  int mode = NT_CU_CAPTURE_MODE_RELAXED;
  (void)unused;
  prctl(PR_SET_NAME, "nccltrace-gpu", 0, 0, 0);
  /* A query from a thread in the default mode would invalidate captures of the whole process. */
  driver->exchange_capture_mode(&mode);
  uint32_t running = RUNNING;
  while (atomic_load_explicit(&thread_state, memory_order_acquire) == running) {
    atomic_store_explicit(&header->gpu_heartbeat_ns, nt_clock_ns(CLOCK_REALTIME),
                          memory_order_release);
    uint32_t wanted = atomic_load_explicit(&looks_wanted, memory_order_acquire);
    const uint32_t outstanding = look_at_all(&current);
    if (wanted != atomic_load_explicit(&looks_done, memory_order_relaxed)) {
      atomic_store_explicit(&looks_done, wanted, memory_order_release);
      syscall(SYS_futex, &looks_done, FUTEX_WAKE_PRIVATE, 64, NULL, NULL, 0);
    }
    void *(*body)(void *) = atomic_exchange_explicit(&body_wanted, NULL, memory_order_acq_rel);
    if (body)
      nt_own_thread_start(body);
    if (wanted != atomic_load_explicit(&looks_wanted, memory_order_acquire))
      continue;
    struct timespec pause = {0, pause_ms(outstanding) * 1000000L};
    syscall(SYS_futex, &thread_state, FUTEX_WAIT_PRIVATE, running, &pause, NULL, 0);
  }
  look_at_all(&current); /* what the process leaves behind is as late as it can be */
  atomic_store(&thread_state, STOPPED);
  syscall(SYS_futex, &thread_state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  return NULL;
}

static void start_thread(void) {
  uint32_t none = NONE;
  if (!atomic_compare_exchange_strong(&thread_state, &none, RUNNING))
    return;
  if (nt_own_thread_start(poll_main) != 0)
    nt_gpu_enabled = false;
}

/* ---- the call path ----------------------------------------------------------------------------- */

/* First launch on a stream: the one place here that allocates. */
static struct nt_gpu_track *new_track(uint16_t slot) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  struct nt_gpu_track *track = calloc(1, sizeof(*track));
  if (!track)
    return NULL;
  track->slot = slot;
  track->progress = &nt_process.area.gpu_streams[slot];
  if (driver->ctx_get_current(&track->context) != NT_CU_SUCCESS || !track->context) {
    free(track);
    return NULL;
  }
  struct nt_gpu_track *other = NULL;
  if (!atomic_compare_exchange_strong(&tracks[slot], &other, track)) {
    free(track);
    return other;
  }
  nt_area_raise(&tracks_used, slot + 1u);
  start_thread();
  return track;
}

static bool prepare_events(struct mark *mark, uint32_t at) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  unsigned flags = at % TIMED_EVERY ? NT_CU_EVENT_DISABLE_TIMING : NT_CU_EVENT_DEFAULT;
  if (NT_LIKELY(mark->end != NULL))
    return true;
  if (driver->event_create(&mark->start, flags) != NT_CU_SUCCESS)
    return false;
  return driver->event_create(&mark->end, flags) == NT_CU_SUCCESS;
}

/* Where the start mark of a stream's first launches is put. A stream whose first work of all is a mark behind a wait makes
 * the device slower ever after, for as long as it waits: by 1.2 us for each kernel that runs meanwhile (H200, driver 580). Where
 * PyTorch has just made it wait for another stream in order to launch on it, the mark stands there, behind what is awaited. */
static cudaStream_t place_early(cudaStream_t stream) {
  struct nt_thread *thread = &nt_thread;
  bool ahead =
      thread->waits_to_launch && thread->waiting == stream &&
      nt_torch_holds(thread->return_address) &&
      nt_cuda_capture_of((nt_cu_stream)(void *)thread->awaited).state == NT_CU_NOT_CAPTURING;
  thread->waits_to_launch = false;
  return ahead ? thread->awaited : stream;
}

static bool record_start(nt_cu_event event, cudaStream_t stream) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  return driver->event_record(event, (nt_cu_stream)(void *)stream) == NT_CU_SUCCESS;
}

/* Puts the start mark of `number`; false if this launch stays unmarked. A mark in front of which all launches have marks
 * may stand early; else it is to tell that those without are complete. */
static bool put_start(struct nt_gpu_track *track, uint32_t number, cudaStream_t stream) {
  uint32_t at = atomic_load_explicit(&track->started, memory_order_relaxed);
  uint32_t tail = atomic_load_explicit(&track->tail, memory_order_acquire);
  if (track->broken || at - tail >= MARKS)
    return false;
  struct mark *mark = &track->marks[at % MARKS];
  mark->launch = number;
  track->broken = !prepare_events(mark, at);
  cudaStream_t place = NT_UNLIKELY(at < EARLY && number == at + 1) ? place_early(stream) : stream;
  if (!track->broken && !record_start(mark->start, place)) /* of another context, perhaps */
    track->broken = place == stream || !record_start(mark->start, stream);
  if (track->broken)
    return false;
  atomic_store_explicit(&track->started, at + 1, memory_order_release);
  return true;
}

static void go_unmarked(struct nt_gpu_stream *progress, uint32_t number) {
  atomic_fetch_add_explicit(&progress->unmarked, 1, memory_order_relaxed);
  nt_area_raise(&progress->unmarked_last, number);
}

struct nt_gpu_launch nt_gpu_begin(uint16_t slot, cudaStream_t stream, bool mark) {
  struct nt_gpu_launch launch = {0};
  if (!slot || slot >= STREAMS || !nt_gpu_on())
    return launch;
  struct nt_gpu_stream *progress = &nt_process.area.gpu_streams[slot];
  launch.number = atomic_fetch_add_explicit(&progress->issued, 1, memory_order_relaxed) + 1;
  struct nt_gpu_track *track = atomic_load_explicit(&tracks[slot], memory_order_acquire);
  if (NT_UNLIKELY(!track))
    track = new_track(slot);
  if (!track || !mark || atomic_exchange_explicit(&track->busy, 1, memory_order_acquire)) {
    go_unmarked(progress, launch.number);
    return launch;
  }
  launch.at = atomic_load_explicit(&track->started, memory_order_relaxed);
  if (put_start(track, launch.number, stream)) {
    launch.track = track;
    return launch;
  }
  atomic_store_explicit(&track->busy, 0, memory_order_release);
  go_unmarked(progress, launch.number);
  return launch;
}

void nt_gpu_end_mark(struct nt_gpu_launch launch, cudaStream_t stream) {
  struct nt_gpu_track *track = launch.track;
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  struct mark *mark = &track->marks[launch.at % MARKS];
  if (driver->event_record(mark->end, (nt_cu_stream)(void *)stream) == NT_CU_SUCCESS)
    atomic_store_explicit(&track->ended, launch.at + 1, memory_order_release);
  else
    track->broken = true;
  atomic_store_explicit(&track->busy, 0, memory_order_release);
}

/* Has the gpu thread look once more, now; waits for it at most a few milliseconds. */
static void look_now(void) {
  struct timespec wait = {0, LOOK_MS * 1000000L};
  if (atomic_load(&thread_state) != RUNNING)
    return;
  uint32_t done = atomic_load_explicit(&looks_done, memory_order_relaxed);
  atomic_fetch_add_explicit(&looks_wanted, 1, memory_order_release);
  syscall(SYS_futex, &thread_state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  syscall(SYS_futex, &looks_done, FUTEX_WAIT_PRIVATE, done, &wait, NULL, 0);
}

void nt_gpu_freeze(void) {
  if (!nt_gpu_on())
    return;
  look_now(); /* what is finished by now counts */
  for (unsigned i = 1; i < STREAMS; i++) {
    struct nt_gpu_track *track = atomic_load_explicit(&tracks[i], memory_order_acquire);
    if (!track)
      continue;
    uint32_t issued = atomic_load_explicit(&track->progress->issued, memory_order_relaxed);
    uint32_t finished = atomic_load_explicit(&track->progress->finished, memory_order_relaxed);
    if (issued == finished)
      continue;
    atomic_store_explicit(&track->progress->frozen_after, finished, memory_order_relaxed);
    atomic_store_explicit(&track->progress->frozen, issued, memory_order_relaxed);
  }
  atomic_thread_fence(memory_order_seq_cst);
}

int nt_gpu_start_thread(void *(*body)(void *)) {
  if (atomic_load(&thread_state) != RUNNING)
    return -1;
  atomic_store_explicit(&body_wanted, body, memory_order_release);
  return 0;
}

void nt_gpu_stop(void) {
  uint32_t state = RUNNING;
  struct timespec wait = {0, STOP_MS * 1000000L};
  if (!atomic_compare_exchange_strong(&thread_state, &state, STOPPING))
    return;
  syscall(SYS_futex, &thread_state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  syscall(SYS_futex, &thread_state, FUTEX_WAIT_PRIVATE, STOPPING, &wait, NULL, 0);
}
