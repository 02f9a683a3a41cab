/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exits that run no handlers: _exit, _Exit and quick_exit of the application (Python's os._exit among them).
 * exit() and a return from main are seen through on_exit. Inside libc these names are bound directly, so only
 * the application's own calls arrive here.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/process.h"

#define NT_PUBLIC __attribute__((visibility("default")))

NT_PUBLIC void _exit(int code) {
  nt_process_leaving(code);
  for (;;)
    syscall(SYS_exit_group, code);
}

NT_PUBLIC void _Exit(int code) {
  _exit(code);
}

NT_PUBLIC void quick_exit(int code) {
  void (*next)(int) = NULL;
  nt_process_leaving(code);
  *(void **)&next = dlsym(RTLD_NEXT, "quick_exit");
  if (next)
    next(code);
  _exit(code);
}
