/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicator creations that do not complete.
 *
 * Ranks that pass one unique id, with one size, form one joint; what keeps a creation from completing
 * often splits it into several: other sizes or other ids on some ranks. They are put together here.
 */
#ifndef NT_CREATION_H
#define NT_CREATION_H

#include "analysis/identify.h"

enum nt_creation_problem {
  NT_CREATION_MISSING,   /* some ranks never called */
  NT_CREATION_SIZE,      /* other sizes with the same id */
  NT_CREATION_DUPLICATE, /* one communicator rank twice */
  NT_CREATION_EXTRA,     /* a rank outside the size */
  NT_CREATION_IDS,       /* other unique ids on some ranks */
  NT_CREATION_REFUSED,   /* NCCL returned an error, and nothing above explains it */
};

struct nt_creator {
  uint32_t rank, call; /* index of the creating call, NT_NONE if it is gone */
  uint32_t joint;
  int32_t comm_rank, nranks, world;
  int64_t enter_ns;
  bool open, refused;
};

struct nt_creation {
  enum nt_creation_problem problem;
  struct nt_creator *creators; /* by joint, communicator rank and world rank */
  uint32_t creator_count;
  uint32_t joint; /* of most of them */
  int32_t size;
  struct nt_rank_set blame;   /* world ranks; empty if it cannot be told */
  struct nt_rank_set missing; /* MISSING: world ranks that must be the others */
  bool missing_known, decided;
  bool guessed; /* `missing` fits, as far as it matters, all that is known (creation_absent.c) */
  int64_t since_ns;
};

struct nt_creations {
  struct nt_creation *list;
  uint32_t count;
};

/* The call began to create a non-blocking communicator, which has not been seen ready or in use, though it may have
 * been aborted since. */
bool nt_creation_in_progress(const struct nt_job *job, uint32_t rank, uint32_t call);

/* Creations by unique id that had not completed at the cut. Returns 0 or a negative enum nt_err; free the
 * result either way. */
int nt_creations_find(const struct nt_job *job, struct nt_creations *out);
/* Whom creations wait for that lack one member each, where the place of the free rank alone does not tell: what
 * fits all of them. Part of nt_creations_find. */
int nt_creations_guess(const struct nt_job *job, struct nt_creations *creations);
/* Lets the communicators that were to be made have all their members, and counts them anew. */
int nt_creations_complete(struct nt_job *job, const struct nt_creations *creations);
void nt_creations_free(struct nt_creations *creations);

#endif
