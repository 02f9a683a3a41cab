/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack walk for tests to call: from Python through ctypes (libprobe.so), from embed.c by linking.
 * Regions are memory of the test's own; what was stored is read back by the tools' own code.
 */
#include "probe.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/python_layout.h"
#include "preload/python_stack.h"
#include "preload/stack_intern.h"
#include "trace/python_lines.h"
#include "trace/read_stacks.h"
#include "trace/reader.h"

static struct nt_code_region *codes;
static struct nt_stack_region *stacks;

int probe_start(unsigned code_bytes, unsigned nodes) {
  nt_python_find();
  free(codes);
  free(stacks);
  codes = calloc(1, code_bytes);
  stacks = calloc(nodes + 4, sizeof(struct nt_stack_node));
  atomic_store(&codes->used, sizeof(*codes));
  codes->size = code_bytes;
  atomic_store(&stacks->used, 1);
  stacks->count = nodes;
  nt_python_stack_enable(true);
  return nt_intern_start(codes, stacks) == 0 && nt_python_get() != NULL;
}

const char *probe_state(void) {
  const char *version, *state;
  return nt_python_describe(&version, &state) ? state : "none";
}

unsigned probe_id(void) {
  uint16_t flags = 0;
  errno = 1234;
  unsigned id = nt_python_stack(&flags);
  return errno != 1234 ? 0xeeeeeeee : flags & NT_CALL_NO_STACK ? 0xffffffff : id;
}

unsigned long probe_lost(void) {
  return (unsigned long)atomic_load(&stacks->lost);
}

int probe_text(unsigned id, char *out, unsigned size) {
  struct nt_stack_table table = {0};
  const struct nt_stack_frame *frames;
  int rc = nt_stack_table_area(&table, codes, codes->size, stacks,
                               sizeof(*stacks) + stacks->count * sizeof(struct nt_stack_node));
  int count = rc ? rc : nt_stack_table_get(&table, id, &frames);
  unsigned used = 0;
  out[0] = 0;
  for (int i = 0; i < count && used < size; i++)
    used += (unsigned)snprintf(out + used, size - used, "%d\t%s\t%s\n", frames[i].line,
                               frames[i].function, frames[i].file);
  nt_stack_table_free(&table);
  return count;
}

int probe_stack(char *out, unsigned size) {
  unsigned id = probe_id();
  out[0] = 0;
  return id && id < 0xeeeeeeee ? probe_text(id, out, size) : (int)-id;
}

/* On a thread that Python knows nothing of. */
static void *foreign(void *out) {
  *(unsigned *)out = probe_id();
  return NULL;
}

unsigned probe_foreign_thread(void) {
  pthread_t thread;
  unsigned id = 0xdddddddd;
  if (pthread_create(&thread, NULL, foreign, &id) == 0)
    pthread_join(thread, NULL);
  return id;
}

int probe_line(unsigned format, const unsigned char *table, unsigned length, int first,
               int offset) {
  return nt_python_line(format, table, length, first, offset);
}

static double now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* Least mean of 50 batches: what it costs when nothing else disturbs. */
double probe_cost(void) {
  enum { BATCHES = 50, CALLS = 2000 };
  double best = 1e9;
  uint16_t flags = 0;
  for (int b = 0; b < BATCHES; b++) {
    double start = now_ns();
    for (int i = 0; i < CALLS; i++)
      nt_python_stack(&flags);
    double mean = (now_ns() - start) / CALLS;
    best = mean < best ? mean : best;
  }
  return best;
}

/* Instructions of one call, 0 where the machine does not count them for us. */
double probe_instructions(void) {
  enum { CALLS = 2000 };
  struct perf_event_attr attributes = {.type = PERF_TYPE_HARDWARE,
                                       .size = sizeof(attributes),
                                       .config = PERF_COUNT_HW_INSTRUCTIONS,
                                       .exclude_kernel = 1};
  uint64_t count = 0;
  uint16_t flags = 0;
  int fd = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
  if (fd < 0)
    return 0;
  ioctl(fd, PERF_EVENT_IOC_RESET, 0);
  for (int i = 0; i < CALLS; i++)
    nt_python_stack(&flags);
  if (read(fd, &count, sizeof(count)) != sizeof(count))
    count = 0;
  close(fd);
  return (double)count / CALLS;
}
