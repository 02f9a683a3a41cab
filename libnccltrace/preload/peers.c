/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/peers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "nccl/comm_id.h"
#include "preload/oom.h"
#include "trace/clock.h"

enum {
  ARRIVAL_S = 2, /* from the making of an area until its process holds the lock … */
  LATE_S = 10,   /* … and on a machine that is overloaded */
};

static bool same_job(const struct nt_area_header *a, const struct nt_area_header *b) {
  return a->world_size == b->world_size && a->restart == b->restart &&
         memcmp(a->boot_id, b->boot_id, sizeof(a->boot_id)) == 0 &&
         memcmp(a->run_id, b->run_id, sizeof(a->run_id)) == 0;
}

static bool is_recent(int fd, time_t seconds) {
  struct stat status;
  struct timespec now;
  if (fstat(fd, &status) != 0)
    return false;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec - status.st_mtim.tv_sec <= seconds;
}

void nt_peers_start(struct nt_peers *peers, const char *directory) {
  *peers = (struct nt_peers){.directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC)};
}

bool nt_peers_may_have_come(const struct nt_peers *peers) {
  return is_recent(peers->directory, ARRIVAL_S);
}

static bool known(const struct nt_peers *peers, const char *path) {
  for (unsigned i = 0; i < peers->count; i++)
    if (strcmp(peers->peer[i].area.path, path) == 0)
      return true;
  return false;
}

static bool is_stranger(const struct nt_peers *peers, uint64_t name) {
  for (unsigned i = 0; i < peers->strangers && i < NT_STRANGERS; i++)
    if (peers->stranger[i] == name)
      return true;
  return false;
}

static void note_there(const struct nt_peer *peer, struct nt_area_header *own, uint32_t at) {
  own->peers[at] = (struct nt_peer_note){.pid = peer->area.header->pid,
                                         .world_rank = peer->area.header->world_rank,
                                         .start_time = peer->area.header->start_time};
  atomic_store_explicit(&own->peer_notes, at + 1, memory_order_release);
}

static void note_gone(const struct nt_peer *peer, struct nt_peer_note *note) {
  note->world_rank = peer->area.header->world_rank;
  note->last_beat_ns = atomic_load_explicit(&peer->area.header->heartbeat_ns, memory_order_relaxed);
  note->oom_kills = nt_oom_risen(&peer->area);
  atomic_store_explicit(&note->vanished_ns, nt_clock_ns(CLOCK_REALTIME), memory_order_release);
}

static void meet(struct nt_peers *peers, const char *path, struct nt_area *own) {
  struct nt_peer *peer = &peers->peer[peers->count];
  const uint64_t name = nt_hash(path, strlen(path)).lo;
  if (known(peers, path) || is_stranger(peers, name) || strcmp(path, own->path) == 0 ||
      nt_area_open(path, 0, &peer->area) != 0)
    return;
  const struct nt_area_header *header = peer->area.header;
  const bool ready = atomic_load_explicit(&header->ready, memory_order_acquire);
  const bool ours = same_job(header, own->header);
  if (!ready || !ours || nt_area_is_locked(peer->area.fd) != 1) {
    /* One of ours that nobody holds is of a process that was gone before we looked. */
    if (ready && (!ours || !is_recent(peer->area.fd, LATE_S)))
      peers->stranger[peers->strangers++ % NT_STRANGERS] = name;
    nt_area_close(&peer->area);
    return;
  }
  peer->gone = false;
  note_there(peer, own->header, peers->count++);
}

void nt_peers_discover(struct nt_peers *peers, const char *directory, struct nt_area *own) {
  DIR *dir = opendir(directory);
  if (!dir)
    return;
  for (struct dirent *entry; peers->count < NT_PEER_NOTES && (entry = readdir(dir));) {
    char path[512];
    size_t length = strlen(entry->d_name);
    if (length < 5 || strcmp(entry->d_name + length - 5, ".area") != 0)
      continue;
    int n = snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
    if (n > 0 && (size_t)n < sizeof(own->path))
      meet(peers, path, own);
  }
  closedir(dir);
}

void nt_peers_check(struct nt_peers *peers, struct nt_area *own) {
  for (unsigned i = 0; i < peers->count; i++) {
    struct nt_peer *peer = &peers->peer[i];
    if (peer->gone || nt_area_is_locked(peer->area.fd) != 0)
      continue;
    note_gone(peer, &own->header->peers[i]);
    peer->gone = true;
  }
}
