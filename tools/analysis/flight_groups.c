/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process groups of a dump as views of communicators, and whose dump it is.
 *
 * A group is the same on all its members: its name and its ranks are. Names are counted up in one order on all ranks, or
 * are a hash of the ranks; groups that were split off may share one.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/flight_parts.h"
#include "nccl/comm_id.h"
#include "nccl/nccl_api.h"

enum { SHORT_NAME = 6, RANKS_MAX = 1 << 20, SEARCH_MAX = 1 << 24 };

struct ranks {
  int32_t *list;
  uint32_t count;
};

static int add_rank(struct ranks *ranks, int64_t rank, size_t room) {
  if (!ranks->list && !(ranks->list = malloc((room ? room : 1) * sizeof *ranks->list)))
    return -NT_ERR_MEMORY;
  if (rank >= 0 && rank < RANKS_MAX && ranks->count < room)
    ranks->list[ranks->count++] = (int32_t)rank;
  return 0;
}

/* "[0, 1, 2]", or a list of numbers. */
static int read_ranks(const struct nt_value *value, struct ranks *out) {
  int status = 0;
  *out = (struct ranks){0};
  for (uint32_t i = 0; value && value->type == NT_VALUE_LIST && i < value->count && !status; i++)
    status = add_rank(out, nt_value_integer(nt_value_at(value, i), -1), value->count);
  if (!value || value->type != NT_VALUE_TEXT)
    return status;
  const char *at = value->text, *end = at + value->count;
  while (at < end && !status) {
    int64_t number = 0;
    bool any = false;
    for (; at < end && isdigit((unsigned char)*at); at++, any = true)
      number = number < RANKS_MAX ? 10 * number + (*at - '0') : number;
    if (any)
      status = add_rank(out, number, value->count / 2 + 1);
    at += at < end && !any;
  }
  return status;
}

static void name_view(struct nt_model_view *view, const struct nt_value *name,
                      const struct nt_value *description) {
  char shown[sizeof view->name - SHORT_NAME - 1], guid[24];
  nt_value_copy(shown, sizeof shown, description);
  nt_value_copy(guid, sizeof guid, name);
  if (!*shown || !strcmp(shown, "undefined"))
    snprintf(view->name, sizeof view->name, "group %s", guid);
  else if (!strcmp(shown, "default_pg") || name->count > SHORT_NAME)
    snprintf(view->name, sizeof view->name, "%s", shown);
  else
    snprintf(view->name, sizeof view->name, "%.6s:%s", guid, shown);
}

static int identify(struct nt_model_view *view, const struct nt_value *name,
                    const struct ranks *ranks) {
  static const char kind[] = "flight";
  size_t length =
      sizeof kind + sizeof name->count + name->count + (size_t)ranks->count * sizeof *ranks->list;
  unsigned char *text = malloc(length), *at = text;
  if (!text)
    return -NT_ERR_MEMORY;
  at = mempcpy(at, kind, sizeof kind);
  at = mempcpy(at, &name->count, sizeof name->count);
  at = mempcpy(at, name->text, name->count);
  if (ranks->count)
    memcpy(at, ranks->list, (size_t)ranks->count * sizeof *ranks->list);
  struct nt_id128 id = nt_hash(text, length);
  memcpy(view->id, &id, sizeof view->id);
  free(text);
  return 0;
}

static struct nt_flight_group *add_group(struct nt_flight *flight, const struct nt_value *name,
                                         const struct nt_value *description,
                                         const struct nt_value *members) {
  struct nt_model_rank *rank = flight->rank;
  struct ranks ranks;
  if (flight->group_count == flight->group_room) {
    uint32_t room = flight->group_room ? 2 * flight->group_room : 32;
    struct nt_flight_group *groups = realloc(flight->groups, room * sizeof *groups);
    if (!groups)
      return NULL;
    flight->groups = groups;
    flight->group_room = room;
  }
  struct nt_model_view *view = nt_model_add_view(rank);
  if (!view || read_ranks(members, &ranks)) {
    return NULL;
  }
  view->number = rank->view_count;
  view->state = NT_COMM_LIVE;
  name_view(view, name, description);
  int status = identify(view, name, &ranks);
  if (ranks.count)
    view->nranks = (int32_t)ranks.count;
  else /* older recorders leave it empty for the group of all */
    view->rank = rank->world;
  for (uint32_t i = 0; i < ranks.count; i++)
    if (ranks.list[i] == rank->world)
      view->rank = (int32_t)i;
  if (ranks.count && nt_value_is_text(description, "default_pg"))
    rank->world_size = view->nranks;
  free(ranks.list);
  struct nt_flight_group *group = &flight->groups[flight->group_count++];
  *group = (struct nt_flight_group){
      .name = name, .view = rank->view_count - 1, .call = NT_NONE, .p2p = NT_NONE, .pg_id = -1};
  return status ? NULL : group;
}

int nt_flight_groups(struct nt_flight *flight) {
  const struct nt_value *config = flight->config;
  for (uint32_t i = 0; i < nt_value_count(config) && config->type == NT_VALUE_MAP; i++) {
    const struct nt_value *name = config->items[2 * (size_t)i];
    const struct nt_value *group = config->items[2 * (size_t)i + 1];
    if (name->type == NT_VALUE_TEXT && !add_group(flight, name, nt_value_get(group, "desc", NULL),
                                                  nt_value_get(group, "ranks", NULL)))
      return -NT_ERR_MEMORY;
  }
  return 0;
}

static bool same_text(const struct nt_value *a, const struct nt_value *b) {
  return a == b || (a->count == b->count && !memcmp(a->text, b->text, a->count));
}

struct nt_flight_group *nt_flight_group(struct nt_flight *flight, const struct nt_value *name,
                                        const struct nt_value *description) {
  for (uint32_t i = 0; i < flight->group_count; i++) {
    uint32_t at = (flight->hint + i) % flight->group_count;
    if (same_text(flight->groups[at].name, name)) {
      flight->hint = at;
      return &flight->groups[at];
    }
  }
  return add_group(flight, name, description, NULL);
}

/* ---- pg_status -------------------------------------------------------------------------------------- */

struct numbered {
  int64_t number;
  uint32_t index;
};

static int by_number(const void *a, const void *b) {
  const struct numbered *x = a, *y = b;
  return x->number < y->number ? -1 : x->number > y->number;
}

/*
 * The status is kept by a number that each process counts for itself, the configuration by name. Both grow as groups
 * are made, so where there are as many of one as of the other they go together in order, unless an entry says otherwise.
 */
void nt_flight_status(struct nt_flight *flight) {
  const struct nt_value *status = flight->status;
  uint32_t count = nt_value_count(status);
  if (!count || status->type != NT_VALUE_MAP || count != flight->group_count)
    return;
  struct numbered *ids = calloc(count, sizeof *ids), *names = calloc(count, sizeof *names);
  bool fits = ids && names;
  for (uint32_t i = 0; i < count && fits; i++) {
    ids[i] = (struct numbered){nt_value_integer(status->items[2 * (size_t)i], -1), i};
    names[i] = (struct numbered){nt_value_integer(flight->groups[i].name, -1), i};
    fits = ids[i].number >= 0 && names[i].number >= 0;
  }
  if (fits) {
    qsort(ids, count, sizeof *ids, by_number);
    qsort(names, count, sizeof *names, by_number);
  }
  for (uint32_t i = 0; i < count && fits; i++) {
    int64_t known = flight->groups[names[i].index].pg_id;
    fits = known < 0 || known == ids[i].number;
  }
  for (uint32_t i = 0; i < count && fits; i++) {
    const struct nt_flight_group *group = &flight->groups[names[i].index];
    int64_t newest = nt_value_integer(
        nt_value_get(status->items[2 * (size_t)ids[i].index + 1], "last_enqueued_collective", NULL),
        -1);
    if (!group->any && newest > 0 && newest < UINT32_MAX)
      flight->rank->views[group->view].collectives = (uint32_t)newest;
  }
  free(ids);
  free(names);
}

/* ---- whose dump ------------------------------------------------------------------------------------- */

/* The number that ends the name, an extension without digits left aside; -1. */
static int32_t number_of(const char *source) {
  const char *base = strrchr(source, '/');
  base = base ? base + 1 : source;
  size_t end = strlen(base);
  const char *dot = strrchr(base, '.');
  if (dot && dot != base && !dot[1 + strcspn(dot + 1, "0123456789")])
    end = (size_t)(dot - base);
  size_t start = end;
  while (start && isdigit((unsigned char)base[start - 1]))
    start--;
  return start == end || end - start > 6 ? -1 : (int32_t)strtol(base + start, NULL, 10);
}

static bool has(const struct ranks *ranks, int32_t rank) {
  for (uint32_t i = 0; i < ranks->count; i++)
    if (ranks->list[i] == rank)
      return true;
  return false;
}

/* The only rank that is in all groups; -1 if there are several, or none. */
static int32_t common_rank(const struct nt_value *config) {
  struct ranks common = {0}, next;
  for (uint32_t i = 0; i < nt_value_count(config) && config->type == NT_VALUE_MAP; i++) {
    if (read_ranks(nt_value_get(config->items[2 * (size_t)i + 1], "ranks", NULL), &next))
      break;
    if (!common.list) {
      common = next;
      continue;
    }
    uint32_t kept = 0;
    if ((uint64_t)common.count * next.count > SEARCH_MAX)
      next.count = 0;
    for (uint32_t j = 0; j < common.count && next.count; j++)
      if (has(&next, common.list[j]))
        common.list[kept++] = common.list[j];
    common.count = next.count ? kept : common.count;
    free(next.list);
  }
  int32_t rank = common.count == 1 ? common.list[0] : -1;
  free(common.list);
  return rank;
}

/* By its sends and receives, whose names hold the process's own rank in the group. */
static int32_t message_rank(const struct nt_flight *flight) {
  int32_t world = -1;
  for (uint32_t i = 0; i < nt_value_count(flight->entries) && world < 0; i++) {
    const struct nt_value *entry = nt_value_at(flight->entries, i);
    const struct nt_value *group = nt_value_at(nt_value_get(entry, "process_group", NULL), 0);
    struct nt_flight_op op = nt_flight_op(nt_value_get(entry, "profiling_name", NULL));
    struct ranks ranks;
    char name[64];
    int32_t own = op.fn == NT_FN_Send ? op.source : op.destination;
    if (own < 0 || !group || group->count >= sizeof name)
      continue;
    nt_value_copy(name, sizeof name, group);
    if (read_ranks(nt_value_get(nt_value_get(flight->config, name, NULL), "ranks", NULL), &ranks) ==
            0 &&
        (uint32_t)own < ranks.count)
      world = ranks.list[own];
    free(ranks.list);
  }
  return world;
}

/* Is the rank in all groups whose ranks are told? */
static bool is_member(const struct nt_value *config, int32_t world) {
  bool member = true;
  for (uint32_t i = 0; i < nt_value_count(config) && config->type == NT_VALUE_MAP && member; i++) {
    struct ranks ranks;
    if (read_ranks(nt_value_get(config->items[2 * (size_t)i + 1], "ranks", NULL), &ranks) == 0)
      member = !ranks.count || has(&ranks, world);
    free(ranks.list);
  }
  return member;
}

int32_t nt_flight_world(const char *source, const struct nt_flight *flight) {
  const int32_t named = number_of(source);
  if (named >= 0 && is_member(flight->config, named))
    return named;
  int32_t world = common_rank(flight->config);
  world = world < 0 ? message_rank(flight) : world;
  return world < 0 ? named : world;
}
