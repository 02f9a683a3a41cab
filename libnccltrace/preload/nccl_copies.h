/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of NCCL that lie in this process, called or not, and the CUDA runtime if it is shared: a job with two
 * copies, or with another one than meant, is a known way to hang. And who calls a copy past us: that is seen in the
 * places where the loader has put addresses for callers.
 */
#ifndef NT_NCCL_COPIES_H
#define NT_NCCL_COPIES_H

struct nt_nccl_copy {
  char path[512];    /* as the loader names it: "" is the program itself */
  char build_id[65]; /* hex, "" if it has none */
  /* An object that is bound to the copy past us (RTLD_DEEPBIND), by its path; the copy's own path if callers inside it are
   * bound there (-Bsymbolic), in which case nobody knows whether there are any. "": nobody is known. */
  char bound[512];
};

/* Looks through the loaded objects the first time, and again once another library than before has been called
 * (library.h) or objects have come or gone. Takes the loader's lock: rare paths of application threads only, and under no lock of ours. */
void nt_nccl_copies_look(void);

/* Looks at the places that were not bound yet: a call binds them. Takes no lock and reads by way of the kernel, so any
 * thread may; one at a time. */
void nt_nccl_copies_watch(void);

/* Grows with every change of what is known. Any thread. */
unsigned nt_nccl_copies_version(void);

/* The i-th copy seen so far, NULL past the end. Any thread. */
const struct nt_nccl_copy *nt_nccl_copy_at(unsigned i);
/* cudaRuntimeGetVersion's number, 0 if the runtime is not a library of its own. Any thread. */
int nt_cuda_runtime_version(void);

#endif
