/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups. Calls collect tasks and jobs in a list of their thread; the end of the outermost group
 * turns the tasks into one plan per communicator, does everything that blocks (jobs such as init and
 * split, then lazy connections), and puts the plans on their streams. With a non-blocking
 * communicator the blocking part moves to a thread of its own and the call returns ncclInProgress.
 *
 * The order of the calls inside a group is not the order of execution: collectives run by size, then
 * kind, point-to-point operations last and all at once, communicators in the order of their key.
 * That order is the same on all ranks however each of them wrote its group.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "sim_nccl.h"

struct sim_job {
  struct sim_job *next;
  ncclComm_t comm;
  sim_job_fn *fn;
  void *arg;
  ncclResult_t result;
  pthread_t thread;
  bool threaded;
};

struct sim_launch {
  struct sim_job *jobs;
  struct sim_plan *plans;
  size_t plan_count;
};

static _Thread_local struct {
  int depth;
  ncclResult_t error;
  struct sim_task *tasks, **last_task;
  struct sim_job *jobs, **last_job;
} group;

void sim_group_start(void) {
  if (group.depth++ == 0) {
    group.error = ncclSuccess;
    group.tasks = NULL;
    group.last_task = &group.tasks;
    group.jobs = NULL;
    group.last_job = &group.jobs;
  }
}

ncclResult_t sim_group_error(ncclResult_t result) {
  if (group.depth > 0 && result != ncclSuccess && result != ncclInProgress)
    group.error = result;
  return result;
}

void sim_group_add_task(const struct sim_task *task) {
  struct sim_task *copy = malloc(sizeof(*copy));
  if (!copy)
    abort();
  *copy = *task;
  copy->next = NULL;
  *group.last_task = copy;
  group.last_task = &copy->next;
}

void sim_group_add_job(ncclComm_t comm, sim_job_fn *fn, void *arg) {
  struct sim_job *job = calloc(1, sizeof(*job));
  if (!job)
    abort();
  job->comm = comm;
  job->fn = fn;
  job->arg = arg;
  *group.last_job = job;
  group.last_job = &job->next;
}

static void free_tasks(struct sim_task *task) {
  while (task) {
    struct sim_task *next = task->next;
    free(task);
    task = next;
  }
}

static void free_jobs(struct sim_job *job) {
  while (job) {
    struct sim_job *next = job->next;
    free(job);
    job = next;
  }
}

static size_t task_bytes(const struct sim_task *t) {
  return t->count * sim_dtype_size(t->dtype);
}

/* True if a runs before b although it may have been called later. */
static bool runs_before(const struct sim_task *a, const struct sim_task *b) {
  if (task_bytes(a) != task_bytes(b))
    return task_bytes(a) > task_bytes(b);
  if (a->fn != b->fn)
    return a->fn < b->fn;
  if (a->op != b->op)
    return a->op < b->op;
  return a->dtype < b->dtype;
}

static void add_to_plan(struct sim_plan *plan, struct sim_task *task) {
  bool p2p = task->fn >= SIM_SEND;
  struct sim_task **at = p2p ? &plan->p2p : &plan->collectives;
  while (*at && (p2p || !runs_before(task, *at)))
    at = &(*at)->next;
  task->next = *at;
  *at = task;
}

static int compare_plans(const void *a, const void *b) {
  uint64_t x = ((const struct sim_plan *)a)->comm->key, y = ((const struct sim_plan *)b)->comm->key;
  return (x > y) - (x < y);
}

static ncclResult_t make_plans(struct sim_launch *launch, struct sim_task *tasks) {
  while (tasks) {
    struct sim_task *next = tasks->next;
    size_t i = 0;
    while (i < launch->plan_count && launch->plans[i].comm != tasks->comm)
      i++;
    if (i == launch->plan_count) {
      launch->plans = realloc(launch->plans, (i + 1) * sizeof(*launch->plans));
      if (!launch->plans)
        abort();
      launch->plans[launch->plan_count++] = (struct sim_plan){.comm = tasks->comm};
    }
    add_to_plan(&launch->plans[i], tasks);
    tasks = next;
  }
  if (launch->plan_count > 1)
    qsort(launch->plans, launch->plan_count, sizeof(*launch->plans), compare_plans);
  for (size_t i = 0; i < launch->plan_count; i++) {
    long balance = 0; /* a send to oneself needs its receive in the same group */
    for (const struct sim_task *t = launch->plans[i].p2p; t; t = t->next) {
      if (t->peer == t->comm->rank)
        balance += t->fn == SIM_SEND ? 1 : -1;
    }
    if (balance) {
      sim_nccl_warn("Trying to %s self without a matching %s",
                    balance > 0 ? "send to" : "recv from", balance > 0 ? "recv" : "send");
      return ncclInvalidUsage;
    }
  }
  return ncclSuccess;
}

static void free_launch(struct sim_launch *launch, bool with_tasks) {
  for (size_t i = 0; with_tasks && i < launch->plan_count; i++) {
    free_tasks(launch->plans[i].collectives);
    free_tasks(launch->plans[i].p2p);
  }
  free(launch->plans);
  free_jobs(launch->jobs);
}

/* NTSIM_STALL=N: the N-th collective of a communicator never finishes here, though its data have moved. */
static uint64_t stall_ordinal(void) {
  const char *text = getenv("NTSIM_STALL");
  return text ? strtoull(text, NULL, 10) : 0;
}

static void stall(ncclComm_t comm) {
  struct timespec pause = {.tv_nsec = 10000000};
  while (!atomic_load(&comm->aborted))
    nanosleep(&pause, NULL);
}

static void run_plan(void *arg) {
  struct sim_plan *plan = arg;
  uint64_t stalled = stall_ordinal();
  atomic_fetch_add(&plan->comm->running, 1);
  bool going = !atomic_load(&plan->comm->aborted) && plan->epoch == plan->comm->epoch;
  for (struct sim_task *t = plan->collectives; t && going; t = t->next) {
    going = sim_ring_run(t);
    if (going && t->ordinal == stalled)
      stall(plan->comm);
  }
  if (going && plan->p2p)
    sim_p2p_run(plan->comm, plan->p2p);
  free_tasks(plan->collectives);
  free_tasks(plan->p2p);
  atomic_fetch_sub(&plan->comm->running, 1);
  sim_comm_unref(plan->comm);
  free(plan);
}

/* The streams that a plan names beside `on`, each once; returns how many. */
static size_t other_streams(const struct sim_plan *plan, struct sim_stream *on,
                            struct sim_stream **others, size_t room) {
  const struct sim_task *lists[] = {plan->collectives, plan->p2p};
  size_t n = 0;
  for (int i = 0; i < 2; i++) {
    for (const struct sim_task *t = lists[i]; t; t = t->next) {
      struct sim_stream *s = sim_stream_find(t->stream);
      if (s && s != on && n < room && (n == 0 || others[n - 1] != s))
        others[n++] = s;
    }
  }
  return n;
}

/* CUDA_LAUNCH_BLOCKING=1: a launch returns when its work is done. */
static bool launches_block(void) {
  const char *text = getenv("CUDA_LAUNCH_BLOCKING");
  return text && *text == '1';
}

/* Takes the plan. Every stream named in the group waits for the plan, and the plan for every stream.
 * Plans of one communicator run one after another whatever their streams: they share its queues. */
static void launch_on(struct sim_stream *on, struct sim_plan *work, struct sim_stream **others,
                      size_t n) {
  ncclComm_t comm = work->comm;
  sim_comm_ref(comm);
  sim_stream_ref(on);
  pthread_mutex_lock(&comm->launch_lock);
  work->epoch = comm->epoch;
  for (struct sim_task *t = work->collectives; t; t = t->next)
    t->ordinal = ++comm->collectives;
  for (size_t i = 0; i < n; i++)
    sim_stream_wait_ticket(on, others[i], sim_stream_last_ticket(others[i]));
  if (comm->last_stream)
    sim_stream_wait_ticket(on, comm->last_stream, comm->last_ticket);
  uint64_t ticket = sim_stream_launch(on, run_plan, work);
  for (size_t i = 0; i < n; i++)
    sim_stream_wait_ticket(others[i], on, ticket);
  if (comm->last_stream)
    sim_stream_unref(comm->last_stream);
  comm->last_stream = on;
  comm->last_ticket = ticket;
  pthread_mutex_unlock(&comm->launch_lock);
  if (launches_block())
    sim_stream_sync_ticket(on, ticket);
}

static struct sim_task *copy_tasks(const struct sim_task *task) {
  struct sim_task *first = NULL, **at = &first;
  for (; task; task = task->next) {
    *at = malloc(sizeof(**at));
    if (!*at)
      abort();
    **at = *task;
    (*at)->next = NULL;
    at = &(*at)->next;
  }
  return first;
}

/* A replay of a captured plan: a plan like any other, on the stream of the graph. */
static void replay_plan(struct sim_stream *s, void *arg) {
  const struct sim_plan *captured = arg;
  struct sim_plan *work = malloc(sizeof(*work));
  if (!work)
    abort();
  *work = (struct sim_plan){.comm = captured->comm,
                            .collectives = copy_tasks(captured->collectives),
                            .p2p = copy_tasks(captured->p2p)};
  launch_on(s, work, NULL, 0);
}

static void drop_plan(void *arg) {
  struct sim_plan *plan = arg;
  free_tasks(plan->collectives);
  free_tasks(plan->p2p);
  atomic_fetch_sub(&plan->comm->captured, 1);
  sim_comm_unref(plan->comm);
  free(plan);
}

static void launch_plan(const struct sim_plan *plan) {
  struct sim_plan *work = malloc(sizeof(*work));
  const struct sim_task *first = plan->collectives ? plan->collectives : plan->p2p;
  struct sim_stream *on = sim_stream_find(first->stream), *others[64];
  if (!work || !on)
    abort();
  *work = *plan;
  struct sim_node node = {.launch = replay_plan, .drop = drop_plan, .arg = work};
  if (sim_capture_is_active(on)) {
    sim_comm_ref(work->comm);
    atomic_fetch_add(&work->comm->captured, 1);
    if (sim_capture_add(on, node))
      return;
    atomic_fetch_sub(&work->comm->captured, 1);
    sim_comm_unref(work->comm);
  }
  launch_on(on, work, others, other_streams(plan, on, others, 64));
}

static bool ask_connections(const struct sim_launch *launch) {
  bool needed = false;
  for (size_t i = 0; i < launch->plan_count; i++) {
    struct sim_task *lists[] = {launch->plans[i].collectives, launch->plans[i].p2p};
    for (int k = 0; k < 2; k++) {
      for (struct sim_task *t = lists[k]; t; t = t->next)
        needed |= sim_connect_ask(t->comm, t);
    }
  }
  return needed;
}

static ncclResult_t wait_connections(const struct sim_launch *launch) {
  ncclResult_t result = ncclSuccess;
  for (size_t i = 0; i < launch->plan_count; i++) {
    for (struct sim_task *t = launch->plans[i].collectives; t && result == ncclSuccess; t = t->next)
      result = sim_connect_wait(t->comm, t);
  }
  return result;
}

static void *job_main(void *arg) {
  struct sim_job *job = arg;
  job->result = job->fn(job->arg);
  return NULL;
}

static int start_thread(pthread_t *thread, void *(*fn)(void *), void *arg, bool detached) {
  pthread_attr_t attr;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, detached ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE);
  int error = pthread_create(thread, &attr, fn, arg);
  pthread_attr_destroy(&attr);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

/* Jobs of one group wait for each other's counterparts elsewhere, so they run side by side. */
static ncclResult_t run_jobs(struct sim_job *jobs) {
  ncclResult_t result = ncclSuccess;
  if (jobs && !jobs->next)
    return jobs->fn(jobs->arg);
  for (struct sim_job *job = jobs; job; job = job->next) {
    job->threaded = start_thread(&job->thread, job_main, job, false) == 0;
    if (!job->threaded)
      job->result = ncclSystemError;
  }
  for (struct sim_job *job = jobs; job; job = job->next) {
    if (job->threaded)
      pthread_join(job->thread, NULL);
    if (job->result != ncclSuccess)
      result = job->result;
  }
  return result;
}

static ncclResult_t connect_plan(void *arg) {
  const struct sim_plan *plan = arg;
  return sim_connect_p2p(plan->comm, plan->p2p);
}

/* Peers for messages: the communicators of a group beside each other. */
static ncclResult_t connect_peers(const struct sim_launch *launch) {
  struct sim_job *jobs = calloc(launch->plan_count + 1, sizeof(*jobs)), *first = NULL;
  if (!jobs)
    abort();
  for (size_t i = launch->plan_count; i-- > 0;) {
    struct sim_plan *plan = &launch->plans[i];
    if (!plan->p2p)
      continue;
    jobs[i] = (struct sim_job){.next = first, .comm = plan->comm, .fn = connect_plan, .arg = plan};
    first = &jobs[i];
  }
  ncclResult_t result = run_jobs(first);
  free(jobs);
  return result;
}

static ncclResult_t run_launch(struct sim_launch *launch) {
  ncclResult_t result = run_jobs(launch->jobs);
  if (result == ncclSuccess)
    result = connect_peers(launch);
  if (result == ncclSuccess)
    result = wait_connections(launch);
  for (size_t i = 0; result == ncclSuccess && i < launch->plan_count; i++)
    launch_plan(&launch->plans[i]);
  return result;
}

static void each_comm(const struct sim_launch *launch, void (*fn)(ncclComm_t comm, int value),
                      int value) {
  for (size_t i = 0; i < launch->plan_count; i++)
    fn(launch->plans[i].comm, value);
  for (struct sim_job *job = launch->jobs; job; job = job->next)
    fn(job->comm, value);
}

static void begin_progress(ncclComm_t comm, int unused) {
  (void)unused;
  sim_comm_ref(comm);
  atomic_fetch_add(&comm->working, 1);
  atomic_store(&comm->async, ncclInProgress);
}

static void end_progress(ncclComm_t comm, int result) {
  int current = ncclInProgress;
  if (atomic_fetch_sub(&comm->working, 1) == 1 || result != ncclSuccess)
    atomic_compare_exchange_strong(&comm->async, &current, result);
  sim_comm_unref(comm);
}

static void *launch_main(void *arg) {
  struct sim_launch *launch = arg;
  ncclResult_t result = run_launch(launch);
  each_comm(launch, end_progress, result);
  free_launch(launch, result != ncclSuccess);
  free(launch);
  return NULL;
}

static bool any_nonblocking(const struct sim_launch *launch) {
  for (size_t i = 0; i < launch->plan_count; i++) {
    if (!launch->plans[i].comm->blocking)
      return true;
  }
  for (const struct sim_job *job = launch->jobs; job; job = job->next) {
    if (!job->comm->blocking)
      return true;
  }
  return false;
}

static ncclResult_t launch_in_background(const struct sim_launch *launch) {
  pthread_t thread;
  struct sim_launch *copy = malloc(sizeof(*copy));
  if (!copy)
    return ncclSystemError;
  *copy = *launch;
  each_comm(copy, begin_progress, 0);
  if (start_thread(&thread, launch_main, copy, true)) {
    each_comm(copy, end_progress, ncclSystemError);
    free(copy);
    return ncclSystemError;
  }
  return ncclInProgress;
}

ncclResult_t sim_group_end(void) {
  if (group.depth == 0) {
    sim_nccl_warn("ncclGroupEnd: not in a group call.");
    return ncclInvalidUsage;
  }
  if (--group.depth > 0)
    return ncclSuccess;
  struct sim_launch launch = {.jobs = group.jobs};
  struct sim_task *tasks = group.tasks;
  ncclResult_t result = group.error;
  group.tasks = NULL;
  group.jobs = NULL;
  if (result != ncclSuccess) {
    free_tasks(tasks);
    free_jobs(launch.jobs);
    return result;
  }
  result = make_plans(&launch, tasks);
  bool blocks = result == ncclSuccess && (ask_connections(&launch) || launch.jobs);
  if (blocks && any_nonblocking(&launch)) {
    result = launch_in_background(&launch);
    if (result == ncclInProgress)
      return result;
  } else if (result == ncclSuccess) {
    result = run_launch(&launch);
  }
  free_launch(&launch, result != ncclSuccess);
  return result;
}

SIM_NCCL_API(ncclResult_t, GroupStart, void) {
  sim_group_start();
  return ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, GroupEnd, void) {
  return sim_group_end();
}

SIM_NCCL_API(ncclResult_t, GroupSimulateEnd, ncclSimInfo_t *simInfo) {
  if (group.depth == 0)
    return ncclInvalidUsage;
  if (simInfo && simInfo->size >= sizeof(*simInfo))
    simInfo->estimatedTime = 10.0f;
  if (--group.depth > 0)
    return ncclSuccess;
  free_tasks(group.tasks);
  free_jobs(group.jobs);
  group.tasks = NULL;
  group.jobs = NULL;
  return group.error;
}
