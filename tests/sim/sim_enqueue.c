/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that move data: argument checks in NCCL's order, then a task for the group they are in,
 * or for a group of their own. Also operators and registered memory. AlltoAll, Gather and Scatter
 * become sends and receives here, on the same queues as those of the application.
 */
#include <stdlib.h>
#include <string.h>

#include "sim_nccl.h"

static ncclResult_t check_op(const struct sim_task *t, struct sim_redop *redop) {
  int user = t->op - NT_REDOP_FIRST_USER;
  if (t->op >= 0 && t->op < NT_REDOP_FIRST_USER)
    return ncclSuccess;
  if (user < 0 || user >= SIM_MAX_REDOPS || !t->comm->redop[user].used) {
    sim_nccl_warn("invalid reduction operation %d", t->op);
    return ncclInvalidArgument;
  }
  *redop = t->comm->redop[user];
  return redop->dtype == t->dtype ? ncclSuccess : ncclInvalidArgument;
}

static bool has_root(unsigned int fn) {
  return fn == SIM_BROADCAST || fn == SIM_REDUCE || fn == SIM_GATHER || fn == SIM_SCATTER;
}

static bool reduces(unsigned int fn) {
  return fn == SIM_ALLREDUCE || fn == SIM_REDUCE || fn == SIM_REDUCESCATTER;
}

static ncclResult_t check_task(struct sim_task *t, const char *name) {
  ncclResult_t result = sim_comm_check_ready(t->comm, name);
  if (result == ncclSuccess && t->comm->revoked)
    result = ncclInvalidUsage;
  if (result != ncclSuccess)
    return result;
  bool peer = has_root(t->fn) || t->fn >= SIM_SEND;
  if (peer && (t->peer < 0 || t->peer >= t->comm->nranks)) {
    sim_nccl_warn("%s : invalid root or peer %d", name, t->peer);
    return ncclInvalidArgument;
  }
  if (t->dtype < 0 || t->dtype >= ncclNumTypes) {
    sim_nccl_warn("%s : invalid type %d", name, t->dtype);
    return ncclInvalidArgument;
  }
  if (reduces(t->fn) && (result = check_op(t, &t->redop)) != ncclSuccess)
    return result;
  struct sim_stream *stream = sim_stream_find(t->stream);
  return stream ? ncclSuccess : ncclUnhandledCudaError;
}

static void add_p2p(const struct sim_task *from, unsigned int fn, int peer, size_t offset) {
  struct sim_task task = *from;
  task.fn = fn;
  task.peer = peer;
  offset *= from->count * sim_dtype_size(from->dtype);
  if (fn == SIM_SEND)
    task.send = (const char *)from->send + offset;
  else
    task.recv = (char *)from->recv + offset;
  sim_group_add_task(&task);
}

static void add_as_p2p(const struct sim_task *t) {
  int n = t->comm->nranks, me = t->comm->rank;
  for (int r = 0; r < n; r++) {
    size_t at = (size_t)r;
    if (t->fn == SIM_ALLTOALL || (t->fn == SIM_SCATTER && t->peer == me))
      add_p2p(t, SIM_SEND, r, at);
    if (t->fn == SIM_ALLTOALL || (t->fn == SIM_GATHER && t->peer == me))
      add_p2p(t, SIM_RECV, r, at);
  }
  if (t->fn == SIM_GATHER)
    add_p2p(t, SIM_SEND, t->peer, 0);
  if (t->fn == SIM_SCATTER)
    add_p2p(t, SIM_RECV, t->peer, 0);
}

static ncclResult_t enqueue(struct sim_task task, const char *name) {
  sim_group_start();
  ncclResult_t result = check_task(&task, name);
  if (result == ncclSuccess) {
    if (task.fn >= SIM_SEND)
      sim_group_add_task(&task);
    else if (task.count == 0)
      ; /* dropped here and now, whatever the other ranks do */
    else if (task.fn >= SIM_ALLTOALL)
      add_as_p2p(&task);
    else
      sim_group_add_task(&task);
  }
  sim_group_error(result);
  ncclResult_t end = sim_group_end();
  return result != ncclSuccess ? result : end;
}

SIM_NCCL_API(ncclResult_t, AllReduce, const void *sendbuff, void *recvbuff, size_t count,
             ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_ALLREDUCE,
                                   .send = sendbuff,
                                   .recv = recvbuff,
                                   .count = count,
                                   .dtype = datatype,
                                   .op = op,
                                   .comm = comm,
                                   .stream = stream},
                 "AllReduce");
}

SIM_NCCL_API(ncclResult_t, Broadcast, const void *sendbuff, void *recvbuff, size_t count,
             ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_BROADCAST,
                                   .send = sendbuff,
                                   .recv = recvbuff,
                                   .count = count,
                                   .dtype = datatype,
                                   .peer = root,
                                   .comm = comm,
                                   .stream = stream},
                 "Broadcast");
}

SIM_NCCL_API(ncclResult_t, Bcast, void *buff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

SIM_NCCL_API(ncclResult_t, Reduce, const void *sendbuff, void *recvbuff, size_t count,
             ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
             cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_REDUCE,
                                   .send = sendbuff,
                                   .recv = recvbuff,
                                   .count = count,
                                   .dtype = datatype,
                                   .op = op,
                                   .peer = root,
                                   .comm = comm,
                                   .stream = stream},
                 "Reduce");
}

SIM_NCCL_API(ncclResult_t, AllGather, const void *sendbuff, void *recvbuff, size_t sendcount,
             ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_ALLGATHER,
                                   .send = sendbuff,
                                   .recv = recvbuff,
                                   .count = sendcount,
                                   .dtype = datatype,
                                   .comm = comm,
                                   .stream = stream},
                 "AllGather");
}

SIM_NCCL_API(ncclResult_t, ReduceScatter, const void *sendbuff, void *recvbuff, size_t recvcount,
             ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_REDUCESCATTER,
                                   .send = sendbuff,
                                   .recv = recvbuff,
                                   .count = recvcount,
                                   .dtype = datatype,
                                   .op = op,
                                   .comm = comm,
                                   .stream = stream},
                 "ReduceScatter");
}

SIM_NCCL_API(ncclResult_t, AlltoAll, const void *sendbuff, void *recvbuff, size_t count,
             ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_ALLTOALL,
                                   .send = sendbuff,
                                   .recv = recvbuff,
                                   .count = count,
                                   .dtype = datatype,
                                   .comm = comm,
                                   .stream = stream},
                 "AlltoAll");
}

SIM_NCCL_API(ncclResult_t, Gather, const void *sendbuff, void *recvbuff, size_t count,
             ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_GATHER,
                                   .send = sendbuff,
                                   .recv = recvbuff,
                                   .count = count,
                                   .dtype = datatype,
                                   .peer = root,
                                   .comm = comm,
                                   .stream = stream},
                 "Gather");
}

SIM_NCCL_API(ncclResult_t, Scatter, const void *sendbuff, void *recvbuff, size_t count,
             ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_SCATTER,
                                   .send = sendbuff,
                                   .recv = recvbuff,
                                   .count = count,
                                   .dtype = datatype,
                                   .peer = root,
                                   .comm = comm,
                                   .stream = stream},
                 "Scatter");
}

SIM_NCCL_API(ncclResult_t, Send, const void *sendbuff, size_t count, ncclDataType_t datatype,
             int peer, ncclComm_t comm, cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_SEND,
                                   .send = sendbuff,
                                   .count = count,
                                   .dtype = datatype,
                                   .peer = peer,
                                   .comm = comm,
                                   .stream = stream},
                 "Send");
}

SIM_NCCL_API(ncclResult_t, Recv, void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
             ncclComm_t comm, cudaStream_t stream) {
  return enqueue((struct sim_task){.fn = SIM_RECV,
                                   .recv = recvbuff,
                                   .count = count,
                                   .dtype = datatype,
                                   .peer = peer,
                                   .comm = comm,
                                   .stream = stream},
                 "Recv");
}

SIM_NCCL_API(ncclResult_t, RedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar,
             ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm) {
  ncclResult_t result = sim_comm_check_ready(comm, "RedOpCreatePreMulSum");
  if (result != ncclSuccess)
    return result;
  if (!op || !scalar || datatype < 0 || datatype >= ncclNumTypes)
    return ncclInvalidArgument;
  struct sim_redop made = {.used = true, .dtype = datatype};
  if (residence == ncclScalarHostImmediate)
    made.scalar = sim_reduce_read_scalar(scalar, datatype);
  else
    made.device_ptr = scalar;
  result = ncclInternalError;
  pthread_mutex_lock(&comm->lock);
  for (int i = 0; i < SIM_MAX_REDOPS; i++) {
    if (!comm->redop[i].used) {
      comm->redop[i] = made;
      *op = NT_REDOP_FIRST_USER + i;
      result = ncclSuccess;
      break;
    }
  }
  pthread_mutex_unlock(&comm->lock);
  return result;
}

SIM_NCCL_API(ncclResult_t, RedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
  ncclResult_t result = sim_comm_check(comm, "RedOpDestroy");
  int user = op - NT_REDOP_FIRST_USER;
  if (result != ncclSuccess || user < 0 || user >= SIM_MAX_REDOPS || !comm->redop[user].used)
    return ncclInvalidArgument;
  comm->redop[user].used = false;
  return ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, MemAlloc, void **ptr, size_t size) {
  if (!ptr || size == 0)
    return ncclInvalidArgument;
  return sim_memory_alloc(ptr, size) ? ncclUnhandledCudaError : ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, MemFree, void *ptr) {
  return sim_memory_free(ptr) ? ncclUnhandledCudaError : ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, CommRegister, const ncclComm_t comm, void *buff, size_t size,
             void **handle) {
  ncclResult_t result = sim_comm_check(comm, "CommRegister");
  if (result != ncclSuccess || !buff || !size || !handle)
    return ncclInvalidArgument;
  *handle = malloc(1);
  return *handle ? ncclSuccess : ncclSystemError;
}

SIM_NCCL_API(ncclResult_t, CommDeregister, const ncclComm_t comm, void *handle) {
  free(handle);
  return sim_comm_check(comm, "CommDeregister");
}
