/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting, not hashing: the views of all ranks are ordered by id, and equal ids are a joint. */
#include "analysis/identify_parts.h"

#include <stdlib.h>
#include <string.h>

static bool is_zero(const uint8_t id[16]) {
  static const uint8_t zero[16];
  return !memcmp(id, zero, sizeof zero);
}

static int by_id(const void *a, const void *b) {
  const struct nt_keyed *x = a, *y = b;
  int order = memcmp(x->id, y->id, sizeof x->view->id);
  if (order)
    return order;
  if (x->rank != y->rank)
    return x->rank < y->rank ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

struct sorted_member {
  struct nt_member member;
  int32_t key;
  uint32_t parent_rank;
  int32_t world;
};

static int by_comm_rank(const void *a, const void *b) {
  const struct sorted_member *x = a, *y = b;
  if (x->member.comm_rank != y->member.comm_rank)
    return x->member.comm_rank < y->member.comm_rank ? -1 : 1;
  if (x->key != y->key)
    return x->key < y->key ? -1 : 1;
  if (x->parent_rank != y->parent_rank)
    return x->parent_rank < y->parent_rank ? -1 : 1;
  if (x->world != y->world)
    return x->world < y->world ? -1 : 1;
  return 0;
}

static int fill_joint(struct nt_job *job, struct nt_joint *joint, const struct nt_keyed *keyed,
                      uint32_t count) {
  const struct nt_model *model = job->model;
  struct sorted_member *sorted = calloc(count, sizeof *sorted);
  joint->members = calloc(count, sizeof *joint->members);
  if (!sorted || !joint->members) {
    free(sorted);
    return -NT_ERR_MEMORY;
  }
  memcpy(joint->id, keyed->id, sizeof joint->id);
  memcpy(joint->uid_hash, keyed->view->uid_hash, sizeof joint->uid_hash);
  joint->name = "";
  joint->parent = NT_NONE;
  joint->size = -1;
  int status = 0;
  for (uint32_t i = 0; i < count; i++) {
    const struct nt_model_view *view = keyed[i].view;
    int32_t world = model->ranks[keyed[i].rank].world;
    sorted[i] = (struct sorted_member){
        .member = {.rank = keyed[i].rank, .view = keyed[i].index, .comm_rank = view->rank},
        .key = view->key,
        .parent_rank = view->parent_rank,
        .world = world};
    if (view->name[0] && (!*joint->name || strcmp(view->name, joint->name) < 0))
      joint->name = view->name;
    if (view->nranks > joint->size)
      joint->size = view->nranks;
    if (view->origin)
      joint->origin = view->origin;
    if (!is_zero(view->uid_hash))
      memcpy(joint->uid_hash, view->uid_hash, sizeof joint->uid_hash);
    if (view->created_ns && (!joint->created_ns || view->created_ns < joint->created_ns))
      joint->created_ns = view->created_ns;
    if (world >= 0 && nt_rank_set_add(&joint->worlds, (uint32_t)world) < 0)
      status = -NT_ERR_MEMORY;
  }
  qsort(sorted, count, sizeof *sorted, by_comm_rank);
  for (uint32_t i = 0; i < count; i++)
    joint->members[i] = sorted[i].member;
  joint->member_count = count;
  free(sorted);
  return status;
}

static int by_creation(const void *a, const void *b) {
  const struct nt_joint *x = a, *y = b;
  if (x->created_ns != y->created_ns)
    return x->created_ns < y->created_ns ? -1 : 1;
  return memcmp(x->id, y->id, sizeof x->id);
}

static int join_views(struct nt_job *job) {
  struct nt_keyed *keyed;
  uint32_t count;
  int status = nt_identify_keys(job, &keyed, &count);
  if (status)
    return status;
  qsort(keyed, count, sizeof *keyed, by_id);
  job->joints = calloc(count ? count : 1, sizeof *job->joints);
  status = job->joints ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0, n; i < count && !status; i += n) {
    for (n = 1; i + n < count && !memcmp(keyed[i].id, keyed[i + n].id, 16);)
      n++;
    status = fill_joint(job, &job->joints[job->joint_count++], &keyed[i], n);
  }
  free(keyed);
  if (!status)
    qsort(job->joints, job->joint_count, sizeof *job->joints, by_creation);
  return status;
}

static int fill_places(struct nt_job *job) {
  const struct nt_model *model = job->model;
  job->places = calloc(model->rank_count ? model->rank_count : 1, sizeof *job->places);
  if (!job->places)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    uint32_t count = model->ranks[i].view_count;
    job->places[i] = malloc((count ? count : 1) * sizeof **job->places);
    if (!job->places[i])
      return -NT_ERR_MEMORY;
    for (uint32_t j = 0; j < count; j++)
      job->places[i][j] = (struct nt_place){NT_NONE, NT_NONE};
  }
  for (uint32_t i = 0; i < job->joint_count; i++)
    for (uint32_t j = 0; j < job->joints[i].member_count; j++) {
      const struct nt_member *member = &job->joints[i].members[j];
      job->places[member->rank][member->view] = (struct nt_place){i, j};
    }
  return 0;
}

struct id_index {
  const uint8_t *id;
  uint32_t joint;
};

static int by_index_id(const void *a, const void *b) {
  return memcmp(((const struct id_index *)a)->id, ((const struct id_index *)b)->id, 16);
}

static int find_parents(struct nt_job *job) {
  struct id_index *index = calloc(job->joint_count ? job->joint_count : 1, sizeof *index);
  if (!index)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < job->joint_count; i++)
    index[i] = (struct id_index){job->joints[i].id, i};
  qsort(index, job->joint_count, sizeof *index, by_index_id);
  for (uint32_t i = 0; i < job->joint_count; i++) {
    struct nt_joint *joint = &job->joints[i];
    uint32_t tells = 0; /* new ranks of a grown one do not know it */
    while (tells + 1 < joint->member_count &&
           is_zero(nt_member_view(job, &joint->members[tells])->parent_id))
      tells++;
    struct id_index key = {nt_member_view(job, &joint->members[tells])->parent_id, 0};
    const struct id_index *found =
        bsearch(&key, index, job->joint_count, sizeof *index, by_index_id);
    if (found && found->joint != i)
      joint->parent = found->joint;
  }
  free(index);
  return 0;
}

/* Own rank in the parent, as far as it is known. */
static int32_t rank_in_parent(const struct nt_job *job, const struct nt_member *member) {
  const struct nt_model_view *view = nt_member_view(job, member);
  if ((int32_t)view->parent_rank >= 0)
    return (int32_t)view->parent_rank;
  const struct nt_member *parent = nt_member_parent(job, member);
  return parent ? parent->comm_rank : -1;
}

/* Of what is made from a communicator whose ranks are known only here: these keep the order of ranks. */
static int32_t derived_rank(const struct nt_model_view *view, int32_t in_parent) {
  const bool keeps = view->origin == NT_COMM_SHRINK || view->origin == NT_COMM_GROW;
  if (in_parent < 0 || view->rank >= 0 || !keeps)
    return view->rank;
  const int32_t below = view->origin == NT_COMM_SHRINK ? nt_excluded_below(view, in_parent) : 0;
  return below < 0 ? -1 : in_parent - below;
}

/* A split does not tell ranks: NCCL orders by key, then by rank in the parent. */
static int number_members(struct nt_job *job, uint32_t index) {
  struct nt_joint *joint = &job->joints[index];
  bool known = true, unknown = true;
  struct sorted_member *sorted = calloc(joint->member_count, sizeof *sorted);
  if (!sorted)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_view *view = nt_member_view(job, &joint->members[i]);
    const int32_t in_parent = rank_in_parent(job, &joint->members[i]);
    sorted[i] = (struct sorted_member){.member = joint->members[i],
                                       .key = view->key,
                                       .parent_rank = (uint32_t)in_parent,
                                       .world = nt_member_rank(job, &joint->members[i])->world};
    sorted[i].member.comm_rank = derived_rank(view, in_parent);
    known &= view->rank >= 0;
    unknown &= sorted[i].member.comm_rank < 0;
  }
  if (!known)
    qsort(sorted, joint->member_count, sizeof *sorted, by_comm_rank);
  for (uint32_t i = 0; i < joint->member_count && !known; i++) {
    joint->members[i] = sorted[i].member;
    if (unknown)
      joint->members[i].comm_rank = (int32_t)i;
    job->places[joint->members[i].rank][joint->members[i].view] = (struct nt_place){index, i};
  }
  free(sorted);
  return 0;
}

static uint32_t count_excluded(const struct nt_model_view *view) {
  uint32_t count = 0;
  for (uint32_t i = 0; view->excluded_count <= NT_EXCLUDED && i < view->excluded_count; i++)
    count += view->excluded[i].count;
  return count;
}

/* Sizes: told by every origin but split, whose size is known when the parent is seen whole, and what is made
 * from one. */
static void find_sizes(struct nt_job *job) {
  for (uint32_t i = 0; i < job->joint_count; i++) {
    struct nt_joint *joint = &job->joints[i];
    const struct nt_joint *parent = joint->parent != NT_NONE ? &job->joints[joint->parent] : NULL;
    const uint32_t excluded = count_excluded(nt_member_view(job, &joint->members[0]));
    if (joint->size < 0 && joint->origin == NT_COMM_SHRINK && parent && parent->size_known &&
        excluded && (int64_t)excluded < parent->size)
      joint->size = parent->size - (int32_t)excluded;
    if (joint->size >= 0) {
      joint->size_known = true;
      joint->absent = (uint32_t)joint->size > joint->member_count
                          ? (uint32_t)joint->size - joint->member_count
                          : 0;
      continue;
    }
    joint->size = (int32_t)joint->member_count;
    joint->size_known = parent && parent->size_known && !parent->absent;
    joint->absent = joint->size_known ? 0 : parent ? parent->absent : 1;
  }
}

/* Communicator ranks that are free between two members must be the candidates between their world
 * ranks, where communicator ranks ascend with world ranks. */
bool nt_identify_absent(const struct nt_job *job, const struct nt_joint *joint,
                        const struct nt_rank_set *candidates, struct nt_rank_set *out) {
  uint32_t expected = job->model->expected > 0 ? (uint32_t)job->model->expected : 0;
  int32_t size = joint->size, last_rank = -1, last_world = -1;
  if (!joint->size_known || expected > NT_RANK_MAX)
    return false;
  for (uint32_t i = 0; i <= joint->member_count; i++) {
    bool end = i == joint->member_count;
    int32_t rank = end ? size : joint->members[i].comm_rank;
    int32_t world = end ? (int32_t)expected : nt_member_rank(job, &joint->members[i])->world;
    int64_t free_ranks = (int64_t)rank - last_rank - 1;
    if (rank <= last_rank || world <= last_world)
      return false;
    if (free_ranks) {
      uint32_t fits = 0;
      for (int32_t w = last_world + 1; w < world; w++)
        if (!candidates || nt_rank_set_has(candidates, (uint32_t)w)) {
          fits++;
          if (nt_rank_set_add(out, (uint32_t)w) < 0)
            return false;
        }
      if (fits != free_ranks)
        return false;
    }
    last_rank = rank;
    last_world = world;
  }
  return true;
}

/* When the world is one communicator, whoever has no trace is in it, whatever the order of ranks. */
static bool absent_by_count(const struct nt_job *job, const struct nt_joint *joint,
                            const struct nt_rank_set *without, struct nt_rank_set *out) {
  if (!joint->size_known || nt_rank_set_count(without) != joint->absent)
    return false;
  if (joint->size != job->model->expected)
    return false;
  for (uint32_t w = nt_rank_set_next(without, 0); w < NT_RANK_MAX;
       w = nt_rank_set_next(without, w + 1))
    if (nt_rank_set_add(out, w) < 0)
      return false;
  return true;
}

static int find_absent(struct nt_job *job) {
  struct nt_rank_set without = {0};
  int status = 0;
  for (int32_t w = 0; w < job->model->expected && w < (int32_t)NT_RANK_MAX && !status; w++)
    if (!nt_model_has(job->model, w))
      status = nt_rank_set_add(&without, (uint32_t)w);
  for (uint32_t i = 0; i < job->joint_count && !status; i++) {
    struct nt_joint *joint = &job->joints[i];
    struct nt_rank_set *absent = &joint->absent_worlds;
    joint->absent_known = !joint->absent;
    if (!joint->absent)
      continue;
    joint->absent_known = absent_by_count(job, joint, &without, absent);
    if (!joint->absent_known) {
      joint->absent_known = nt_identify_absent(job, joint, &without, absent);
      if (!joint->absent_known) {
        nt_rank_set_free(absent);
        continue;
      }
    }
    for (uint32_t w = nt_rank_set_next(absent, 0); w < NT_RANK_MAX && !status;
         w = nt_rank_set_next(absent, w + 1))
      status = nt_rank_set_add(&joint->worlds, w);
  }
  nt_rank_set_free(&without);
  return status;
}

struct by_members {
  const struct nt_joint *joint;
  uint32_t index, number;
};

static int compare_worlds(const struct nt_rank_set *a, const struct nt_rank_set *b) {
  uint32_t x = nt_rank_set_next(a, 0), y = nt_rank_set_next(b, 0);
  while (x == y && x < NT_RANK_MAX) {
    x = nt_rank_set_next(a, x + 1);
    y = nt_rank_set_next(b, y + 1);
  }
  return x < y ? -1 : x > y;
}

static int by_member_set(const void *a, const void *b) {
  const struct by_members *x = a, *y = b;
  int order = compare_worlds(&x->joint->worlds, &y->joint->worlds);
  if (order)
    return order;
  if (x->joint->members[0].rank == y->joint->members[0].rank && x->number != y->number)
    return x->number < y->number ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

int nt_identify_ordinals(struct nt_job *job) {
  struct by_members *sorted = calloc(job->joint_count ? job->joint_count : 1, sizeof *sorted);
  if (!sorted)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < job->joint_count; i++)
    sorted[i] = (struct by_members){&job->joints[i], i,
                                    nt_member_view(job, &job->joints[i].members[0])->number};
  qsort(sorted, job->joint_count, sizeof *sorted, by_member_set);
  for (uint32_t i = 0; i < job->joint_count; i++) {
    bool same = i && !compare_worlds(&sorted[i - 1].joint->worlds, &sorted[i].joint->worlds);
    job->joints[sorted[i].index].ordinal = same ? job->joints[sorted[i - 1].index].ordinal + 1 : 1;
  }
  free(sorted);
  return 0;
}

int nt_identify(const struct nt_model *model, struct nt_job *job) {
  memset(job, 0, sizeof *job);
  job->model = model;
  job->cut_ns = INT64_MAX;
  int status = join_views(job);
  if (!status)
    status = fill_places(job);
  if (!status)
    status = find_parents(job);
  /* In the order of creation: parents first. */
  for (uint32_t i = 0; i < job->joint_count && !status; i++)
    status = number_members(job, i);
  if (status)
    return status;
  find_sizes(job);
  status = nt_identify_peers(job);
  if (!status)
    status = find_absent(job);
  return status ? status : nt_identify_ordinals(job);
}

void nt_job_free(struct nt_job *job) {
  for (uint32_t i = 0; i < job->joint_count; i++) {
    struct nt_joint *joint = &job->joints[i];
    for (uint32_t j = 0; j < joint->member_count; j++) {
      free(joint->members[j].call);
      free(joint->members[j].sig);
    }
    free(joint->members);
    nt_rank_set_free(&joint->worlds);
    nt_rank_set_free(&joint->absent_worlds);
  }
  free(job->joints);
  for (uint32_t i = 0; job->places && i < job->model->rank_count; i++)
    free(job->places[i]);
  free(job->places);
  memset(job, 0, sizeof *job);
}

const struct nt_member *nt_joint_member(const struct nt_joint *joint, int32_t comm_rank) {
  uint32_t low = 0, high = joint->member_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (joint->members[middle].comm_rank < comm_rank)
      low = middle + 1;
    else
      high = middle;
  }
  return low < joint->member_count && joint->members[low].comm_rank == comm_rank
             ? &joint->members[low]
             : NULL;
}

const struct nt_model_call *nt_member_call(const struct nt_job *job, const struct nt_member *member,
                                           uint32_t position) {
  if (position < member->first || position > member->called)
    return NULL;
  uint32_t index = member->call[position - member->first];
  return index == NT_NONE ? NULL : &job->model->ranks[member->rank].calls[index];
}
