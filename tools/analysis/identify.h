/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which views of which ranks are one communicator, and who its members are.
 *
 * A communicator of the whole job is called a *joint* here, to tell it from one rank's view of it.
 * Pointers and names identify nothing across ranks: the 128-bit id does. A member without a trace
 * is a communicator rank until it can be nothing but one particular world rank.
 */
#ifndef NT_IDENTIFY_H
#define NT_IDENTIFY_H

#include "analysis/model.h"
#include "cli/rank_set.h"

struct nt_member {
  uint32_t rank; /* index into model->ranks */
  uint32_t view;
  int32_t comm_rank;
  /* filled by nt_sequences_build */
  uint32_t called;      /* position of its last collective, 0 if none */
  uint32_t first;       /* first position whose call is known; called + 1 if none is */
  uint32_t *call;       /* index into the rank's calls by position - first, NT_NONE for a gap */
  uint64_t *sig;        /* signature, 0 for a gap */
  uint32_t create_call; /* the init, shrink or grow that made the view, NT_NONE */
  uint32_t splits;      /* ordinal of its last split or growth of this communicator */
  uint32_t split_call;
  uint32_t syncs; /* of its last suspend or resume */
  uint32_t sync_call;
  int64_t
      ended_ns; /* when it entered the first abort, revoke, finalize or destroy; 0 if it did not */
  uint8_t ended_fn;
  uint32_t ended_call;
};

struct nt_joint {
  uint8_t id[16], uid_hash[16];
  const char *name; /* of a view; "" if none */
  uint32_t ordinal; /* among the joints with exactly these members, from 1 */
  int32_t size;     /* as far as known */
  uint16_t origin;
  uint32_t parent;           /* index of a joint, NT_NONE */
  uint32_t absent;           /* members without a trace; an upper bound unless size_known */
  bool size_known;           /* false: a split of a communicator with absent members */
  bool numbered;             /* the members' ranks are known, though the size may not be */
  bool absent_known;         /* absent_worlds names all of them */
  struct nt_rank_set worlds; /* members with a trace, and those absent that are known */
  struct nt_rank_set absent_worlds;
  struct nt_member *members; /* by communicator rank */
  uint32_t member_count;
  int64_t created_ns; /* the earliest */
};

struct nt_place {
  uint32_t joint, member; /* NT_NONE for a view of unknown identity */
};

struct nt_job {
  const struct nt_model *model;
  struct nt_joint *joints;
  uint32_t joint_count;
  struct nt_place **places; /* by rank and view */
  int64_t cut_ns; /* calls that began later are not looked at; INT64_MAX: none are left out */
  uint32_t unknown_views; /* their creation was not seen */
};

/* Joins the views. Returns 0 or a negative enum nt_err; free the job either way. */
int nt_identify(const struct nt_model *model, struct nt_job *job);
void nt_job_free(struct nt_job *job);

/* World ranks that must be the members that `joint` lacks, given that they are in `candidates` (NULL:
 * any rank of the world). Adds them to `out` and returns true only if nothing else fits. */
bool nt_identify_absent(const struct nt_job *job, const struct nt_joint *joint,
                        const struct nt_rank_set *candidates, struct nt_rank_set *out);

/* Counts the joints with equal members, once these are known. Returns 0 or a negative enum nt_err. */
int nt_identify_ordinals(struct nt_job *job);

/* Member of `joint` with this communicator rank, NULL if it has no trace. */
const struct nt_member *nt_joint_member(const struct nt_joint *joint, int32_t comm_rank);

static inline const struct nt_model_rank *nt_member_rank(const struct nt_job *job,
                                                         const struct nt_member *member) {
  return &job->model->ranks[member->rank];
}

static inline const struct nt_model_view *nt_member_view(const struct nt_job *job,
                                                         const struct nt_member *member) {
  return &job->model->ranks[member->rank].views[member->view];
}

/* The same rank's part in the communicator from which it was made; NULL if that is not known. */
const struct nt_member *nt_member_parent(const struct nt_job *job, const struct nt_member *member);
/* A shrink left this rank of the parent out. */
bool nt_is_excluded(const struct nt_model_view *view, int32_t rank);

/* The call at a position, NULL if it is not known. */
const struct nt_model_call *nt_member_call(const struct nt_job *job, const struct nt_member *member,
                                           uint32_t position);

#endif
