/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of each process: what its own trace says, what its neighbours noted when it vanished, and what
 * the kernel's log says in somebody's dump.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "analysis/load_parts.h"

#define INITIAL_PID_NS UINT64_C(0xEFFFFFFC) /* in which the kernel's log counts */

/* The program's name begins with "python": so the interpreter's end is the program's. */
static bool is_python(const struct nt_trace *trace) {
  const char *exe = nt_trace_evidence(trace, "exe");
  const char *name = exe ? strrchr(exe, '/') : NULL;
  return name && !strncmp(name + 1, "python", 6);
}

void nt_load_fate(struct nt_model_rank *rank, const struct nt_trace *trace) {
  const struct nt_process_info *process = nt_trace_process(trace);
  const struct nt_fate_facts fate = nt_fate_of(process);
  rank->nonce = process->nonce;
  rank->pid_ns = process->pid_ns;
  rank->state = process->state;
  rank->exit_code = process->exit_code;
  rank->phase = process->phase;
  rank->python = is_python(trace);
  rank->started_ns = process->started_ns;
  rank->last_beat_ns = process->last_beat_ns;
  rank->exit_ns = process->exit_ns;
  rank->seen_ns = process->seen_ns;
  rank->live = process->live;
  rank->oom = fate.oom;
  rank->oom_machine = fate.oom_machine;
  rank->oom_from = fate.oom_from;
  rank->oom_to = fate.oom_to;
  rank->blocked_ns = process->gpu_blocked ? process->gpu_beat_ns : 0;
}

void nt_load_note(struct nt_model_rank *rank, const struct nt_peer_note *note,
                  const struct nt_model_rank *by) {
  const int64_t noticed = (int64_t)note->vanished_ns, beat = (int64_t)note->last_beat_ns;
  if (rank->pid != note->pid || rank->start_time != note->start_time ||
      (note->world_rank >= 0 && rank->world >= 0 && rank->world != note->world_rank))
    return;
  if (!noticed) {
    const int64_t until = by->boot && by->boot == rank->boot ? nt_model_last_sign(by) : 0;
    rank->there_ns = until > rank->there_ns ? until : rank->there_ns;
    return;
  }
  if (beat < rank->started_ns) /* of the program that was there before an exec */
    return;
  rank->gone_ns = beat > rank->gone_ns ? beat : rank->gone_ns;
  if (!rank->noticed_ns || noticed < rank->noticed_ns)
    rank->noticed_ns = noticed;
  if (!note->oom_kills || rank->state != NT_PROCESS_VANISHED)
    return;
  if (rank->oom == NT_OOM_NONE || rank->oom_to > rank->oom_from + note->oom_kills)
    rank->oom_to =
        rank->oom_from == NT_OOM_UNKNOWN ? note->oom_kills : rank->oom_from + note->oom_kills;
  rank->oom = rank->oom_machine ? NT_OOM_LIKELY : NT_OOM_COUNTED;
}

/* Lines "kernel.N = … Killed process PID (NAME) …" of the dumps. */
int nt_load_kernel_kills(const struct nt_trace *trace, struct nt_kernel_kill **list,
                         uint32_t *count) {
  static const char words[] = "Killed process ";
  const char *key, *value;
  for (size_t i = 0; i < nt_trace_dump_count(trace); i++)
    for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++) {
      const char *at = strncmp(key, "kernel.", 7) ? NULL : strstr(value, words);
      if (!at || !strstr(value, "ut of memory"))
        continue;
      struct nt_kernel_kill *grown = realloc(*list, (*count + 1u) * sizeof *grown);
      if (!grown)
        return -NT_ERR_MEMORY;
      *list = grown;
      struct nt_kernel_kill *kill = &grown[(*count)++];
      kill->pid = (uint32_t)strtoul(at + sizeof words - 1, NULL, 10);
      snprintf(kill->host, sizeof kill->host, "%s", nt_trace_process(trace)->host);
    }
  return 0;
}

struct host {
  const char *name;
  uint32_t vanished; /* processes of it */
  UT_hash_handle hh;
};

/* A cgroup counts, it does not say whom: likely only, where several of a host vanished. */
static void settle_counted(struct nt_model *model) {
  struct host *hosts = NULL, *host, *following;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    if (rank->state != NT_PROCESS_VANISHED || !rank->host)
      continue;
    HASH_FIND_STR(hosts, rank->host, host);
    if (!host && (host = calloc(1, sizeof *host)) != NULL) {
      host->name = rank->host;
      HASH_ADD_KEYPTR(hh, hosts, host->name, strlen(host->name), host);
    }
    if (host)
      host->vanished++;
  }
  for (uint32_t i = 0; i < model->rank_count; i++) {
    struct nt_model_rank *rank = &model->ranks[i];
    if (rank->state != NT_PROCESS_VANISHED || rank->oom != NT_OOM_COUNTED || !rank->host)
      continue;
    HASH_FIND_STR(hosts, rank->host, host);
    if (host && host->vanished > 1)
      rank->oom = NT_OOM_LIKELY;
  }
  HASH_ITER(hh, hosts, host, following) {
    HASH_DEL(hosts, host);
    free(host);
  }
}

void nt_settle_kills(struct nt_model *model, const struct nt_kernel_kill *kills, uint32_t count) {
  settle_counted(model);
  for (uint32_t i = 0; i < model->rank_count; i++) {
    struct nt_model_rank *rank = &model->ranks[i];
    for (uint32_t j = 0; j < count; j++)
      if (rank->state == NT_PROCESS_VANISHED && kills[j].pid == rank->pid &&
          rank->pid_ns == INITIAL_PID_NS && rank->host && !strcmp(kills[j].host, rank->host))
        rank->oom = NT_OOM_LOGGED;
  }
}

#define STOPPED_NS INT64_C(1000000000) /* a heart that beats every 50 ms is not just late */
#define TICK_NS INT64_C(50000000)      /* after which an end is noticed */

/* When the last of its neighbours that would have noticed its end had not: 0 if nobody tells. */
static int64_t seen_there(const struct nt_model_rank *rank) {
  if (rank->noticed_ns)
    return rank->noticed_ns - TICK_NS;
  return rank->there_ns ? rank->there_ns - 2 * TICK_NS : 0;
}

void nt_settle_stopped(struct nt_model *model) {
  for (uint32_t r = 0; r < model->rank_count; r++) {
    struct nt_model_rank *rank = &model->ranks[r];
    const int64_t until = seen_there(rank), stood = until - nt_model_end(rank);
    if (rank->state != NT_PROCESS_VANISHED || rank->recorder != NT_RECORDER_TRACE ||
        stood <= STOPPED_NS)
      continue;
    rank->stood_ns = rank->outlived ? 0 : stood; /* or its file was not written meanwhile */
    rank->gone_ns = until;
  }
}
