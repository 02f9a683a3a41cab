/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the GPU has come, as the gpu thread saw it.
 *
 * Launches are numbered per stream, from 1; a record carries the number of its launch (of its group's
 * launch on that stream). A stream runs in order, so one number says it all: every launch up to `reached`
 * has had its turn (earlier work of the stream is done; the kernel itself may still wait for room), every
 * launch up to `finished` is complete. Both are lower bounds: the truth may be ahead by one poll. The
 * moments of progress go to a small ring of marks, one for each step seen, with the bounds between which
 * it happened; the helper moves them to the file.
 *
 * A launch without marks is seen through its neighbours: what is behind an unfinished one has not had its turn, what is
 * in front of one that was reached is complete. Between `finished` and the next launch with marks nothing is known; which one that is
 * `followed` tells, and where there is none `unmarked_last`.
 *
 * After an abort every hung operation reads as finished, so of the launches that were unfinished when it
 * began nothing more is said: they are (frozen_after, frozen].
 */
#ifndef NT_GPU_AREA_H
#define NT_GPU_AREA_H

#include <stdatomic.h>
#include <stdint.h>

/* One per stream slot, same index. All times are clock ticks (clock.h). */
struct nt_gpu_stream {
  _Atomic uint32_t issued;       /*  0 launches numbered so far */
  _Atomic uint32_t reached;      /*  4 newest launch seen to have had its turn */
  _Atomic uint32_t finished;     /*  8 newest launch seen complete */
  _Atomic uint32_t frozen;       /* 12 newest launch at the last abort, 0 if there was none */
  _Atomic uint32_t unmarked;     /* 16 launches that got no marks (too many outstanding) */
  _Atomic uint32_t error;        /* 20 CUresult that a poll returned, 0 if none */
  _Atomic uint64_t polled;       /* 24 when the stream was last looked at */
  _Atomic uint32_t frozen_after; /* 32 newest launch that was finished at the last abort */
  _Atomic uint32_t followed; /* 36 oldest launch with marks not seen complete, 0: none then. Written
                                       after `finished`: read first, it is never ahead of it */
  _Atomic uint32_t unmarked_last; /* 40 newest launch without marks; call path */
  uint32_t pad;
  uint64_t reserved[2];
};
_Static_assert(sizeof(struct nt_gpu_stream) == 64, "one cache line a stream");

enum nt_gpu_mark_kind {
  NT_GPU_REACHED = 1,
  NT_GPU_FINISHED = 2,
  NT_GPU_DURATION = 3, /* not_before holds nanoseconds from start mark to end mark, exact */
};

/* Launches first…last of a stream made this step between two looks. */
struct nt_gpu_mark {
  uint32_t stream; /*  0 slot in the area; frames hold the stream number instead */
  uint16_t kind;   /*  4 enum nt_gpu_mark_kind */
  uint16_t pad;
  uint32_t first, last;    /*  8 */
  uint64_t not_before, by; /* 16 last look that did not see it, first look that did */
};
_Static_assert(sizeof(struct nt_gpu_mark) == 32, "mark layout");

#endif
