/* SPDX-License-Identifier: Apache-2.0 */
/* Another hook of dlsym, as layers that share out a GPU have it: one name is its own, all else it passes on. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
static int asked;

static int quota(void) {
  return 4711;
}

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

PUBLIC void *dlsym(void *handle, const char *name) {
  void *(*next)(void *, const char *);
  asked++;
  if (!strcmp(name, "cuQuota"))
    return (void *)quota;
  *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", OLDEST);
  return next(handle, name);
}

__attribute__((destructor)) static void say(void) {
  printf("quota asked %s\n", asked ? "yes" : "no");
  fflush(stdout);
}
