/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small jobs by hand, for tests of the analysis.
 *
 *   struct job j; job_start(&j, 4);
 *   uint32_t a = job_comm(&j, "A", "0-3");
 *   job_all(&j, a, NT_FN_AllReduce, 1024);      every member calls it
 *   job_call(&j, 2, a, NT_FN_AllReduce, 2048);  rank 2 alone does
 *   struct nt_verdict *v = job_judge(&j);
 *
 * Sequence numbers are counted as the library does. Each call is one millisecond after the one before;
 * job_pass lets time go by. Ranks are alive and looked at one and a half seconds after the last call.
 */
#ifndef NT_MODEL_BUILDER_H
#define NT_MODEL_BUILDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/verdict.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

enum { JOB_RANKS = 16, JOB_COMMS = 8 };
#define MS INT64_C(1000000)
#define JOB_LOOK_MS 1500 /* older than a young wait, younger than a job that stands still */

struct job {
  struct nt_model model;
  struct nt_verdict verdict;
  uint32_t ranks, comms;
  int64_t clock;
  uint32_t view[JOB_RANKS][JOB_COMMS]; /* index + 1 */
  uint32_t collectives[JOB_RANKS][JOB_COMMS];
  uint32_t sends[JOB_RANKS][JOB_COMMS][JOB_RANKS], recvs[JOB_RANKS][JOB_COMMS][JOB_RANKS];
  uint32_t group; /* 0 outside */
  int root;       /* of the calls to come, -1 for none */
  uint8_t dtype, op;
  uint32_t buffer; /* of the calls to come */
  uint32_t line;   /* likewise, of train.py; 0: not known */
  bool judged;
};

static inline void job_start(struct job *j, uint32_t ranks) {
  memset(j, 0, sizeof *j);
  j->ranks = ranks;
  j->clock = INT64_C(1764384000000) * MS;
  j->root = -1;
  j->dtype = ncclFloat32;
  j->op = ncclSum;
  for (uint32_t i = 0; i < ranks; i++) {
    struct nt_model_rank *rank = nt_model_add_rank(&j->model);
    rank->world = (int32_t)i;
    rank->world_size = (int32_t)ranks;
    rank->pid = 1000 + i;
    rank->host = strdup("node");
    rank->state = NT_PROCESS_RUNNING;
    rank->started_ns = j->clock;
    rank->live = true;
  }
}

static inline struct nt_model_rank *job_rank(struct job *j, uint32_t rank) {
  return &j->model.ranks[rank];
}

static inline void job_pass(struct job *j, int64_t ms) {
  j->clock += ms * MS;
}

/* A communicator that has been made; members by their world ranks. */
static inline uint32_t job_comm(struct job *j, const char *name, const char *members) {
  struct nt_rank_set set = {0};
  uint32_t comm = j->comms++;
  int32_t place = 0;
  assert_int_equal(nt_rank_set_parse(members, &set), 0);
  for (uint32_t r = nt_rank_set_next(&set, 0); r < j->ranks; r = nt_rank_set_next(&set, r + 1)) {
    struct nt_model_view *view = nt_model_add_view(job_rank(j, r));
    memset(view->id, (int)comm + 1, sizeof view->id);
    memset(view->uid_hash, (int)comm + 1, sizeof view->uid_hash);
    view->number = comm + 1;
    view->rank = place++;
    view->nranks = (int32_t)nt_rank_set_count(&set);
    view->ordinal = 1;
    view->origin = NT_COMM_INIT;
    view->state = NT_COMM_LIVE;
    view->created_ns = j->clock;
    snprintf(view->name, sizeof view->name, "%s", name);
    j->view[r][comm] = job_rank(j, r)->view_count;
  }
  nt_rank_set_free(&set);
  job_pass(j, 1);
  return comm;
}

static inline struct nt_model_call *job_record(struct job *j, uint32_t rank, uint32_t comm,
                                               uint8_t fn, uint64_t count, int32_t peer) {
  struct nt_model_call *call = nt_model_add_call(job_rank(j, rank));
  call->enter_ns = j->clock;
  call->exit_ns = j->clock + MS / 2;
  call->view = comm == NT_NONE ? NT_NONE : j->view[rank][comm] - 1;
  call->fn = fn;
  call->count = count;
  call->dtype = j->dtype;
  call->op = nt_fn_moves_bytes(fn) ? 255 : j->op;
  call->peer = peer;
  call->group = j->group;
  call->stream = 1;
  call->buffer = j->buffer;
  if (j->line) {
    char site[32];
    snprintf(site, sizeof site, "train.py:%u step", j->line);
    call->at = nt_model_add_site(job_rank(j, rank), site);
  }
  job_rank(j, rank)->total_calls++;
  job_pass(j, 1);
  return call;
}

static inline struct nt_model_call *job_call(struct job *j, uint32_t rank, uint32_t comm,
                                             uint8_t fn, uint64_t count) {
  struct nt_model_call *call = job_record(j, rank, comm, fn, count, j->root);
  call->seq = ++j->collectives[rank][comm];
  return call;
}

/* Everybody in the communicator but `but` (-1: everybody). */
static inline void job_others(struct job *j, int but, uint32_t comm, uint8_t fn, uint64_t count) {
  for (uint32_t r = 0; r < j->ranks; r++)
    if (j->view[r][comm] && (int)r != but)
      job_call(j, r, comm, fn, count);
}

static inline void job_all(struct job *j, uint32_t comm, uint8_t fn, uint64_t count) {
  job_others(j, -1, comm, fn, count);
}

static inline struct nt_model_call *job_send(struct job *j, uint32_t rank, uint32_t comm,
                                             uint32_t peer, uint64_t count) {
  struct nt_model_call *call = job_record(j, rank, comm, NT_FN_Send, count, (int32_t)peer);
  call->seq = ++j->sends[rank][comm][peer];
  return call;
}

static inline struct nt_model_call *job_recv(struct job *j, uint32_t rank, uint32_t comm,
                                             uint32_t peer, uint64_t count) {
  struct nt_model_call *call = job_record(j, rank, comm, NT_FN_Recv, count, (int32_t)peer);
  call->seq = ++j->recvs[rank][comm][peer];
  return call;
}

/* The rank's last call does not return. */
static inline void job_block(struct job *j, uint32_t rank) {
  struct nt_model_rank *model = job_rank(j, rank);
  model->calls[model->call_count - 1].exit_ns = 0;
}

static inline void job_end(struct job *j, uint32_t rank, enum nt_process_state state, int code) {
  struct nt_model_rank *model = job_rank(j, rank);
  model->state = state;
  model->exit_code = code;
  model->live = false;
  model->last_beat_ns = j->clock;
  model->exit_ns = state == NT_PROCESS_EXITED ? j->clock : 0;
  job_pass(j, 1);
}

/* The trace of this rank is lost. Call it last. */
static inline void job_drop(struct job *j, int32_t world) {
  for (uint32_t i = 0; i < j->model.rank_count; i++)
    if (j->model.ranks[i].world == world) {
      struct nt_model_rank lost = j->model.ranks[i];
      j->model.ranks[i] = j->model.ranks[j->model.rank_count - 1];
      j->model.ranks[j->model.rank_count - 1] = lost;
      nt_model_drop_last(&j->model);
      return;
    }
}

/* Everything is loaded: what every step of the analysis begins with. */
static inline void job_settle(struct job *j) {
  for (uint32_t i = 0; i < j->model.rank_count; i++)
    if (!j->model.ranks[i].last_beat_ns)
      j->model.ranks[i].last_beat_ns = j->clock + JOB_LOOK_MS * MS;
  j->model.now_ns = j->clock + JOB_LOOK_MS * MS;
  assert_int_equal(nt_model_settle(&j->model), 0);
}

static inline struct nt_verdict *job_judge(struct job *j) {
  job_settle(j);
  assert_int_equal(nt_verdict_make(&j->model, &j->verdict), 0);
  j->judged = true;
  return &j->verdict;
}

static inline void job_free(struct job *j) {
  nt_verdict_free(&j->verdict);
  nt_model_free(&j->model);
}

static inline const char *set_text(const struct nt_rank_set *set) {
  static char text[4][128];
  static unsigned turn;
  char *out = text[turn++ % 4];
  return nt_rank_set_count(set) ? nt_rank_set_text(out, sizeof text[0], set) : "";
}

/* The first finding in short: "missing AllReduce 7 blame 2 waiting 0-1,3", fields after the class. */
static inline void assert_verdict(struct job *j, const char *wanted) {
  struct nt_verdict *v = job_judge(j);
  char text[512];
  const struct nt_finding *f = v->findings;
  if (!v->count)
    snprintf(text, sizeof text, "consistent");
  else
    snprintf(text, sizeof text, "%s%s%s %s %u blame %s waiting %s", nt_class_name(f->class),
             f->field ? " " : "", f->field ? f->field : "", nt_fn_name(f->fn), f->seq,
             set_text(&f->blame), set_text(&f->waiting));
  assert_string_equal(text, wanted);
  job_free(j);
}

#endif
