/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/unwinder.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/dump_thread.h"
#include "preload/fork_lock.h"

#if defined(__x86_64__)
#define LOCAL(name) "_ULx86_64_" name
#define ANY(name) "_Ux86_64_" name
#elif defined(__aarch64__)
#define LOCAL(name) "_ULaarch64_" name
#define ANY(name) "_Uaarch64_" name
#else
#error "which names has libunwind here?"
#endif

/* unw_accessors_t to the member that is needed; the same in all releases of libunwind.so.8. */
struct accessors {
  void *find_proc_info, *put_unwind_info, *get_dyn_info_list_addr;
  int (*access_mem)(void *space, uintptr_t address, uintptr_t *value, int write, void *arg);
};

static struct nt_unwinder unwinder;
static char refusal[200];
static pid_t opened_in; /* 0: not tried yet */
static bool opened;     /* what came of it is known */
static struct nt_fork_lock lock;
static int (*their_access_mem)(void *, uintptr_t, uintptr_t *, int, void *);

/* ---- memory ------------------------------------------------------------------------------------- */

enum { PAGES = 4, PAGE = 4096 /* the least there is */ };

static _Thread_local struct {
  uintptr_t pages[PAGES]; /* found readable */
  unsigned next;
  bool foreign;
} reads;

void nt_unwinder_begin(bool foreign) {
  for (unsigned i = 0; i < PAGES; i++)
    reads.pages[i] = 0;
  reads.foreign = foreign;
}

/* The kernel copies the set before it looks at the operation, which there is none of this number. */
static bool is_readable(uintptr_t address) {
  uintptr_t page = address & ~(uintptr_t)(PAGE - 1);
  for (unsigned i = 0; i < PAGES; i++)
    if (reads.pages[i] == page)
      return true;
  if (!page || syscall(SYS_rt_sigprocmask, -1, page, NULL, 8) == 0 || errno != EINVAL)
    return false;
  reads.pages[reads.next++ % PAGES] = page;
  return true;
}

static int access_mem(void *space, uintptr_t address, uintptr_t *value, int write, void *arg) {
  if (write)
    return their_access_mem(space, address, value, write, arg);
  if (reads.foreign)
    return nt_dump_read(address, value, sizeof(*value)) ? 0 : -1;
  if (!is_readable(address) || !is_readable(address + sizeof(*value) - 1))
    return -1;
  __builtin_memcpy(value, (const void *)address, sizeof(*value));
  return 0;
}

/* ---- opening ------------------------------------------------------------------------------------ */

struct opening {
  struct nt_unwinder unwinder;
  struct accessors *accessors;
  char refusal[sizeof refusal];
};

static bool find(struct opening *out, void *handle, const char *name, void *place) {
  void *found = dlsym(handle, name);
  if (!found && !out->refusal[0])
    snprintf(out->refusal, sizeof(out->refusal), "libunwind.so.8 has no %s", name);
  *(void **)place = found;
  return found != NULL;
}

static void open_library(struct opening *out) {
  struct accessors *(*get_accessors)(void *);
  struct nt_unwinder *to = &out->unwinder;
  void **space;
  void *handle = dlopen("libunwind.so.8", RTLD_LOCAL | RTLD_NOW | RTLD_NODELETE);
  if (!handle) {
    const char *why = dlerror();
    bool absent = !why || strstr(why, "cannot open shared object file");
    snprintf(out->refusal, sizeof(out->refusal), "%s",
             absent ? "libunwind.so.8 cannot be opened: install libunwind8" : why);
    return;
  }
  if (!find(out, handle, "unw_backtrace", &to->backtrace) ||
      !find(out, handle, LOCAL("init_local2"), &to->init) ||
      !find(out, handle, LOCAL("step"), &to->step) ||
      !find(out, handle, LOCAL("get_reg"), &to->get_reg) ||
      !find(out, handle, LOCAL("is_signal_frame"), &to->is_signal_frame) ||
      !find(out, handle, ANY("flush_cache"), &to->flush_cache) ||
      !find(out, handle, ANY("get_accessors"), &get_accessors) ||
      !find(out, handle, LOCAL("local_addr_space"), &space))
    return;
  to->space = *space;
  out->accessors = get_accessors(to->space);
}

static void publish(const struct opening *opening) {
  nt_fork_lock(&lock);
  if (!opened) {
    memcpy(refusal, opening->refusal, sizeof refusal);
    unwinder = opening->unwinder;
    if (opening->accessors) {
      their_access_mem = opening->accessors->access_mem;
      opening->accessors->access_mem = access_mem;
    }
    __atomic_store_n(&opened, true, __ATOMIC_RELEASE);
  }
  nt_fork_unlock(&lock);
}

/* Threads that come at once each ask the loader, under no lock of ours; the first answer counts. */
const struct nt_unwinder *nt_unwinder_open(const char **reason) {
  struct opening opening = {0};
  pid_t self = getpid(), before = 0;
  if (!__atomic_compare_exchange_n(&opened_in, &before, self, false, __ATOMIC_RELAXED,
                                   __ATOMIC_RELAXED) &&
      before != self) {
    *reason = refusal[0] ? refusal : "the process that this one was forked from used libunwind";
    return NULL;
  }
  if (!__atomic_load_n(&opened, __ATOMIC_ACQUIRE)) {
    open_library(&opening);
    (void)dlerror(); /* what our look-ups left is not the application's */
    publish(&opening);
  }
  *reason = refusal;
  return refusal[0] ? NULL : &unwinder;
}
