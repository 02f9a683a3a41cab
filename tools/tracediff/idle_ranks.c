/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process belongs to the job if a launcher gave it a rank of the same world, run and attempt; where the run has no name,
 * it has the parent of a rank that lives. Children of a rank (data loaders) have its environment, too: so a rank counts
 * only if no process of that rank has an area.
 */
#include "tracediff/idle_ranks.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/process_maps.h"
#include "cli/process_words.h"
#include "trace/error.h"
#include "trace/read_text.h"
#include "trace/world.h"

#define ENVIRONMENT_MAX (1u << 20)

struct search {
  struct nt_model *model;
  const struct nt_model_rank *alive; /* one that lives here */
  int32_t expected;
  struct nt_rank_set idle, busy; /* world ranks */
};

/* NAME=VALUE, each with its NUL, of the process at hand. The tool reads its traces with several threads, and this with one. */
static char *environment;
static size_t environment_length;

static char *get_of_process(const char *name) {
  const size_t length = strlen(name);
  for (size_t at = 0; at < environment_length; at += strlen(environment + at) + 1)
    if (!strncmp(environment + at, name, length) && environment[at + length] == '=')
      return environment + at + length + 1;
  return NULL;
}

static bool read_environment(uint32_t pid) {
  const ssize_t length =
      nt_read_text_at(environment, ENVIRONMENT_MAX, "/proc/%" PRIu32 "/environ", pid);
  environment_length = length > 0 ? (size_t)length : 0;
  return environment_length != 0;
}

static bool is_of_job(const struct search *s, uint32_t pid, const struct nt_world *world) {
  const char *run_id = s->alive->run_id ? s->alive->run_id : "";
  return world->rank >= 0 && world->size == s->expected && world->restart == s->alive->restart &&
         !strcmp(world->run_id, run_id) &&
         (*run_id || nt_parent_of_process(pid) == nt_parent_of_process(s->alive->pid));
}

static bool has_trace(const struct nt_model *model, int32_t world) {
  for (uint32_t i = 0; i < model->rank_count; i++)
    if (model->ranks[i].world == world)
      return true;
  return false;
}

static int look_at(struct search *s, uint32_t pid) {
  struct nt_maps maps;
  struct nt_world world;
  if (!nt_maps_read(pid, &maps) || !maps.loaded || !read_environment(pid))
    return 0;
  nt_world_read(get_of_process, &world);
  if (!is_of_job(s, pid, &world) || has_trace(s->model, world.rank))
    return 0;
  return nt_rank_set_add(maps.area[0] || maps.private_area ? &s->busy : &s->idle,
                         (uint32_t)world.rank);
}

static int look_at_all(struct search *s) {
  DIR *proc = opendir("/proc");
  int status = 0;
  if (!proc)
    return 0;
  for (struct dirent *entry; !status && (entry = readdir(proc));)
    if (isdigit((unsigned char)entry->d_name[0]))
      status = look_at(s, (uint32_t)strtoul(entry->d_name, NULL, 10));
  closedir(proc);
  for (uint32_t w = nt_rank_set_next(&s->idle, 0); w < NT_RANK_MAX && !status;
       w = nt_rank_set_next(&s->idle, w + 1))
    if (!nt_rank_set_has(&s->busy, w))
      status = nt_rank_set_add(&s->model->idle, w);
  return status;
}

int nt_find_idle_ranks(struct nt_model *model) {
  struct search s = {.model = model};
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    s.expected = rank->world_size > s.expected ? rank->world_size : s.expected;
    if (rank->live && rank->state == NT_PROCESS_RUNNING && !s.alive)
      s.alive = rank;
  }
  if (!s.alive || s.expected <= (int32_t)model->rank_count)
    return 0;
  environment = malloc(ENVIRONMENT_MAX);
  if (!environment)
    return -NT_ERR_MEMORY;
  const int status = look_at_all(&s);
  free(environment);
  environment = NULL;
  nt_rank_set_free(&s.idle);
  nt_rank_set_free(&s.busy);
  return status;
}
