/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows and one-sided operations. Registering puts a shared file in the place of the buffer's pages, which all ranks
 * map: a put writes there and needs nobody on the other side. Signals are counted in the communicator's area, for each
 * pair of ranks and kind; a wait blocks its stream until as many have come as it and all before it were promised.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim_nccl.h"

enum { SIGNALS = 4, CONTEXTS = SIM_SIGNALS / SIGNALS };

struct ncclWindow_vidmem {
  ncclComm_t comm;
  char *buffer;
  size_t size, *sizes;
  char **peer; /* where the buffer of each rank is mapped */
};

struct window_job {
  ncclComm_t comm;
  char *buffer;
  size_t size;
  uint64_t ordinal;
  ncclWindow_t *window;
};

static void segment_name(char *out, size_t size, const struct window_job *job, int rank) {
  snprintf(out, size, "win-%016llx-%llu-%d", (unsigned long long)job->comm->key,
           (unsigned long long)job->ordinal, rank);
}

static char *map(int fd, size_t size, void *at) {
  void *memory =
      fd < 0 ? MAP_FAILED
             : mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
  if (fd >= 0)
    close(fd);
  return memory == MAP_FAILED ? NULL : memory;
}

/* The pages of the buffer become those of a new file, with what they hold. */
static bool share_buffer(const struct window_job *job) {
  char name[96];
  segment_name(name, sizeof(name), job, job->comm->rank);
  int fd = sim_shm_segment(name, job->size, true);
  bool written = fd >= 0 && pwrite(fd, job->buffer, job->size, 0) == (ssize_t)job->size;
  return map(fd, job->size, job->buffer) && written;
}

static ncclResult_t run_register(void *arg) {
  struct window_job *job = arg;
  ncclComm_t comm = job->comm;
  struct ncclWindow_vidmem *window = calloc(1, sizeof(*window));
  int64_t *sizes = calloc((size_t)comm->nranks, 2 * sizeof(*sizes));
  char name[96];
  if (!window || !sizes || !(window->peer = calloc((size_t)comm->nranks, sizeof(char *))) ||
      !(window->sizes = calloc((size_t)comm->nranks, sizeof(size_t))))
    abort();
  *window = (struct ncclWindow_vidmem){comm, job->buffer, job->size, window->sizes, window->peer};
  bool shared = share_buffer(job);
  ncclResult_t result =
      sim_boot_exchange(comm, SIM_BOARD_WINDOW, shared ? (int64_t)job->size : -1, 0, sizes);
  for (int r = 0; r < comm->nranks && result == ncclSuccess; r++) {
    segment_name(name, sizeof(name), job, r);
    window->sizes[r] = (size_t)sizes[2 * r];
    window->peer[r] =
        sizes[2 * r] < 0 ? NULL : map(sim_shm_segment(name, 0, false), window->sizes[r], NULL);
    if (!window->peer[r])
      result = ncclSystemError;
  }
  if (result == ncclSuccess)
    result = sim_boot_exchange(comm, SIM_BOARD_WINDOW, 0, 0, NULL);
  segment_name(name, sizeof(name), job, comm->rank);
  sim_shm_unlink(name);
  *job->window = result == ncclSuccess ? window : NULL;
  free(sizes);
  free(job);
  sim_comm_unref(comm);
  return result;
}

static ncclResult_t start(ncclComm_t comm, sim_job_fn *fn, void *arg) {
  sim_comm_ref(comm);
  sim_group_start();
  sim_group_add_job(comm, fn, arg);
  return sim_group_end();
}

SIM_NCCL_API(ncclResult_t, CommWindowRegister, ncclComm_t comm, void *buff, size_t size,
             ncclWindow_t *win, int winFlags) {
  ncclResult_t result = sim_comm_check_ready(comm, "CommWindowRegister");
  if (result != ncclSuccess)
    return sim_group_error(result);
  if (!buff || !win || !size || ((uintptr_t)buff | size) % SIM_PAGE || winFlags & ~1)
    return sim_group_error(ncclInvalidArgument);
  struct window_job *job = malloc(sizeof(*job));
  if (!job)
    return sim_group_error(ncclSystemError);
  *win = NULL;
  *job = (struct window_job){comm, buff, size, ++comm->windows, win};
  return sim_group_error(start(comm, run_register, job));
}

/* Local: the others may still use it, and write into the old pages. */
SIM_NCCL_API(ncclResult_t, CommWindowDeregister, ncclComm_t comm, ncclWindow_t win) {
  if (sim_comm_check(comm, "CommWindowDeregister") != ncclSuccess || !win || win->comm != comm)
    return ncclInvalidArgument;
  char *copy = malloc(win->size);
  if (!copy)
    return ncclSystemError;
  memcpy(copy, win->buffer, win->size);
  if (mmap(win->buffer, win->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
           -1, 0) == MAP_FAILED)
    abort();
  memcpy(win->buffer, copy, win->size);
  free(copy);
  for (int r = 0; r < comm->nranks; r++)
    munmap(win->peer[r], win->sizes[r]);
  free(win->peer);
  free(win->sizes);
  free(win);
  return ncclSuccess;
}

static ncclResult_t run_device_comm(void *arg) {
  ncclComm_t comm = arg;
  ncclResult_t result = sim_boot_exchange(comm, SIM_BOARD_DEVICE, 0, 0, NULL);
  sim_comm_unref(comm);
  return result;
}

SIM_NCCL_API(ncclResult_t, DevCommCreate, ncclComm_t comm, ncclDevCommRequirements_t const *reqs,
             ncclDevComm_t *outDevComm) {
  ncclResult_t result = sim_comm_check_ready(comm, "DevCommCreate");
  if (result != ncclSuccess || !reqs || !outDevComm)
    return sim_group_error(result != ncclSuccess ? result : ncclInvalidArgument);
  *outDevComm = (ncclDevComm_t){.rank = comm->rank, .nRanks = comm->nranks};
  return sim_group_error(start(comm, run_device_comm, comm));
}

SIM_NCCL_API(ncclResult_t, DevCommDestroy, ncclComm_t comm, ncclDevComm_t const *devComm) {
  return devComm ? sim_comm_check(comm, "DevCommDestroy") : ncclInvalidArgument;
}

/* One operation on a stream. */
struct rma {
  ncclComm_t comm;
  int peer, kind;
  const void *from; /* what a put moves; NULL if nothing */
  void *to;
  size_t size;
  uint64_t count; /* signals that a wait is for; 0: it is no wait */
  uint64_t target;
};

static void run_rma(void *arg) {
  struct rma *op = arg;
  struct sim_shm *shm = op->comm->shm;
  atomic_fetch_add(&op->comm->running, 1);
  if (op->count) {
    _Atomic uint64_t *sent = sim_shm_signal(shm, op->peer, op->comm->rank, op->kind);
    for (;;) {
      uint32_t seen = sim_shm_bell(shm, op->comm->rank);
      if (atomic_load(sent) >= op->target || !sim_comm_wait(op->comm, seen, op->peer))
        break;
    }
  } else if (!atomic_load(&op->comm->aborted)) {
    if (op->size)
      memcpy(op->to, op->from, op->size);
    atomic_fetch_add(sim_shm_signal(shm, op->comm->rank, op->peer, op->kind), 1);
    sim_shm_ring_bell(shm, op->peer);
  }
  atomic_fetch_sub(&op->comm->running, 1);
  sim_comm_unref(op->comm);
  free(op);
}

static void launch_rma(struct sim_stream *s, void *arg) {
  const struct rma *captured = arg;
  ncclComm_t comm = captured->comm;
  struct rma *op = malloc(sizeof(*op));
  if (!op)
    abort();
  *op = *captured;
  sim_comm_ref(comm);
  pthread_mutex_lock(&comm->launch_lock);
  if (!comm->waited &&
      !(comm->waited = calloc((size_t)comm->nranks * SIM_SIGNALS, sizeof(uint64_t))))
    abort();
  op->target = comm->waited[op->peer * SIM_SIGNALS + op->kind] += op->count;
  pthread_mutex_unlock(&comm->launch_lock);
  sim_stream_launch(s, run_rma, op);
}

static void drop_rma(void *arg) {
  struct rma *op = arg;
  atomic_fetch_sub(&op->comm->captured, 1);
  sim_comm_unref(op->comm);
  free(op);
}

static ncclResult_t enqueue(const struct rma *op, cudaStream_t stream) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s)
    return ncclInvalidArgument;
  if (!sim_capture_is_active(s)) {
    launch_rma(s, (void *)(uintptr_t)op);
    return ncclSuccess;
  }
  struct rma *captured = malloc(sizeof(*captured));
  if (!captured)
    return ncclSystemError;
  *captured = *op;
  sim_comm_ref(op->comm);
  atomic_fetch_add(&op->comm->captured, 1);
  sim_capture_add(s, (struct sim_node){launch_rma, drop_rma, captured});
  return ncclSuccess;
}

static int kind_of(int signal, int context) {
  bool known = signal >= 0 && signal < SIGNALS && context >= 0 && context < CONTEXTS;
  return known ? context * SIGNALS + signal : -1;
}

static ncclResult_t check(ncclComm_t comm, int peer, int kind, const char *name) {
  ncclResult_t result = sim_comm_check_ready(comm, name);
  if (result == ncclSuccess && (peer < 0 || peer >= comm->nranks || kind < 0))
    result = ncclInvalidArgument;
  return result;
}

SIM_NCCL_API(ncclResult_t, PutSignal, const void *localbuff, size_t count, ncclDataType_t datatype,
             int peer, ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
             unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  int kind = flags ? -1 : kind_of(sigIdx, ctx);
  size_t size = count * sim_dtype_size(datatype);
  ncclResult_t result = check(comm, peer, kind, "PutSignal");
  if (result == ncclSuccess &&
      (!localbuff || !peerWin || peerWin->comm != comm || peerWinOffset > peerWin->sizes[peer] ||
       size > peerWin->sizes[peer] - peerWinOffset))
    result = ncclInvalidArgument;
  if (result != ncclSuccess)
    return sim_group_error(result);
  return sim_group_error(enqueue(&(struct rma){.comm = comm,
                                               .peer = peer,
                                               .kind = kind,
                                               .from = localbuff,
                                               .to = peerWin->peer[peer] + peerWinOffset,
                                               .size = size},
                                 stream));
}

SIM_NCCL_API(ncclResult_t, Signal, int peer, int sigIdx, int ctx, unsigned int flags,
             ncclComm_t comm, cudaStream_t stream) {
  int kind = flags ? -1 : kind_of(sigIdx, ctx);
  ncclResult_t result = check(comm, peer, kind, "Signal");
  if (result != ncclSuccess)
    return sim_group_error(result);
  return sim_group_error(enqueue(&(struct rma){.comm = comm, .peer = peer, .kind = kind}, stream));
}

SIM_NCCL_API(ncclResult_t, WaitSignal, int nDesc, ncclWaitSignalDesc_t *signalDescs,
             ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = sim_comm_check_ready(comm, "WaitSignal");
  if (result == ncclSuccess && (nDesc < 1 || !signalDescs))
    result = ncclInvalidArgument;
  for (int i = 0; i < nDesc && result == ncclSuccess; i++) {
    const ncclWaitSignalDesc_t *wait = &signalDescs[i];
    result = check(comm, wait->peer, kind_of(wait->sigIdx, wait->ctx), "WaitSignal");
    if (result == ncclSuccess && wait->opCnt < 1)
      result = ncclInvalidArgument;
  }
  for (int i = 0; i < nDesc && result == ncclSuccess; i++) {
    const ncclWaitSignalDesc_t *wait = &signalDescs[i];
    result = enqueue(&(struct rma){.comm = comm,
                                   .peer = wait->peer,
                                   .kind = kind_of(wait->sigIdx, wait->ctx),
                                   .count = (uint64_t)wait->opCnt},
                     stream);
  }
  return sim_group_error(result);
}
