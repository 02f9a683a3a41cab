/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/dump_thread.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/futex.h"
#include "preload/own_thread.h"
#include "preload/process.h"
#include "trace/clock.h"

enum { SECTION_BYTES = 4 << 20 };

static const struct {
  void (*fill)(struct nt_buffer *out);
  bool native_only; /* taken only where native stacks were asked for */
} sections[NT_DUMP_SECTIONS] = {
    [NT_DUMP_THREADS] = {nt_dump_threads, false},   [NT_DUMP_MEMORY] = {nt_dump_memory, false},
    [NT_DUMP_PYTHON] = {nt_dump_python, false},     [NT_DUMP_NATIVE] = {nt_dump_native, true},
    [NT_DUMP_HARDWARE] = {nt_dump_hardware, false}, [NT_DUMP_JOB] = {nt_dump_job, false},
};

/* Also the futex on which the thread sleeps. */
enum { IDLE, WANTED, WORKING, NO_THREAD };
static _Atomic uint32_t work = NO_THREAD;
static struct nt_dump_head wanted; /* the thread's while WORKING */
static struct nt_buffer *_Atomic finished[NT_DUMP_SECTIONS];

static void take_section(unsigned section) {
  struct nt_buffer *out = calloc(1, sizeof(*out)), *facts = calloc(1, sizeof(*facts));
  struct nt_dump_head head = wanted;
  atomic_store_explicit(&nt_process.area.header->dump_section, section, memory_order_release);
  if (!out || !facts) {
    free(out);
    free(facts);
    return;
  }
  facts->limit = SECTION_BYTES;
  sections[section].fill(facts);
  facts->failed = false; /* what found room is worth keeping */
  head.section = section;
  head.taken_ns = nt_clock_ns(CLOCK_REALTIME);
  nt_dump_add_head(out, &head);
  nt_add_bytes(out, facts->data, facts->length);
  nt_dump_free(facts);
  nt_dump_free(atomic_exchange_explicit(&finished[section], out, memory_order_acq_rel));
  nt_futex_wake(&nt_process.area.header->request); /* the helper need not wait for its next tick */
}

static void *dump_main(void *unused) {
  (void)unused;
  prctl(PR_SET_NAME, "nccltrace-dump", 0, 0, 0);
  nt_own_descriptors(); /* files and sockets of a dump are open for up to a second */
  for (;;) {
    uint32_t now = WANTED;
    if (!atomic_compare_exchange_strong(&work, &now, WORKING)) {
      syscall(SYS_futex, &work, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
      continue;
    }
    for (unsigned i = 1; i < NT_DUMP_SECTIONS; i++)
      if (wanted.asked >> i & 1)
        take_section(i);
    struct nt_area_header *header = nt_process.area.header;
    atomic_store_explicit(&header->dump_section, 0, memory_order_release);
    atomic_store(&work, IDLE);
    nt_futex_wake(&header->request);
  }
  return NULL;
}

int nt_dump_start(void) {
  for (unsigned i = 0; i < NT_DUMP_SECTIONS; i++)
    atomic_store(&finished[i], NULL); /* a parent's, after a fork */
  atomic_store(&work, IDLE);
  if (nt_own_thread_start(dump_main) == 0)
    return 0;
  atomic_store(&work, NO_THREAD);
  return -1;
}

bool nt_dump_possible(void) {
  return atomic_load(&work) != NO_THREAD;
}

static bool has_finished_sections(void) {
  for (unsigned i = 1; i < NT_DUMP_SECTIONS; i++)
    if (atomic_load_explicit(&finished[i], memory_order_relaxed))
      return true;
  return false;
}

uint32_t nt_dump_begin(enum nt_dump_reason reason, bool native) {
  struct nt_area_header *header = nt_process.area.header;
  if (atomic_load(&work) != IDLE || has_finished_sections())
    return 0;
  wanted = (struct nt_dump_head){
      .number = atomic_fetch_add_explicit(&header->dumps, 1, memory_order_relaxed) + 1,
      .reason = reason,
      .began_ns = nt_clock_ns(CLOCK_REALTIME)};
  for (unsigned i = 1; i < NT_DUMP_SECTIONS; i++)
    if (native || !sections[i].native_only)
      wanted.asked |= 1u << i;
  const uint32_t number = wanted.number; /* the thread's own from here on */
  atomic_store(&work, WANTED);
  syscall(SYS_futex, &work, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  return number;
}

bool nt_dump_running(void) {
  uint32_t now = atomic_load(&work);
  return now == WANTED || now == WORKING;
}

struct nt_buffer *nt_dump_take(void) {
  for (unsigned i = 1; i < NT_DUMP_SECTIONS; i++) {
    struct nt_buffer *section = atomic_exchange_explicit(&finished[i], NULL, memory_order_acq_rel);
    if (section)
      return section;
  }
  return NULL;
}

void nt_dump_free(struct nt_buffer *section) {
  if (!section)
    return;
  free(section->data);
  free(section);
}
