/* SPDX-License-Identifier: Apache-2.0 */
/* Incomplete joints are gathered by unique id, then those that only together are whole by size. */
#include "analysis/creation.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/freeze.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

static int by_place(const void *a, const void *b) {
  const struct nt_creator *x = a, *y = b;
  if (x->joint != y->joint)
    return x->joint < y->joint ? -1 : 1;
  if (x->comm_rank != y->comm_rank)
    return x->comm_rank < y->comm_rank ? -1 : 1;
  return x->world < y->world ? -1 : x->world > y->world;
}

/* A call on it shows that it was made, whatever NCCL was asked since. */
static bool is_used(const struct nt_model_rank *rank, uint32_t view) {
  for (uint32_t i = 0; i < rank->call_count; i++) {
    enum nt_shape shape = nt_fn_shape(rank->calls[i].fn);
    bool operation = nt_fn_is_collective(rank->calls[i].fn) || shape == NT_SHAPE_SEND ||
                     shape == NT_SHAPE_RECV || shape == NT_SHAPE_COMM_SPLIT ||
                     shape == NT_SHAPE_WINDOW || shape == NT_SHAPE_RMA;
    if (rank->calls[i].view == view && operation && nt_call_counts(&rank->calls[i]))
      return true;
  }
  return false;
}

/* It, or the end of its group, has returned, and NCCL goes on with it by itself. */
static bool was_begun(const struct nt_model_rank *rank, uint32_t index) {
  const struct nt_model_call *call = &rank->calls[index];
  if (call->flags & NT_CALL_IN_PROGRESS)
    return true;
  if (!call->group || call->pending)
    return false;
  for (uint32_t i = index + 1; i < rank->call_count && rank->calls[i].thread == call->thread; i++)
    if (nt_fn_shape(rank->calls[i].fn) == NT_SHAPE_GROUP_END)
      return rank->calls[i].flags & NT_CALL_IN_PROGRESS;
  return false;
}

bool nt_creation_in_progress(const struct nt_job *job, uint32_t r, uint32_t index) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  const uint32_t made = nt_call_made(job, r, index);
  if (made == NT_NONE || !was_begun(rank, index))
    return false;
  uint16_t state = rank->views[made].state;
  return (state == NT_COMM_CREATING || state == NT_COMM_ABORTED) && !is_used(rank, made);
}

/* Even if only after the cut. */
static bool has_returned(const struct nt_job *job, const struct nt_member *member) {
  if (member->create_call == NT_NONE)
    return false;
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  const struct nt_model_call *call = &rank->calls[member->create_call];
  return call->exit_ns && !call->result && !call->group && rank->recorder == NT_RECORDER_TRACE &&
         !(call->flags & (NT_CALL_VOID | NT_CALL_IN_PROGRESS | NT_CALL_ABANDONED));
}

/* One creator per member; false if the creation has completed or does not concern us. */
static bool gather_joint(const struct nt_job *job, uint32_t index, struct nt_creation *creation,
                         uint32_t room) {
  const struct nt_joint *joint = &job->joints[index];
  uint32_t before = creation->creator_count;
  bool unfinished = false;
  for (uint32_t i = 0; i < joint->member_count && creation->creator_count < room; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_rank *rank = nt_member_rank(job, member);
    const struct nt_model_view *view = nt_member_view(job, member);
    struct nt_creator creator = {.rank = member->rank,
                                 .call = member->create_call,
                                 .joint = index,
                                 .comm_rank = member->comm_rank,
                                 .nranks = view->nranks >= 0 ? view->nranks : joint->size,
                                 .world = rank->world,
                                 .enter_ns = view->created_ns,
                                 .refused = view->state == NT_COMM_FAILED};
    if (creator.call != NT_NONE) {
      const struct nt_model_call *call = &rank->calls[creator.call];
      if (call->flags & NT_CALL_ABANDONED)
        continue; /* it does not wait there any more */
      creator.enter_ns = call->enter_ns;
      creator.open = nt_call_is_open(job, member->rank, creator.call) ||
                     nt_creation_in_progress(job, member->rank, creator.call);
      creator.refused = !creator.open && (call->flags & NT_CALL_VOID);
    }
    if (creator.call == NT_NONE)
      creator.open = view->state == NT_COMM_CREATING;
    if (creator.enter_ns > job->cut_ns)
      continue;
    creation->creators[creation->creator_count++] = creator;
    unfinished |= creator.open || creator.refused;
    if ((!creator.open && !creator.refused) ||
        has_returned(job, member)) { /* so everybody called */
      creation->creator_count = before;
      return false;
    }
  }
  if (!unfinished)
    creation->creator_count = before;
  return unfinished;
}

static int add_creation(struct nt_creations *out, const struct nt_creation *creation) {
  struct nt_creation *list = realloc(out->list, (out->count + 1) * sizeof *list);
  if (!list)
    return -NT_ERR_MEMORY;
  out->list = list;
  list[out->count++] = *creation;
  return 0;
}

struct use {
  const uint8_t *uid_hash;
  uint32_t ordinal, joint;
};

static int by_use(const void *a, const void *b) {
  const struct use *x = a, *y = b;
  int order = memcmp(x->uid_hash, y->uid_hash, 16);
  if (order)
    return order;
  if (x->ordinal != y->ordinal)
    return x->ordinal < y->ordinal ? -1 : 1;
  return x->joint < y->joint ? -1 : x->joint > y->joint;
}

/* Sorts the joints so that those of one use of a unique id stand together. Returns how many. */
static uint32_t list_uses(const struct nt_job *job, struct use *uses) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < job->joint_count; i++) {
    const struct nt_joint *joint = &job->joints[i];
    if (joint->origin == NT_COMM_INIT)
      uses[count++] =
          (struct use){joint->uid_hash, nt_member_view(job, &joint->members[0])->ordinal, i};
    else if (joint->origin == NT_COMM_SHRINK || joint->origin == NT_COMM_GROW)
      uses[count++] = (struct use){joint->id, 0, i}; /* all agree on the id, or made nothing */
  }
  qsort(uses, count, sizeof *uses, by_use);
  return count;
}

static int by_first_joint(const void *a, const void *b) {
  const struct nt_creation *x = a, *y = b;
  return x->joint < y->joint ? -1 : x->joint > y->joint;
}

static int gather(const struct nt_job *job, struct nt_creations *out) {
  int status = 0;
  struct use *uses = malloc(((size_t)job->joint_count + 1) * sizeof *uses);
  if (!uses)
    return -NT_ERR_MEMORY;
  uint32_t count = list_uses(job, uses);
  for (uint32_t i = 0, n; i < count && !status; i += n) {
    uint32_t room = job->joints[uses[i].joint].member_count;
    for (n = 1; i + n < count && uses[i + n].ordinal == uses[i].ordinal &&
                !memcmp(uses[i + n].uid_hash, uses[i].uid_hash, 16);
         n++)
      room += job->joints[uses[i + n].joint].member_count;
    struct nt_creation creation = {.joint = uses[i].joint, .size = job->joints[uses[i].joint].size};
    creation.creators = calloc(room, sizeof *creation.creators);
    if (!creation.creators) {
      status = -NT_ERR_MEMORY;
      break;
    }
    for (uint32_t j = 0; j < n; j++)
      gather_joint(job, uses[i + j].joint, &creation, room);
    if (creation.creator_count)
      status = add_creation(out, &creation);
    if (!creation.creator_count || status)
      free(creation.creators);
  }
  if (out->count)
    qsort(out->list, out->count, sizeof *out->list, by_first_joint);
  free(uses);
  return status;
}

static bool by_unique_id(const struct nt_job *job, const struct nt_creation *creation) {
  return job->joints[creation->joint].origin == NT_COMM_INIT;
}

static bool has_rank_twice(const struct nt_creation *a, const struct nt_creation *b) {
  for (uint32_t i = 0; i < a->creator_count; i++)
    for (uint32_t j = 0; j < b->creator_count; j++)
      if (a->creators[i].comm_rank == b->creators[j].comm_rank ||
          a->creators[i].rank == b->creators[j].rank)
        return true;
  return false;
}

static bool other_name(const struct nt_job *job, const struct nt_creation *a,
                       const struct nt_creation *b) {
  const char *x = job->joints[a->joint].name, *y = job->joints[b->joint].name;
  return *x && *y && strcmp(x, y);
}

/* All incomplete creations of one size, if together they are exactly whole: one creation with
 * different ids. */
static int merge_ids(const struct nt_job *job, struct nt_creations *out, uint32_t first) {
  struct nt_creation *base = &out->list[first];
  uint32_t total = 0, parts = 0;
  if (!by_unique_id(job, base))
    return 0;
  for (uint32_t i = 0; i < out->count; i++) {
    if (out->list[i].size != base->size || !by_unique_id(job, &out->list[i]))
      continue;
    if (other_name(job, base, &out->list[i]))
      return 0;
    total += out->list[i].creator_count;
    parts++;
    for (uint32_t j = i + 1; j < out->count; j++)
      if (out->list[j].size == base->size && by_unique_id(job, &out->list[j]) &&
          has_rank_twice(&out->list[i], &out->list[j]))
        return 0;
  }
  /* Ranks without a trace may be the rest. */
  if (parts < 2 || (int64_t)total > base->size ||
      (int64_t)total + nt_model_absent(job->model) < base->size)
    return 0;
  struct nt_creator *all = realloc(base->creators, total * sizeof *all);
  if (!all)
    return -NT_ERR_MEMORY;
  base->creators = all;
  uint32_t kept = first + 1;
  for (uint32_t i = first + 1; i < out->count; i++) {
    struct nt_creation *part = &out->list[i];
    if (part->size != base->size || !by_unique_id(job, part)) {
      out->list[kept++] = *part;
      continue;
    }
    memcpy(all + base->creator_count, part->creators, part->creator_count * sizeof *all);
    base->creator_count += part->creator_count;
    free(part->creators);
  }
  out->count = kept;
  base->problem = NT_CREATION_IDS;
  return 0;
}

static int blame_creator(struct nt_creation *creation, const struct nt_creator *creator) {
  return creator->world >= 0 ? nt_rank_set_add(&creation->blame, (uint32_t)creator->world) : 0;
}

/* Blames those that are not in the joint of most; nobody when another joint has as many, or would if the ranks
 * without a trace were in it. */
static int vote_joints(const struct nt_job *job, struct nt_creation *creation) {
  uint32_t best = 0, second = 0, best_joint = creation->creators[0].joint;
  int status = 0;
  for (uint32_t i = 0, n; i < creation->creator_count; i += n) {
    for (n = 1; i + n < creation->creator_count &&
                creation->creators[i + n].joint == creation->creators[i].joint;)
      n++;
    if (n > best) {
      second = best;
      best = n;
      best_joint = creation->creators[i].joint;
    } else if (n > second) {
      second = n;
    }
  }
  const bool unique = (int64_t)best - second > nt_model_absent(job->model);
  creation->decided = unique;
  creation->joint = best_joint;
  for (uint32_t i = 0; i < creation->creator_count && unique && !status; i++)
    if (creation->creators[i].joint != best_joint)
      status = blame_creator(creation, &creation->creators[i]);
  return status;
}

/* Is its place in the order of world ranks its communicator rank? */
static bool keeps_order(const struct nt_creation *creation, const struct nt_creator *self) {
  int64_t below = 0;
  for (uint32_t j = 0; j < creation->creator_count; j++)
    below += creation->creators[j].world < self->world;
  return below == self->comm_rank;
}

/* Does another creator claim the same place, one that keeps the order if `ordered`? */
static bool is_doubled(const struct nt_creation *creation, uint32_t index, bool ordered) {
  const struct nt_creator *self = &creation->creators[index];
  for (uint32_t j = 0; j < creation->creator_count; j++)
    if (j != index && creation->creators[j].comm_rank == self->comm_rank &&
        (!ordered || keeps_order(creation, &creation->creators[j])))
      return true;
  return false;
}

/* Of ranks that claim the same place, those are to blame that break the rule which all the others
 * follow: world ranks ascend with communicator ranks. Both sides, undecided, if that does not tell. */
static int blame_duplicates(struct nt_creation *creation) {
  int status = 0;
  creation->decided = (int64_t)creation->creator_count == creation->size;
  for (uint32_t i = 0; i < creation->creator_count; i++)
    creation->decided &=
        keeps_order(creation, &creation->creators[i]) || is_doubled(creation, i, true);
  for (int pass = creation->decided ? 0 : 1;
       pass < 2 && !nt_rank_set_count(&creation->blame) && !status; pass++) {
    creation->decided = pass == 0;
    for (uint32_t i = 0; i < creation->creator_count && !status; i++)
      if (is_doubled(creation, i, false) &&
          (pass || !keeps_order(creation, &creation->creators[i])))
        status = blame_creator(creation, &creation->creators[i]);
  }
  return status;
}

/* Several GPUs a process, and as many in each: those are to blame that called for fewer of theirs than others. */
static int find_short(const struct nt_job *job, struct nt_creation *creation, bool *found) {
  const uint32_t ranks = job->model->rank_count;
  uint32_t most = 0, processes = 0;
  int status = 0;
  uint32_t *counts = calloc(ranks + 1, sizeof *counts);
  if (!counts)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < creation->creator_count; i++) {
    uint32_t *count = &counts[creation->creators[i].rank];
    processes += !*count;
    most = ++*count > most ? *count : most;
  }
  *found = most > 1 && (int64_t)most * processes == creation->size;
  for (uint32_t r = 0; r < ranks && *found && !status; r++)
    if (counts[r] && counts[r] < most && job->model->ranks[r].world >= 0)
      status = nt_rank_set_add(&creation->missing, (uint32_t)job->model->ranks[r].world);
  creation->guessed = *found;
  free(counts);
  return status;
}

/* Ranks of the parent that should have called as well. Those that come new are known to nobody. */
static int find_missing_of_parent(const struct nt_job *job, struct nt_creation *creation) {
  const struct nt_joint *joint = &job->joints[creation->joint];
  const struct nt_model_view *view = nt_member_view(job, &joint->members[0]);
  struct nt_rank_set called = {0};
  int64_t lack = 0;
  int status = 0;
  if (joint->parent == NT_NONE || view->excluded_count == NT_EXCLUDED_MANY)
    return 0;
  const struct nt_joint *parent = &job->joints[joint->parent];
  for (uint32_t i = 0; i < joint->member_count && !status; i++) {
    const struct nt_member *in_parent = nt_member_parent(job, &joint->members[i]);
    if (in_parent && in_parent->comm_rank >= 0)
      status = nt_rank_set_add(&called, (uint32_t)in_parent->comm_rank);
  }
  for (uint32_t i = 0; i < parent->member_count && !status; i++) {
    const struct nt_member *member = &parent->members[i];
    const int32_t world = nt_member_rank(job, member)->world;
    if (member->comm_rank < 0 || nt_rank_set_has(&called, (uint32_t)member->comm_rank) ||
        nt_is_excluded(view, member->comm_rank) || world < 0)
      continue;
    lack++;
    status = nt_rank_set_add(&creation->missing, (uint32_t)world);
  }
  creation->missing_known = lack + creation->creator_count == creation->size;
  nt_rank_set_free(&called);
  return status;
}

static int find_missing(const struct nt_job *job, struct nt_creation *creation) {
  const struct nt_joint *joint = &job->joints[creation->joint];
  struct nt_rank_set present = {0}, *missing = &creation->missing;
  int status = find_short(job, creation, &creation->missing_known);
  if (!status && !creation->missing_known && !by_unique_id(job, creation)) {
    nt_rank_set_free(missing);
    status = find_missing_of_parent(job, creation);
  }
  if (status || creation->missing_known)
    return status;
  nt_rank_set_free(missing);
  for (uint32_t i = 0; i < creation->creator_count && !status; i++)
    if (creation->creators[i].world >= 0)
      status = nt_rank_set_add(&present, (uint32_t)creation->creators[i].world);
  if (!status && creation->size == job->model->expected) {
    for (int32_t w = 0; w < creation->size && w < (int32_t)NT_RANK_MAX && !status; w++)
      if (!nt_rank_set_has(&present, (uint32_t)w))
        status = nt_rank_set_add(missing, (uint32_t)w);
    creation->missing_known =
        nt_rank_set_count(missing) + creation->creator_count == (uint32_t)creation->size;
  } else if (!status && by_unique_id(job, creation)) {
    creation->missing_known = nt_identify_absent(job, joint, NULL, missing);
  }
  if (!creation->missing_known)
    nt_rank_set_free(missing);
  nt_rank_set_free(&present);
  return status;
}

static int judge(const struct nt_job *job, struct nt_creation *creation) {
  bool sizes = false, doubled = false, outside = false;
  int status = 0;
  qsort(creation->creators, creation->creator_count, sizeof *creation->creators, by_place);
  creation->since_ns = creation->creators[0].enter_ns;
  for (uint32_t i = 0; i < creation->creator_count; i++) {
    const struct nt_creator *self = &creation->creators[i];
    sizes |= self->nranks != creation->creators[0].nranks;
    outside |=
        by_unique_id(job, creation) && (self->comm_rank >= self->nranks || self->comm_rank < 0);
    doubled |= i && self[-1].joint == self->joint && self[-1].comm_rank == self->comm_rank;
    if (self->enter_ns < creation->since_ns)
      creation->since_ns = self->enter_ns;
  }
  if (creation->problem == NT_CREATION_IDS)
    return vote_joints(job, creation);
  creation->problem = sizes     ? NT_CREATION_SIZE
                      : outside ? NT_CREATION_EXTRA
                      : doubled ? NT_CREATION_DUPLICATE
                                : NT_CREATION_MISSING;
  if (sizes)
    return vote_joints(job, creation);
  creation->joint = creation->creators[0].joint;
  if (outside) {
    creation->decided = true;
    for (uint32_t i = 0; i < creation->creator_count && !status; i++)
      if (creation->creators[i].comm_rank >= creation->size || creation->creators[i].comm_rank < 0)
        status = blame_creator(creation, &creation->creators[i]);
    return status;
  }
  if (doubled)
    return blame_duplicates(creation);
  for (uint32_t i = 0; i < creation->creator_count && !status; i++)
    if (creation->creators[i].refused) {
      creation->problem = NT_CREATION_REFUSED;
      creation->decided = true;
      status = blame_creator(creation, &creation->creators[i]);
    }
  return status || creation->problem == NT_CREATION_REFUSED ? status : find_missing(job, creation);
}

/* Nothing is known to be wrong: everybody is there, it has just not returned yet. */
static bool is_complete(const struct nt_creation *creation) {
  return creation->problem == NT_CREATION_MISSING &&
         (int64_t)creation->creator_count >= creation->size;
}

int nt_creations_find(const struct nt_job *job, struct nt_creations *out) {
  memset(out, 0, sizeof *out);
  int status = gather(job, out);
  for (uint32_t i = 0; i < out->count && !status; i++)
    status = merge_ids(job, out, i);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < out->count; i++) {
    if (!status)
      status = judge(job, &out->list[i]);
    if (!status && is_complete(&out->list[i])) {
      free(out->list[i].creators);
      nt_rank_set_free(&out->list[i].blame);
      nt_rank_set_free(&out->list[i].missing);
      continue;
    }
    out->list[kept++] = out->list[i];
  }
  out->count = kept;
  return status ? status : nt_creations_guess(job, out);
}

int nt_creations_complete(struct nt_job *job, const struct nt_creations *creations) {
  int status = 0;
  for (uint32_t i = 0; i < creations->count && !status; i++) {
    const struct nt_creation *creation = &creations->list[i];
    struct nt_rank_set *worlds = &job->joints[creation->joint].worlds;
    for (uint32_t j = 0; j < creation->creator_count && !status; j++)
      if (creation->creators[j].world >= 0 && creation->creators[j].comm_rank < creation->size)
        status = nt_rank_set_add(worlds, (uint32_t)creation->creators[j].world);
    for (uint32_t w = nt_rank_set_next(&creation->missing, 0); w < NT_RANK_MAX && !status;
         w = nt_rank_set_next(&creation->missing, w + 1))
      status = nt_rank_set_add(worlds, w);
  }
  return status || !creations->count ? status : nt_identify_ordinals(job);
}

void nt_creations_free(struct nt_creations *creations) {
  for (uint32_t i = 0; i < creations->count; i++) {
    free(creations->list[i].creators);
    nt_rank_set_free(&creations->list[i].blame);
    nt_rank_set_free(&creations->list[i].missing);
  }
  free(creations->list);
  memset(creations, 0, sizeof *creations);
}
