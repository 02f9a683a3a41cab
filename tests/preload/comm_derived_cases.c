/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of comm_cases: communicators made in other ways than by one blocking init, and from others. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm_cases.h"

/* ---- configurations, several ids ----------------------------------------------------------------- */

static void nonblocking(void) {
  ncclComm_t world, half, again;
  ncclConfig_t config = named("world", 0);
  ncclUniqueId id = same_id(0);
  check(ncclCommInitRankConfig(&world, procs, id, proc, &config) != ncclInProgress, "init");
  check(poll_done(world), "world");
  allreduce(world, 0);
  check(poll_done(world), "allreduce");
  ncclComm_t variable; /* of one split, then of the next */
  for (int i = 0; i < 2; i++) {
    ncclResult_t result = ncclCommSplit(world, proc % 2, 0, &variable, NULL);
    check(result != ncclInProgress && result != ncclSuccess, "split");
    check(poll_done(world), "splitting");
    *(i ? &again : &half) = variable;
  }
  allreduce(half, 0);
  check(poll_done(half), "allreduce");
  for (int i = 0; i < 2; i++) {
    allreduce(again, 0);
    check(poll_done(again), "allreduce");
  }
  wait_for(0);
  check(ncclCommFinalize(world) == ncclInvalidUsage, "finalize");
  ncclCommDestroy(world); /* refused or not: it may be busy */
}

/* Pending for ever: process 2 never calls. */
static void nonblocking_pending(void) {
  ncclComm_t world;
  ncclConfig_t config = named("world", 0);
  ncclUniqueId id = same_id(0);
  allreduce(alone(), 0);
  if (proc == 2)
    stay();
  if (getenv("GROUPED")) {
    check(ncclGroupStart(), "start");
    check(ncclCommInitRankConfig(&world, procs, id, proc, &config) == ncclInvalidArgument, "init");
    check(ncclGroupEnd() != ncclInProgress, "end");
  } else {
    check(ncclCommInitRankConfig(&world, procs, id, proc, &config) != ncclInProgress, "init");
  }
  if (getenv("ABORT")) {
    for (int i = 0; i < 100; i++) {
      ncclResult_t state;
      check(ncclCommGetAsyncError(world, &state) || state != ncclInProgress, "state");
      usleep(20000); /* as applications poll */
    }
    check(ncclCommAbort(world), "abort");
    stay();
  }
  poll_done(world);
}

static void scalable(void) {
  ncclComm_t comm;
  ncclUniqueId ids[] = {same_id(0), same_id(1)};
  ncclConfig_t config = named("scalable", 1);
  check(ncclCommInitRankScalable(&comm, procs, proc, 2, ids, &config), "init");
  allreduce(comm, 0);
  wait_for(0);
}

/* ---- splits -------------------------------------------------------------------------------------- */

/* A split with ranks in the opposite order, and one of that in which they are once more. Ends in a message that
 * rank 0 of the last one, process 3, does not take: by rank of the communicator, nothing else would tell. */
static void split_of_split(void) {
  ncclComm_t none = NULL, twice, back, part;
  ncclConfig_t config = named("part", 1);
  ncclComm_t world = init_rank(0, procs, proc);
  check(ncclCommSplit(world, proc == 3 ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, NULL), "split");
  check(ncclCommSplit(world, proc == 3 ? NCCL_SPLIT_NOCOLOR : 0, 0, &twice, NULL), "split");
  check(ncclCommSplit(world, 0, -proc, &back, NULL), "split");
  check(ncclCommSplit(back, 7, 0, &part, &config), "split of split");
  const int rank = procs - 1 - proc;
  float *buffer = buffer_of(0);
  for (int i = 0; i < 3; i++) {
    if (rank == 1)
      check(ncclSend(buffer, COUNT, ncclFloat, 0, part, stream_of(0)), "send");
    else if (rank == 0)
      check(ncclRecv(buffer, COUNT, ncclFloat, 1, part, stream_of(0)), "receive");
  }
  if (twice)
    allreduce(twice, 0);
  wait_for(0);
  meet();
  if (rank == 1)
    check(ncclRecv(buffer, COUNT, ncclFloat, 0, part, stream_of(0)), "receive");
  wait_for(0);
  stay();
}

/* ---- shrinks ------------------------------------------------------------------------------------- */

static ncclComm_t shrink(ncclComm_t from, int first, int second, int flags) {
  ncclComm_t comm;
  int list[] = {first, second};
  check(ncclCommShrink(from, list, second < 0 ? 1 : 2, &comm, NULL, flags), "shrink");
  return comm;
}

/* The same list twice, in another order, and a shrink of a split. */
static void shrinks(void) {
  ncclComm_t back, world = init_rank(0, procs, proc);
  check(ncclCommSplit(world, 0, -proc, &back, NULL), "split");
  if (proc == 0 || proc == 3)
    return;
  ncclComm_t first = shrink(world, 0, 3, 0), second = shrink(world, 3, 0, 0),
             third = shrink(back, 0, 3, 0);
  allreduce(first, 0);
  allreduce(second, 0);
  allreduce(second, 0);
  for (int i = 0; i < 3; i++)
    allreduce(third, 0);
  wait_for(0);
}

/* Rank 3 is left out, rank 2 should call and does not. */
static void shrink_skipped(void) {
  ncclComm_t world = init_rank(0, procs, proc);
  allreduce(world, 0);
  wait_for(0);
  meet();
  if (proc >= 2)
    stay();
  shrink(world, 3, -1, 0);
}

/* Rank 3 dies in front of an all-reduce; the others end what hangs, and go on without it. */
static void shrink_after_death(void) {
  ncclComm_t world = init_rank(0, procs, proc);
  allreduce(world, 0);
  wait_for(0);
  meet();
  if (proc == 3)
    _exit(1);
  allreduce(world, 0);
  usleep(700000); /* as a timeout of the application does, before it reacts */
  ncclComm_t rest = shrink(world, 3, -1, NCCL_SHRINK_ABORT);
  for (int i = 0; i < 3; i++)
    allreduce(rest, 0);
  wait_for(0);
  check(ncclCommAbort(world), "abort");
}

/* ---- growth -------------------------------------------------------------------------------------- */

/* Processes 0, 1 and 2 are there, 3 comes. Rank 1 makes the id: rank 2 and rank 0 pass none. */
static ncclComm_t grow(void) {
  ncclComm_t old = NULL, grown;
  ncclUniqueId id;
  if (proc < 3) {
    old = init_rank(0, 3, proc);
    allreduce(old, 0);
    wait_for(0);
  }
  if (proc == 1) {
    check(ncclCommGetUniqueId(old, &id), "id");
    give_id(1, &id);
  }
  if (proc == 3)
    id = same_id(1);
  check(ncclCommGrow(old, 4, proc == 1 || proc == 3 ? &id : NULL, proc == 3 ? 3 : -1, &grown, NULL),
        "grow");
  return grown;
}

static void grown(void) {
  ncclComm_t comm = grow();
  for (int i = 0; i < 2; i++)
    allreduce(comm, 0);
  wait_for(0);
}

static void grown_skip(void) {
  ncclComm_t comm = grow();
  allreduce(comm, 0);
  wait_for(0);
  if (proc == 3)
    stay();
  allreduce(comm, 0);
  wait_for(0);
}

/* The new one never comes. */
static void grow_alone(void) {
  if (proc == 3) {
    allreduce(alone(), 0);
    same_id(1);
    stay();
  }
  grow();
}

/* One of the old ones does not take part. */
static void grow_without_an_old_one(void) {
  ncclComm_t old = proc < 3 ? init_rank(0, 3, proc) : NULL, grown_comm;
  ncclUniqueId id;
  if (proc == 2) {
    allreduce(alone(), 0);
    stay();
  }
  if (proc == 1) {
    check(ncclCommGetUniqueId(old, &id), "id");
    give_id(1, &id);
  }
  if (proc == 3)
    id = same_id(1);
  check(ncclCommGrow(old, 4, proc == 1 || proc == 3 ? &id : NULL, proc == 3 ? 3 : -1, &grown_comm,
                     NULL),
        "grow");
}

/* ---- revoked, suspended -------------------------------------------------------------------------- */

static void revoked(void) {
  ncclComm_t half, filler, world = init_rank(0, procs, proc);
  allreduce(world, 0);
  wait_for(0);
  meet();
  check(ncclCommRevoke(world, NCCL_REVOKE_DEFAULT), "revoke");
  /* While it lives on, another must not get its place. */
  for (int i = 0; i < 5; i++) {
    filler = alone();
    allreduce(filler, 0);
    wait_for(0);
    check(ncclCommDestroy(filler), "destroy");
    usleep(100000); /* the helper looks for communicators that have ended twice in 50 ms */
  }
  check(ncclCommSplit(world, 0, 0, &half, NULL), "split");
  if (proc < 2)
    allreduce(shrink(world, 2, -1, 0), 0);
  allreduce(half, 0);
  wait_for(0);
  check(ncclCommDestroy(world), "destroy");
}

static void suspended(void) {
  ncclComm_t world = init_rank(0, procs, proc);
  allreduce(world, 0);
  wait_for(0);
  for (int i = 0; i < 2; i++) {
    check(ncclCommSuspend(world, NCCL_SUSPEND_MEM), "suspend");
    check(ncclCommResume(world), "resume");
  }
  allreduce(world, 0);
  wait_for(0);
}

static void not_resumed(void) {
  ncclComm_t world = init_rank(0, procs, proc);
  allreduce(world, 0);
  wait_for(0);
  check(ncclCommSuspend(world, NCCL_SUSPEND_MEM), "suspend");
  if (proc == 1)
    stay();
  check(ncclCommResume(world), "resume");
}

const struct comm_case comm_derived_cases[] = {
    {"nonblocking", nonblocking, 4},
    {"nonblocking-pending", nonblocking_pending, 3},
    {"scalable", scalable, 4},
    {"split-of-split", split_of_split, 4},
    {"shrinks", shrinks, 4},
    {"shrink-skipped", shrink_skipped, 4},
    {"shrink-after-death", shrink_after_death, 4},
    {"grown", grown, 4},
    {"grown-skip", grown_skip, 4},
    {"grow-alone", grow_alone, 4},
    {"grow-without-an-old-one", grow_without_an_old_one, 4},
    {"revoked", revoked, 3},
    {"suspended", suspended, 3},
    {"not-resumed", not_resumed, 3},
    {NULL, NULL, 0},
};
