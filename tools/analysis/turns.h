/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turns of a rank: what it does over and over, and whether it left something out of the last one.
 *
 * Its collectives, messages and launches of graphs are taken in the order it made them. Two whole equal turns in
 * front of the point in question are needed, and the whole of what it did since must be told by one story: the turns
 * go on, or they do once some steps in a row are put in.
 */
#ifndef NT_TURNS_H
#define NT_TURNS_H

#include "analysis/replays.h"

enum nt_turn_story {
  NT_TURN_UNTOLD,   /* no such turns, or more than one thing differs */
  NT_TURN_KEPT,     /* as before, up to the last call */
  NT_TURN_LEFT_OUT, /* as before once the steps are put in */
  NT_TURN_ADDED, /* as before but for steps in a row that are new in this place (nt_turn_since) */
};

/* A step that was left out. */
struct nt_turn_step {
  uint64_t kind; /* foretell.h */
  uint32_t seq;  /* which of its communicator or queue it would have been, as the rank counts */
};

enum { NT_TURN_STEPS = 16, NT_TURN_JOINTS = 8 };
struct nt_turn {
  enum nt_turn_story story;
  uint32_t length; /* calls of one turn */
  uint32_t on_joint
      [NT_TURN_JOINTS]; /* of these, collectives and launches on a joint that was asked for */
  struct nt_turn_step left_out[NT_TURN_STEPS];
  uint32_t left_out_count;
  int64_t at_ns; /* when the rank made the call that should have come after them */
};

/* All launches of graphs on one communicator; other kinds: foretell.h. */
uint64_t nt_kind_launch(uint32_t joint);

/* Up to the cut; at most NT_TURN_JOINTS joints are asked for. Returns 0 or -NT_ERR_MEMORY. */
int nt_turn_of(const struct nt_job *job, const struct nt_replays *replays, uint32_t rank,
               const uint32_t *joints, uint32_t joint_count, struct nt_turn *out);

/* One turn is what it called after `first_ns`, up to `second_ns`, the present one what it called since. That is told line
 * by line against the one before, and untold where it departs from that as once before. */
int nt_turn_since(const struct nt_job *job, const struct nt_replays *replays, uint32_t rank,
                  int64_t first_ns, int64_t second_ns, struct nt_turn *out);

#endif
