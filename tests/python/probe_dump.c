/* SPDX-License-Identifier: Apache-2.0 */
/* The Python section of dumps for tests to call: taken on a thread of C, as in a traced process, while the caller waits
 * with or without the GIL. */
#include "probe.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/dump_thread.h"

struct job {
  unsigned dumps;
  char *out;
  unsigned size, used;
  bool distinct; /* only frames, each line once */
  int stacks;
  double best_ns;
  uint64_t *seen; /* hashes of lines; a table */
};

enum { SEEN = 1 << 20 };

static void put(struct job *job, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(job->out + job->used, job->size - job->used, format, arguments);
  va_end(arguments);
  if (length < 0 || (unsigned)length >= job->size - job->used) {
    job->stacks = -1000000000;
    return;
  }
  uint64_t hash = 0xcbf29ce484222325;
  for (int i = 0; i < length; i++)
    hash = (hash ^ (unsigned char)job->out[job->used + (unsigned)i]) * 0x100000001b3;
  for (uint64_t i = hash % SEEN; job->distinct; i = (i + 1) % SEEN) {
    if (job->seen[i] == hash)
      return;
    if (!job->seen[i]) {
      job->seen[i] = hash;
      break;
    }
  }
  job->used += (unsigned)length;
}

static void put_stack(struct job *job, const unsigned char *at) {
  uint32_t count = nt_get_u32(at + NT_DUMP_STACK_COUNT);
  job->stacks++;
  if (!job->distinct)
    put(job, "stack %u %u\n", nt_get_u32(at + NT_DUMP_STACK_TID),
        nt_get_u16(at + NT_DUMP_STACK_FLAGS));
  at += NT_DUMP_STACK_HEAD;
  for (uint32_t i = 0; i < count; i++) {
    unsigned file = nt_get_u16(at + NT_DUMP_FRAME_FILE), name = nt_get_u16(at + NT_DUMP_FRAME_NAME);
    const char *text = (const char *)at + NT_DUMP_FRAME_HEAD;
    put(job, "%u\t%.*s\t%.*s\n", (unsigned)nt_get_u64(at + NT_DUMP_FRAME_AT), (int)name,
        text + file, (int)file, text);
    at += nt_round_up(NT_DUMP_FRAME_HEAD + (uint64_t)file + name, 8);
  }
}

static void put_section(struct job *job, const struct nt_buffer *section) {
  struct nt_cursor cursor = {.at = section->data, .left = section->length};
  const unsigned char *at;
  uint16_t kind;
  uint32_t length;
  while (nt_entry_next(&cursor, &kind, &at, &length)) {
    if (kind == NT_ENTRY_DUMP_STACK)
      put_stack(job, at);
    else if (kind == NT_ENTRY_DUMP_FACT && !job->distinct)
      put(job, "%.*s\n", (int)length, (const char *)at);
  }
}

static double now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void *work(void *argument) {
  struct job *job = argument;
  job->best_ns = 1e18;
  for (unsigned i = 0; i < job->dumps; i++) {
    struct nt_buffer section = {0};
    double start = now_ns();
    nt_dump_python(&section);
    double took = now_ns() - start;
    job->best_ns = took < job->best_ns ? took : job->best_ns;
    if (job->out)
      put_section(job, &section);
    free(section.data);
  }
  return NULL;
}

static void run(struct job *job) {
  pthread_t thread;
  if (job->distinct)
    job->seen = calloc(SEEN, sizeof(*job->seen));
  if (job->out)
    job->out[0] = 0;
  if (pthread_create(&thread, NULL, work, job) == 0)
    pthread_join(thread, NULL);
  free(job->seen);
}

int probe_dump(char *out, unsigned size) {
  struct job job = {.dumps = 1, .out = out, .size = size};
  run(&job);
  return job.stacks < 0 ? -1 : (int)job.used;
}

int probe_dump_many(unsigned dumps, char *out, unsigned size) {
  struct job job = {.dumps = dumps, .out = out, .size = size, .distinct = true};
  run(&job);
  out[job.used] = 0;
  return job.stacks;
}

double probe_dump_cost(unsigned dumps) {
  struct job job = {.dumps = dumps};
  run(&job);
  return job.best_ns;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static bool open;

void probe_block(void) {
  pthread_mutex_lock(&lock);
  while (!open)
    pthread_cond_wait(&released, &lock);
  pthread_mutex_unlock(&lock);
}

void probe_unblock(void) {
  pthread_mutex_lock(&lock);
  open = true;
  pthread_cond_broadcast(&released);
  pthread_mutex_unlock(&lock);
}

static void *call(void *function) {
  void (*callback)(void);
  *(void **)&callback = function;
  callback();
  return NULL;
}

void probe_call_on_thread(void (*function)(void)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, call, *(void **)&function) == 0)
    pthread_detach(thread);
}

static _Atomic int bare_tid;

static void *be_bare(void *unused) {
  int (*ensure)(void);
  void *(*save)(void);
  *(void **)&ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  *(void **)&save = dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
  ensure();
  save();
  atomic_store(&bare_tid, (int)syscall(SYS_gettid));
  probe_block();
  return unused;
}

int probe_bare_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, be_bare, NULL) != 0)
    return 0;
  while (!atomic_load(&bare_tid))
    usleep(1000);
  return atomic_load(&bare_tid);
}
