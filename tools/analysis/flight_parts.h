/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of reading dumps of the flight recorder; load_flight_recorder.c and load_source.c call them. */
#ifndef NT_FLIGHT_PARTS_H
#define NT_FLIGHT_PARTS_H

#include "analysis/load_trace.h"
#include "analysis/value_tree.h"

/* What the name of an entry tells. */
struct nt_flight_op {
  uint8_t fn;                  /* NT_FN_NONE: of a kind that is not known here */
  bool end;                    /* closes a coalesced group, and holds the state of all of it */
  int32_t source, destination; /* of a message, in ranks of the group; else -1 */
};
/* "nccl:all_reduce", "nccl:send 0->1", "nccl:coalesced" … */
struct nt_flight_op nt_flight_op(const struct nt_value *profiling_name);

/* How the entry is written in a dump; remembers where its keys stand. */
struct nt_flight_sizes {
  const struct nt_value *input_sizes, *input_types, *output_sizes, *output_types;
};
/* Elements, as NCCL's own call counts them, NT_COUNT_UNKNOWN if they may differ between ranks; and their type, 255 if it
 * is not known. */
uint64_t nt_flight_count(uint8_t fn, const struct nt_flight_sizes *sizes, uint8_t *dtype);

/* A process group as one rank knows it. */
struct nt_flight_group {
  const struct nt_value *name;
  uint32_t view;
  uint32_t last_seq;       /* of its collectives, 0 if there is none */
  uint32_t call, call_seq; /* of the newest collective; NT_NONE if none */
  uint32_t p2p, p2p_seq;   /* first message of the newest group of these; NT_NONE */
  bool any, any_p2p;
  int64_t pg_id; /* -1 if not known */
};

struct nt_flight {
  struct nt_model_rank *rank;
  const struct nt_value *entries, *config, *status;
  struct nt_flight_group *groups;
  uint32_t group_count, group_room, hint;
  uint64_t damaged, unknown; /* entries that cannot be read, or whose kind is not known */
  bool timed;                /* starts of operations were recorded */
};

/* All groups of the configuration. Returns 0 or a negative enum nt_err. */
int nt_flight_groups(struct nt_flight *flight);
/* The one that is named so, made if there is none; NULL when there is no memory. */
struct nt_flight_group *nt_flight_group(struct nt_flight *flight, const struct nt_value *name,
                                        const struct nt_value *description);
/* Collectives of groups that have no entry, from what the dump says of each group's newest operation. */
void nt_flight_status(struct nt_flight *flight);
/* Own rank in the world: by the file's name, and where that has no number by what the dump tells; -1. */
int32_t nt_flight_world(const char *source, const struct nt_flight *flight);

/* Removes dumps of other runs and moments, with a note. Returns 0 or -NT_ERR_MEMORY. */
int nt_flight_keep_newest(struct nt_model *model);

/* Once all dumps are loaded: numbers of messages, sizes that no dump tells, and how far groups came of which a dump
 * holds no entry; dumps of other runs are left out. Returns 0 or a negative enum nt_err. */
int nt_flight_settle(struct nt_model *model);

#endif
