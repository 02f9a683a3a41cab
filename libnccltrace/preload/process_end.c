/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the application ends: exit, quick_exit, and _exit and _Exit, which run no handlers (Python's os._exit among
 * them). Inside libc these names are bound directly, so only the application's own calls arrive here; a return from
 * main is seen through on_exit alone.
 *
 * Handlers run in reverse order, and the application's may never return. So that exit was called is noted here, before
 * any of them; the last drain is on_exit's.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/dlsym_filter.h"
#include "preload/process.h"

#define NT_PUBLIC __attribute__((visibility("default")))

/* Found before anybody ends: a signal handler or a forked child may call exit where the loader must not be asked. */
static void (*next_exit)(int);

void nt_process_find_exit(void) {
  *(void **)&next_exit = nt_dlsym_bare(RTLD_NEXT, "exit");
}

NT_PUBLIC void _exit(int code) {
  nt_process_leaving(code);
  for (;;)
    syscall(SYS_exit_group, code);
}

NT_PUBLIC void _Exit(int code) {
  _exit(code);
}

NT_PUBLIC void exit(int code) {
  nt_process_ending(code);
  if (!next_exit)
    nt_process_find_exit();
  if (next_exit)
    next_exit(code);
  _exit(code);
}

NT_PUBLIC void quick_exit(int code) {
  void (*next)(int) = NULL;
  nt_process_leaving(code);
  *(void **)&next = nt_dlsym_bare(RTLD_NEXT, "quick_exit");
  if (next)
    next(code);
  _exit(code);
}
