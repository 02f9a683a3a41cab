/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native stacks of all threads, one after the other. A thread is sent the dump signal; its handler does nothing but
 * say where its registers are, and wait; the dump thread walks the stack meanwhile and lets the thread go. So nothing
 * that allocates, locks or can fault runs in a handler. What the held thread has locked the walk may need: then both
 * wait, until the handler's time is up; the thread goes on, and what was read of it is thrown away.
 *
 * The signal ends what the thread sleeps in with EINTR where the kernel does not restart it (poll, select, epoll_wait,
 * nanosleep, sem_timedwait): that is why these stacks are taken on request only.
 *
 * One word says whose turn it is: the number of the asking in its upper bits, what became of it in the lower ones. A
 * handler that is late finds another number there, and does nothing.
 */
#include "preload/dump_native.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "preload/dump_signal.h"
#include "preload/dump_thread.h"
#include "preload/fork_gate.h"
#include "preload/modules.h"
#include "preload/process.h"
#include "preload/unwinder.h"
#include "trace/clock.h"
#include "trace/read_text.h"

enum {
  ANSWER_MS = 100, /* a thread is given to answer */
  HOLD_MS = 100,   /* a thread is held at most */
  TOTAL_MS = 1000, /* all threads together are waited for at most */
};

/* ---- between the two threads -------------------------------------------------------------------- */

enum { FREE, ASKED, CLAIMED, HELD, GONE, STATES };

static _Atomic uint32_t turn; /* number * STATES + state; a futex */
static uint32_t asked;        /* askings so far; dump thread only */
static ucontext_t *held;      /* of who has CLAIMED the turn; valid once it is HELD */

static uint32_t word(uint32_t number, uint32_t state) {
  return (number & 0xfffffff) * STATES + state;
}

static bool change(uint32_t number, uint32_t from, uint32_t to) {
  uint32_t before = word(number, from);
  return atomic_compare_exchange_strong_explicit(&turn, &before, word(number, to),
                                                 memory_order_acq_rel, memory_order_acquire);
}

static void wake(void) {
  syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 2, NULL, NULL, 0);
}

/* Until the word is no longer `value`, or the time is up. */
static void wait_while(uint32_t value, unsigned ms) {
  const uint64_t end = nt_clock_ns(CLOCK_MONOTONIC) + (uint64_t)ms * 1000000;
  while (atomic_load_explicit(&turn, memory_order_acquire) == value) {
    const uint64_t now = nt_clock_ns(CLOCK_MONOTONIC);
    if (now >= end)
      return;
    struct timespec pause = {(time_t)((end - now) / 1000000000), (long)((end - now) % 1000000000)};
    syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, value, &pause, NULL, 0);
  }
}

/* A number that only this process knows stands in front of the asking's. */
static uintptr_t cookie(uint32_t number) {
  uint32_t secret = (uint32_t)nt_process.area.header->nonce | 1;
  return (uintptr_t)secret << 32 | (number & 0xfffffff);
}

bool nt_native_on_signal(const siginfo_t *info, void *context) {
  if (info->si_code != SI_QUEUE || info->si_pid != getpid() || !nt_recording())
    return false;
  uint32_t number = (uint32_t)(uintptr_t)info->si_value.sival_ptr;
  if ((uintptr_t)info->si_value.sival_ptr != cookie(number))
    return false;
  int saved_errno = errno;
  if (change(number, ASKED, CLAIMED)) {
    held = context;
    change(number, CLAIMED, HELD);
    wake();
    wait_while(word(number, HELD), HOLD_MS);
    change(number, HELD, GONE);
  }
  errno = saved_errno;
  return true;
}

/* ---- one thread --------------------------------------------------------------------------------- */

struct walk {
  const struct nt_unwinder *unwinder;
  struct nt_modules modules;
  void *cursor;
  int signal;
  uint64_t end_ns; /* CLOCK_MONOTONIC */
  uintptr_t at[NT_DUMP_FRAMES_MAX];
  uint32_t count;
  bool cut;
};

static const char *field(const char *status, const char *name) {
  const char *at = strstr(status, name);
  return at ? at + strlen(name) : "";
}

/* Why a thread is not to be asked: "" if it is not worth a word; NULL: ask it. */
static const char *objection(uint32_t tid, int signal) {
  char status[4096];
  if (nt_read_text_at(status, sizeof status, "/proc/self/task/%u/status", tid) <= 0 ||
      !strncmp(status, "Name:\tnccltrace", 15))
    return "";
  switch (*field(status, "\nState:\t")) {
  case 'T':
  case 't':
    return "stopped";
  case 'D':
    return "inside the kernel, where no signal reaches it";
  case 'Z':
  case 'X':
    return "";
  }
  return nt_status_signals(status, "SigBlk") >> (signal - 1) & 1 ? "blocks the signal" : NULL;
}

/* Addresses of the frames, innermost first, each inside its instruction. The thread is held. */
static void walk_stack(struct walk *walk) {
  const struct nt_unwinder *unwinder = walk->unwinder;
  ucontext_t context;
  walk->count = 0;
  walk->cut = false;
  if (!nt_dump_read((uintptr_t)held, &context, offsetof(ucontext_t, uc_sigmask)))
    return;
#if defined(__aarch64__)
  if (!nt_dump_read((uintptr_t)held, &context, sizeof context))
    return;
#endif
  nt_unwinder_begin(true);
  if (unwinder->init(walk->cursor, &context, NT_UNWINDER_SIGNAL_FRAME) < 0)
    return;
  bool exact = true; /* not a return address */
  do {
    uintptr_t pc;
    if (unwinder->get_reg(walk->cursor, NT_UNWINDER_PC, &pc) < 0 || !pc)
      break;
    if (walk->count == NT_DUMP_FRAMES_MAX) {
      walk->cut = true;
      break;
    }
    walk->at[walk->count++] = exact ? pc : pc - 1;
    exact = unwinder->is_signal_frame(walk->cursor) > 0;
  } while (unwinder->step(walk->cursor) > 0);
}

static const char LOST[] = "the program has taken the signal for itself";

/* Asks, walks and lets go. NULL, or why there is no stack. */
static const char *ask_and_walk(struct walk *walk, uint32_t tid) {
  const uint32_t number = ++asked & 0xfffffff, before = atomic_load(&turn);
  if (!nt_dump_signal_is_ours(walk->signal))
    return LOST;
  if (before % STATES == CLAIMED)
    wait_while(before, ANSWER_MS);
  if (atomic_load(&turn) % STATES == CLAIMED)
    return "another thread is still about to answer";
  siginfo_t info = {.si_signo = walk->signal, .si_code = SI_QUEUE};
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = (void *)cookie(number);
  atomic_store_explicit(&turn, word(number, ASKED), memory_order_release);
  wake(); /* whom the word before concerned */
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, walk->signal, &info) != 0) {
    change(number, ASKED, FREE);
    return errno == ESRCH ? "" : "no signal could be sent to it";
  }
  wait_while(word(number, ASKED), ANSWER_MS);
  if (change(number, ASKED, FREE))
    return "did not answer the signal";
  wait_while(word(number, CLAIMED), ANSWER_MS);
  if (atomic_load_explicit(&turn, memory_order_acquire) != word(number, HELD))
    return "answered too slowly";
  walk_stack(walk);
  bool whole = change(number, HELD, FREE);
  wake();
  return !whole         ? "could not be held for long enough"
         : !walk->count ? "has no readable stack"
                        : NULL;
}

/* From before it is asked on: a thread that is held inside a fork would keep the walk out. */
static const char *look_at(struct walk *walk, uint32_t tid) {
  if (!nt_fork_gate_enter(NT_GATE_DUMP_MS))
    return "not asked: the program forked all the time";
  const char *reason = ask_and_walk(walk, tid);
  nt_fork_gate_leave();
  return reason;
}

static void add_stack(struct nt_buffer *out, const struct walk *walk, uint32_t tid) {
  struct nt_dump_frame frames[NT_DUMP_FRAMES_MAX];
  for (uint32_t i = 0; i < walk->count; i++) {
    const struct nt_module *module = nt_modules_find(&walk->modules, walk->at[i]);
    frames[i] = (struct nt_dump_frame){.at = walk->at[i] - (module ? module->base : 0),
                                       .file = module ? module->path : "?",
                                       .name = module ? module->build_id : ""};
    frames[i].file_length = (uint16_t)strlen(frames[i].file);
    frames[i].name_length = (uint16_t)strlen(frames[i].name);
  }
  nt_dump_add_stack(out, tid, NT_DUMP_STACK_NATIVE, walk->cut ? NT_DUMP_STACK_CUT : 0, frames,
                    walk->count);
}

/* ---- all threads -------------------------------------------------------------------------------- */

enum { REASONS = 16, NAMED = 32 /* threads that get a line of their own */ };

struct missing {
  const char *reason[REASONS];
  uint32_t threads[REASONS];
  uint32_t named, kinds;
};

static void note(struct nt_buffer *out, struct missing *missing, uint32_t tid, const char *reason) {
  char key[40];
  uint32_t i = 0;
  if (missing->named < NAMED) {
    missing->named++;
    snprintf(key, sizeof key, "missing.native.%u", tid);
    nt_dump_add_fact(out, key, "%s", reason);
    return;
  }
  while (i < missing->kinds && strcmp(missing->reason[i], reason))
    i++;
  if (i == REASONS)
    return;
  missing->reason[i] = reason;
  missing->threads[i]++;
  missing->kinds += i == missing->kinds;
}

static void note_more(struct nt_buffer *out, const struct missing *missing) {
  for (uint32_t i = 0; i < missing->kinds; i++) {
    char key[40];
    snprintf(key, sizeof key, "missing.native.more%u", i + 1);
    nt_dump_add_fact(out, key, "%u more threads: %s", missing->threads[i], missing->reason[i]);
  }
}

/* It would die of the signal, or get what it knows nothing of. */
static void note_lost(struct nt_buffer *out, int signal) {
  nt_dump_signal_check(); /* nobody is to be told to send it */
  nt_dump_add_fact(out, "missing.native", "the program has taken signal %d for itself", signal);
}

static void walk_threads(struct nt_buffer *out, struct walk *walk, DIR *dir) {
  struct missing missing = {0};
  const char *reason = NULL;
  uint32_t taken = 0;
  for (struct dirent *entry; reason != LOST && (entry = readdir(dir));) {
    uint32_t tid = (uint32_t)strtoul(entry->d_name, NULL, 10);
    reason = tid ? objection(tid, walk->signal) : "";
    if (!reason)
      reason = nt_clock_ns(CLOCK_MONOTONIC) < walk->end_ns ? look_at(walk, tid)
                                                           : "not asked: others took all the time";
    if (!reason) {
      add_stack(out, walk, tid);
      taken++;
    } else if (reason == LOST) {
      note_lost(out, walk->signal);
    } else if (*reason) {
      note(out, &missing, tid, reason);
    }
  }
  note_more(out, &missing);
  nt_dump_add_fact(out, "native.threads", "%u", taken);
}

/* dlopen holds the loader's locks, too. */
static const struct nt_unwinder *open_unwinder(const char **reason) {
  *reason = "the program forked all the time";
  if (!nt_fork_gate_enter(NT_GATE_DUMP_MS))
    return NULL;
  const struct nt_unwinder *unwinder = nt_unwinder_open(reason);
  nt_fork_gate_leave();
  return unwinder;
}

void nt_dump_native(struct nt_buffer *out) {
  struct walk *walk = calloc(1, sizeof *walk);
  const char *reason = "there was no memory";
  DIR *dir = opendir("/proc/self/task");
  const int signal = nt_dump_signal_check();
  if (!walk || !dir || !(walk->cursor = malloc(NT_UNWINDER_CURSOR)))
    nt_dump_add_fact(out, "missing.native", "%s", dir ? reason : strerror(errno));
  else if (!signal)
    nt_dump_add_fact(out, "missing.native",
                     "NCCLTRACE_SIGNAL is off, or the program uses all real-time signals itself");
  else if (signal < 0)
    note_lost(out, -signal);
  else if (!(walk->unwinder = open_unwinder(&reason)))
    nt_dump_add_fact(out, "missing.native", "%s", reason);
  else {
    walk->signal = signal;
    walk->end_ns = nt_clock_ns(CLOCK_MONOTONIC) + TOTAL_MS * UINT64_C(1000000);
    nt_modules_load(&walk->modules);
    walk_threads(out, walk, dir);
    nt_modules_free(&walk->modules);
  }
  if (dir)
    closedir(dir);
  if (walk)
    free(walk->cursor);
  free(walk);
}
