/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users that look NCCL's functions up by name (ctypes, XLA, plug-ins) never come by our wrappers, so dlsym is ours as well.
 *
 * Whatever a look-up yields without us it yields with us: what is absent stays absent, and what is found is answered with
 * an entry (entries.h) that records the call and then calls just that function. dlsym_stub.S passes all other names on.
 */
#ifndef NT_DLSYM_FILTER_H
#define NT_DLSYM_FILTER_H

typedef void *(*nt_dlsym_fn)(void *handle, const char *name);

/* The dlsym behind ours in load order, another interposer's maybe. NULL until the first look-up. */
extern nt_dlsym_fn nt_dlsym_next __attribute__((visibility("hidden")));

/* libc's own, for our own look-ups: what they find is no interposer's business. Its RTLD_NEXT starts behind us. */
void *nt_dlsym_bare(void *handle, const char *name);

/* The next dlclose in load order. */
int nt_dlclose_next(void *handle);

/* The answer to dlsym(handle, name), called from `caller`: NULL to let the next dlsym answer, (void *)1 for NULL. Any
 * thread, at any time, even before libc has been initialised; errno and what dlerror says are as dlsym leaves them. */
void *nt_dlsym_filter(void *handle, const char *name, const void *caller);

/* The function with a wrapper that has this name, 0 if there is none: enum nt_fn. pncclX is the same as ncclX. */
unsigned nt_dlsym_fn_named(const char *name);

/* Logs that look-ups were answered with NCCL's own functions since no entries were left, if there were any. For when the
 * log comes later than they. */
void nt_dlsym_say(void);

#endif
