/* SPDX-License-Identifier: Apache-2.0 */
/* Native stacks of all threads of this program, taken by a thread of its own as in a traced process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/native_symbols.h"
#include "preload/dump_native.h"
#include "preload/dump_signal.h"
#include "preload/dump_thread.h"
#include "preload/process.h"
#include "preload/unwinder.h"
#include "trace/bytes.h"
#include "trace/format.h"

#define KEEP __asm__ volatile("" ::: "memory")

enum { SPINS, READS, BLOCKS, KINDS, FRAMES = 128 };

static struct {
  pthread_t thread;
  _Atomic uint32_t tid;
} others[KINDS];
static int pipes[2];
static _Atomic bool enough;
static struct nt_buffer dump;
static int number; /* of the dump signal */

/* What the first signal brought that was sent to look at a thread. */
static siginfo_t first_signal(void) {
  siginfo_t info = {.si_signo = number, .si_code = SI_QUEUE};
  const uint64_t secret = (uint32_t)nt_process.area.header->nonce | 1;
  info.si_pid = getpid();
  info.si_value.sival_ptr = (void *)(uintptr_t)(secret << 32 | 1);
  return info;
}

static void report(int kind) {
  atomic_store(&others[kind].tid, (uint32_t)syscall(SYS_gettid));
}

static __attribute__((noinline)) void spin(void) {
  while (!atomic_load(&enough))
    ;
  KEEP;
}

static __attribute__((noinline)) void wait_for_bytes(void) {
  char byte;
  while (read(pipes[0], &byte, 1) < 0 && errno == EINTR)
    ;
  KEEP;
}

static void *run(void *kind) {
  const int which = (int)(intptr_t)kind;
  if (which == BLOCKS) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
  }
  report(which);
  if (which == SPINS)
    spin();
  else
    wait_for_bytes();
  return NULL;
}

static void *take(void *unused) {
  (void)unused;
  prctl(PR_SET_NAME, "nccltrace-dump", 0, 0, 0);
  nt_dump_native(&dump);
  return NULL;
}

static void take_dump(void) {
  sigset_t all, before;
  pthread_t thread;
  free(dump.data);
  dump = (struct nt_buffer){.limit = 1 << 20};
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  assert_int_equal(pthread_create(&thread, NULL, take, NULL), 0);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_join(thread, NULL);
}

static const char *fact(const char *key);

/* On a busy machine a thread may not get to answer in its time: until all that can have done. */
static void take_whole_dump(void) {
  int tries = 0;
  do
    take_dump();
  while (strcmp(fact("native.threads"), "3") && ++tries < 100);
  assert_string_equal(fact("native.threads"), "3");
}

static int begin(void **state) {
  static struct nt_guard guard = {.recording = 1};
  (void)state;
  nt_guard = &guard;
  assert_int_equal(nt_area_create("/nowhere/at/all", 1 << 20, &nt_process.area), 0);
  number = SIGRTMIN + 5;
  assert_int_equal(pipe(pipes), 0);
  for (int i = 0; i < KINDS; i++) {
    assert_int_equal(pthread_create(&others[i].thread, NULL, run, (void *)(intptr_t)i), 0);
    while (!atomic_load(&others[i].tid))
      usleep(1000);
  }
  return 0;
}

static int end(void **state) {
  (void)state;
  atomic_store(&enough, true);
  close(pipes[1]);
  for (int i = 0; i < KINDS; i++)
    pthread_join(others[i].thread, NULL);
  free(dump.data);
  nt_area_close(&nt_process.area);
  return 0;
}

/* ---- what the dump has -------------------------------------------------------------------------- */

/* The value of a fact; NULL if there is none. */
static const char *fact(const char *key) {
  static char text[4200];
  struct nt_cursor cursor = {.at = dump.data, .left = dump.length};
  const unsigned char *at;
  uint16_t kind;
  uint32_t size;
  while (nt_entry_next(&cursor, &kind, &at, &size)) {
    if (kind != NT_ENTRY_DUMP_FACT || size <= strlen(key) || memcmp(at, key, strlen(key)) ||
        at[strlen(key)] != '=')
      continue;
    snprintf(text, sizeof text, "%.*s", (int)(size - strlen(key) - 1), at + strlen(key) + 1);
    return text;
  }
  return NULL;
}

struct frame {
  uint64_t at;
  char file[300], id[80];
};

/* Frames of a thread's stack; 0 if it has none. */
static uint32_t stack_of(uint32_t tid, struct frame out[FRAMES]) {
  struct nt_cursor cursor = {.at = dump.data, .left = dump.length};
  const unsigned char *at;
  uint16_t kind;
  uint32_t size;
  while (nt_entry_next(&cursor, &kind, &at, &size)) {
    if (kind != NT_ENTRY_DUMP_STACK || nt_get_u32(at + NT_DUMP_STACK_TID) != tid)
      continue;
    assert_int_equal(nt_get_u16(at + NT_DUMP_STACK_KIND), NT_DUMP_STACK_NATIVE);
    const uint32_t count = nt_get_u32(at + NT_DUMP_STACK_COUNT);
    const unsigned char *frame = at + NT_DUMP_STACK_HEAD;
    for (uint32_t i = 0; i < count; i++) {
      const uint32_t file = nt_get_u16(frame + NT_DUMP_FRAME_FILE);
      const uint32_t name = nt_get_u16(frame + NT_DUMP_FRAME_NAME);
      const char *text = (const char *)frame + NT_DUMP_FRAME_HEAD;
      out[i].at = nt_get_u64(frame + NT_DUMP_FRAME_AT);
      snprintf(out[i].file, sizeof out[i].file, "%.*s", (int)file, text);
      snprintf(out[i].id, sizeof out[i].id, "%.*s", (int)name, text + file);
      frame += (NT_DUMP_FRAME_HEAD + file + name + 7) & ~7u;
    }
    return count;
  }
  return 0;
}

/* Index of the frame in this function; -1 if there is none. */
static int frame_in(const struct frame *frames, uint32_t count, const char *function) {
  struct nt_native_symbol symbol;
  for (uint32_t i = 0; i < count; i++) {
    const struct nt_stack_frame frame = {
        .file = frames[i].file, .function = "", .build_id = frames[i].id, .offset = frames[i].at};
    if (nt_native_symbol(&frame, &symbol) && !strcmp(symbol.function, function))
      return (int)i;
  }
  return -1;
}

static void a_thread_in_read_and_one_that_spins_are_named(void **state) {
  SKIP_IF_EMULATED("libunwind does not get past an emulated system call");
  struct frame frames[FRAMES];
  (void)state;
  take_whole_dump();
  uint32_t count = stack_of(atomic_load(&others[SPINS].tid), frames);
  assert_int_equal(frame_in(frames, count, "spin"), 0);
  count = stack_of(atomic_load(&others[READS].tid), frames);
  assert_true(frame_in(frames, count, "wait_for_bytes") > 0); /* inside it, read */
  assert_true(stack_of((uint32_t)getpid(), frames) > 0); /* the main thread waits for the dump */
  assert_int_equal(atomic_load(&nt_process.area.header->request), 0); /* nor was it a request */
}

static void a_thread_that_blocks_the_signal_is_said_to_do_so(void **state) {
  struct frame frames[FRAMES];
  char key[64];
  (void)state;
  take_dump();
  uint32_t tid = atomic_load(&others[BLOCKS].tid);
  assert_int_equal(stack_of(tid, frames), 0);
  snprintf(key, sizeof key, "missing.native.%u", tid);
  assert_non_null(fact(key));
  assert_string_equal(fact(key), "blocks the signal");
}

static void without_a_signal_it_is_said(void **state) {
  struct frame frames[FRAMES];
  (void)state;
  nt_dump_signal_install(-1);
  take_dump();
  nt_dump_signal_install(number);
  assert_int_equal(atomic_load(&nt_process.area.header->dump_signal), number);
  assert_non_null(fact("missing.native"));
  assert_non_null(strstr(fact("missing.native"), "NCCLTRACE_SIGNAL"));
  assert_int_equal(stack_of(atomic_load(&others[SPINS].tid), frames), 0);
}

static void an_answer_that_comes_late_changes_nothing(void **state) {
  ucontext_t *nowhere = (ucontext_t *)16;
  siginfo_t late = first_signal();
  (void)state;
  take_whole_dump();
  errno = 1234;
  assert_true(nt_native_on_signal(&late, nowhere)); /* and returns: nobody waits for it */
  assert_int_equal(errno, 1234);
  take_whole_dump();
}

static void somebody_else_s_signal_is_not_taken(void **state) {
  siginfo_t info = first_signal();
  (void)state;
  info.si_value.sival_ptr = (void *)((uintptr_t)info.si_value.sival_ptr ^ (uintptr_t)1 << 40);
  assert_false(nt_native_on_signal(&info, NULL));
  info = first_signal();
  info.si_code = SI_USER;
  assert_false(nt_native_on_signal(&info, NULL));
  info = first_signal();
  info.si_pid = 1;
  assert_false(nt_native_on_signal(&info, NULL));
}

static int theirs; /* signals that the program's own handler got */

static void count_signal(int unused) {
  (void)unused;
  theirs++;
}

/* Dumps while the program has the signal for itself, and has given it back. */
static void take_away_and_give_back(void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler}, ours;
  struct frame frames[FRAMES];
  assert_int_equal(sigaction(number, &action, &ours), 0);
  take_dump();
  assert_int_equal(stack_of(atomic_load(&others[SPINS].tid), frames), 0);
  assert_non_null(fact("missing.native"));
  assert_non_null(strstr(fact("missing.native"), "the program has taken signal"));
  assert_int_equal(atomic_load(&nt_process.area.header->dump_signal), 0);
  assert_int_equal(sigaction(number, &ours, NULL), 0);
  take_whole_dump();
  assert_int_equal(atomic_load(&nt_process.area.header->dump_signal), number);
}

static void a_signal_that_the_program_took_for_itself_is_not_sent(void **state) {
  (void)state;
  take_away_and_give_back(SIG_DFL); /* it would end this program */
  take_away_and_give_back(count_signal);
  assert_int_equal(theirs, 0);
}

static _Atomic bool forked_enough;

struct call {
  int (*look)(struct dl_phdr_info *info, size_t size, void *data);
  void *data;
  bool slow;
};

static int look_on(struct dl_phdr_info *info, size_t size, void *data) {
  const struct call *call = data;
  if (call->slow)
    usleep(100);
  return call->look(info, size, call->data);
}

static _Thread_local bool slow; /* the calling thread has the loader's lock for long */

/* Takes the place of the C library's, for libunwind too. */
int dl_iterate_phdr(int (*look)(struct dl_phdr_info *info, size_t size, void *data), void *data) {
  int (*libc_s)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
  struct call call = {look, data, slow};
  *(void **)&libc_s = dlsym(RTLD_NEXT, "dl_iterate_phdr");
  return libc_s(look_on, &call);
}

static void *take_dumps(void *unused) {
  const char *reason;
  prctl(PR_SET_NAME, "nccltrace-dump", 0, 0, 0);
  slow = true;
  while (!atomic_load(&forked_enough)) {
    struct nt_buffer out = {.limit = 1 << 20};
    const struct nt_unwinder *unwinder = nt_unwinder_open(&reason);
    if (unwinder)
      unwinder->flush_cache(unwinder->space, 0, 0); /* or it would never ask the loader */
    nt_dump_native(&out);
    free(out.data);
  }
  return unused;
}

static int look_at_nothing(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)info;
  (void)size;
  (void)unused;
  return 0;
}

static void a_child_forked_during_a_dump_has_a_usable_loader(void **state) {
  SKIP_IF_EMULATED("a fork of the emulator while its threads run keeps locks held");
  enum { FORKS = 300 };
  pthread_t dumper;
  int status, stuck = 0;
  (void)state;
  assert_int_equal(pthread_create(&dumper, NULL, take_dumps, NULL), 0);
  for (int i = 0; i < FORKS; i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(5); /* ends who hangs */
      dl_iterate_phdr(look_at_nothing, NULL);
      _exit(7);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
      ;
    stuck += !WIFEXITED(status) || WEXITSTATUS(status) != 7;
    if (stuck)
      break;
  }
  atomic_store(&forked_enough, true);
  pthread_join(dumper, NULL);
  assert_int_equal(stuck, 0);
}

/* What a held thread has locked the walk may need: neither waits for the other for ever. */
static void *load_and_allocate(void *unused) {
  while (!atomic_load(&enough)) {
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    void *memory[64];
    for (int i = 0; i < 64; i++)
      memory[i] = malloc((size_t)i * 100);
    for (int i = 0; i < 64; i++)
      free(memory[i]);
    if (library)
      dlclose(library);
  }
  return unused;
}

static void threads_that_hold_locks_go_on(void **state) {
  pthread_t threads[3];
  (void)state;
  for (int i = 0; i < 3; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, load_and_allocate, NULL), 0);
  for (int i = 0; i < 20; i++)
    take_dump();
  atomic_store(&enough, true);
  for (int i = 0; i < 3; i++)
    pthread_join(threads[i], NULL);
}

static void *wait_for_end(void *barrier) {
  pthread_barrier_wait(barrier);
  return NULL;
}

static void threads_that_are_left_out_are_counted(void **state) {
  enum { MANY = 2100 };
  static pthread_t threads[MANY];
  pthread_barrier_t barrier;
  pthread_attr_t attributes;
  unsigned count = 0, left_out = 0, all = 0;
  (void)state;
  pthread_barrier_init(&barrier, NULL, MANY + 1);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  while (count < MANY && pthread_create(&threads[count], &attributes, wait_for_end, &barrier) == 0)
    count++;
  if (count < MANY)
    skip(); /* so many are not allowed here */
  free(dump.data);
  dump = (struct nt_buffer){.limit = 4 << 20};
  nt_dump_threads(&dump);
  assert_non_null(fact("missing.threads"));
  assert_int_equal(
      sscanf(fact("missing.threads"), "%u of %u threads are left out", &left_out, &all), 2);
  assert_true(all > MANY);
  assert_int_equal(left_out, all - 2048);
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < MANY; i++)
    pthread_join(threads[i], NULL);
  pthread_attr_destroy(&attributes);
  pthread_barrier_destroy(&barrier);
}

int main(void) {
#ifdef __SANITIZE_THREAD__
  return 0; /* it holds signals back until a thread calls something, which one that spins never does */
#endif
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_a_signal_it_is_said), /* the first one: it installs the signal */
      cmocka_unit_test(a_thread_in_read_and_one_that_spins_are_named),
      cmocka_unit_test(a_thread_that_blocks_the_signal_is_said_to_do_so),
      cmocka_unit_test(an_answer_that_comes_late_changes_nothing),
      cmocka_unit_test(somebody_else_s_signal_is_not_taken),
      cmocka_unit_test(a_signal_that_the_program_took_for_itself_is_not_sent),
      cmocka_unit_test(a_child_forked_during_a_dump_has_a_usable_loader),
      cmocka_unit_test(threads_that_hold_locks_go_on), /* it ends the spinning */
      cmocka_unit_test(threads_that_are_left_out_are_counted),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
