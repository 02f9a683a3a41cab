/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the ranks of one communicator share: doorbells, connection marks, queues. */
#ifndef SIM_SHM_H
#define SIM_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#define SIM_MAX_SLOTS 32
#define SIM_SIGNALS 8 /* between two ranks */

/* What a slot carries. A receiver takes it only if it waits for just that. */
struct sim_slot {
  uint64_t ordinal;  /* the sender's count of collectives on this communicator */
  uint32_t kind;     /* function and protocol */
  uint32_t is_token; /* "nothing from me in this operation" */
  uint64_t size;
};

/* Single producer, single consumer; head and tail count slots since the beginning. */
struct sim_fifo {
  _Alignas(64) _Atomic uint64_t tail;
  _Alignas(64) _Atomic uint64_t head;
  _Alignas(64) uint32_t slots;
  uint32_t src, dst;
  uint64_t slot_size;
  uint64_t data; /* offset in the mapping */
  struct sim_slot slot[SIM_MAX_SLOTS];
};

enum sim_board {
  SIM_BOARD_SPLIT,
  SIM_BOARD_FINALIZE,
  SIM_BOARD_SYNC,
  SIM_BOARD_WINDOW,
  SIM_BOARD_DEVICE,
  SIM_BOARD_COUNT
};

/* A rank's post for one round of an exchange between all ranks; two rounds alternate. */
struct sim_post {
  _Atomic uint64_t round;
  int64_t value[2];
};

enum { SIM_CONN_RING = 1, SIM_CONN_TREE = 2 };

struct sim_shm_rank {
  _Alignas(64) _Atomic uint32_t bell; /* bumped whenever something happened that concerns it */
  _Atomic uint32_t sleepers;
  _Atomic int pid; /* 0 until the rank has joined */
  _Atomic uint32_t connected;
  struct sim_post post[SIM_BOARD_COUNT][2];
};

struct sim_shm {
  uint64_t size;
  int nranks;
  _Atomic uint32_t joined;
  _Atomic uint32_t broken; /* ranks disagree: nobody will ever get through */
  uint64_t fifos;          /* offset: ring[n], up[n], down[n], p2p[n * n] */
  uint64_t p2p_marks;      /* offset: uint8_t [n * n], see sim_p2p_mark */
  uint64_t signals;        /* offset: uint64_t [n * n * SIM_SIGNALS], see sim_shm_signal */
  struct sim_shm_rank rank[];
};

/* Opens or creates the area named `name` for nranks ranks; NULL with errno on failure. *fd keeps the
 * area from being taken for an orphan. */
struct sim_shm *sim_shm_open(const char *name, int nranks, int *fd);
void sim_shm_unlink(const char *name);
void sim_shm_close(struct sim_shm *shm);

struct sim_fifo *sim_shm_ring(struct sim_shm *shm, int src);
struct sim_fifo *sim_shm_up(struct sim_shm *shm, int child);
struct sim_fifo *sim_shm_down(struct sim_shm *shm, int child);
struct sim_fifo *sim_shm_p2p(struct sim_shm *shm, int src, int dst);
/* Bit 0: the source has asked to connect; bit 1: the destination has. */
_Atomic uint8_t *sim_shm_p2p_mark(struct sim_shm *shm, int src, int dst);

/* How many signals of this kind the source has sent to the destination. */
_Atomic uint64_t *sim_shm_signal(struct sim_shm *shm, int src, int dst, int kind);

/* A file beside the areas, as memory for a window: made by one rank, or opened. -1 with errno on failure. */
int sim_shm_segment(const char *name, size_t size, bool create);

uint32_t sim_shm_bell(struct sim_shm *shm, int rank);
void sim_shm_ring_bell(struct sim_shm *shm, int rank);
void sim_shm_ring_all(struct sim_shm *shm);
/* Sleeps until the rank's bell is no longer `seen`, or for at most ms milliseconds (-1: no limit). */
void sim_shm_sleep(struct sim_shm *shm, int rank, uint32_t seen, int ms);

/* Producer: the next free slot's memory, or NULL if `limit` slots are outstanding. */
void *sim_fifo_reserve(struct sim_shm *shm, struct sim_fifo *f, uint32_t limit);
void sim_fifo_publish(struct sim_shm *shm, struct sim_fifo *f, struct sim_slot what);
/* Consumer: the oldest slot, or NULL; *data is its content until sim_fifo_pop. */
struct sim_slot *sim_fifo_peek(struct sim_shm *shm, struct sim_fifo *f, void **data);
void sim_fifo_pop(struct sim_shm *shm, struct sim_fifo *f);

#endif
