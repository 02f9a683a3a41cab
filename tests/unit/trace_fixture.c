/* SPDX-License-Identifier: Apache-2.0 */
#include "trace_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "nccl/nccl_api.h"
#include "trace/clock.h"

void fixture_begin(struct fixture *f) {
  memset(f, 0, sizeof *f);
  snprintf(f->root, sizeof f->root, "/dev/shm/nt-test-XXXXXX");
  assert_non_null(mkdtemp(f->root));
  snprintf(f->areas, sizeof f->areas, "%s/areas", f->root);
  snprintf(f->files, sizeof f->files, "%s/files", f->root);
  assert_int_equal(mkdir(f->areas, 0700), 0);
  setenv("NCCLTRACE_SHM", f->areas, 1);
}

static void remove_all(const char *directory) {
  DIR *list = opendir(directory);
  if (list) {
    for (struct dirent *entry; (entry = readdir(list));) {
      char path[700];
      snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
      unlink(path);
    }
    closedir(list);
  }
  rmdir(directory);
}

void fixture_end(struct fixture *f) {
  nt_drain_close(f->drain, false);
  if (f->area.header)
    nt_area_close(&f->area);
  remove_all(f->areas);
  remove_all(f->files);
  remove_all(f->root);
}

void fixture_comm(struct fixture *f, uint32_t slot, uint32_t number) {
  struct nt_comm_slot *comm = &f->area.comms[slot];
  memset((void *)comm, 0, sizeof *comm);
  comm->def.number = number;
  comm->def.nranks = 8;
  comm->def.rank = 3;
  comm->def.origin = NT_COMM_INIT;
  comm->def.enter = nt_clock_ticks(NT_CLOCK_MONOTONIC);
  memset(comm->def.id, (int)number, sizeof comm->def.id);
  snprintf(comm->def.name, sizeof comm->def.name, "comm%u", number);
  atomic_store(&comm->live.state, NT_COMM_LIVE);
}

void fixture_area(struct fixture *f, uint64_t bytes) {
  assert_int_equal(nt_area_create(f->areas, bytes, &f->area), 0);
  assert_true(f->area.path[0] != 0);
  struct nt_area_header *header = f->area.header;
  header->clock_kind = NT_CLOCK_MONOTONIC;
  header->world_rank = 3;
  header->world_size = 8;
  header->local_rank = 3;
  snprintf(header->run_id, sizeof header->run_id, "test-run");
  nt_clock_sync(NT_CLOCK_MONOTONIC, &header->clock_first);
  header->clock_last = header->clock_first;
  atomic_store(&header->heartbeat_ns, header->clock_first.realtime_ns);
  fixture_comm(f, 1, 1);
  atomic_store(&f->area.streams[1].handle, 0x1234);
  f->area.streams[1].number = 1;
  f->area.threads[0].index = 1;
  snprintf(f->area.threads[0].name, 16, "main");
  atomic_store(&f->area.threads[0].tid, (uint32_t)getpid());
  snprintf(f->area.evidence, 64, "host=somewhere\ngpu.0.uuid=GPU-1\nodd line\nempty=\n");
  atomic_store(&header->evidence_length, (uint32_t)strlen(f->area.evidence));
  f->writer.thread = 1;
  f->seq = 0;
  assert_int_equal(nt_area_lock(f->area.fd), 0);
  atomic_store_explicit(&header->ready, 1, memory_order_release);
}

void fixture_drain(struct fixture *f, uint64_t size) {
  struct nt_drain_config config = {.size = size, .keep_attempts = 2};
  struct nt_error err;
  snprintf(config.directory, sizeof config.directory, "%s", f->files);
  if (nt_drain_open(&f->area, &config, &f->drain, &err))
    fail_msg("%s", err.reason);
}

void fixture_record(struct fixture *f, const struct nt_record *what) {
  struct nt_record *record = nt_ring_next(&f->area, &f->writer);
  assert_non_null(record);
  *record = *what;
  nt_ring_publish(&f->writer);
  if (what->result != NT_RESULT_OPEN)
    nt_ring_close(&f->writer);
}

void fixture_call(struct fixture *f, bool open) {
  const uint64_t now = nt_clock_ticks(NT_CLOCK_MONOTONIC);
  const struct nt_record record = {
      .enter = now,
      .duration = open ? 0 : nt_duration_encode(5000),
      .seq = ++f->seq,
      .count = 1024,
      .send = 0x7f0000001000,
      .recv = 0x7f0000002000 + (f->seq % 7) * 4096,
      .peer = -1,
      .launch = f->seq,
      .comm = 1,
      .stream = 1,
      .fn = NT_FN_AllReduce,
      .dtype = 7,
      .result = open ? NT_RESULT_OPEN : 0,
  };
  atomic_fetch_add(&f->area.comms[1].live.collectives, 1);
  atomic_store(&f->area.comms[1].live.last_enter, now);
  fixture_record(f, &record);
}

void fixture_calls(struct fixture *f, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    fixture_call(f, false);
}

void fixture_expect(const char *path, unsigned flags, uint32_t first, uint32_t last, bool open) {
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  if (nt_trace_open(path, flags, &trace, &err))
    fail_msg("%s: %s", path, err.reason);
  for (size_t i = 0; i < nt_trace_warning_count(trace); i++)
    print_message("warning: %s\n", nt_trace_warning_at(trace, i));
  assert_int_equal(nt_trace_warning_count(trace), 0);
  const int64_t count = nt_trace_calls(trace, &calls, &err);
  assert_int_equal(count, last - first + 1);
  for (int64_t i = 0; i < count; i++) {
    const bool is_open = open && i == count - 1;
    assert_int_equal(calls[i].seq, first + (uint32_t)i);
    assert_int_equal(calls[i].fn, NT_FN_AllReduce);
    assert_int_equal(calls[i].comm, 1);
    assert_int_equal(calls[i].stream, 1);
    assert_int_equal(calls[i].thread, 1);
    assert_int_equal(calls[i].peer, -1);
    assert_int_equal(calls[i].count, 1024);
    assert_int_equal(calls[i].recv, 0x7f0000002000 + (calls[i].seq % 7) * 4096);
    assert_int_equal(calls[i].exit_ns == 0, is_open);
    assert_int_equal(calls[i].flags, 0);
    if (i)
      assert_true(calls[i].order > calls[i - 1].order);
  }
  nt_trace_close(trace);
}

void fixture_doomed(struct fixture *f, void (*fn)(struct fixture *f)) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    fn(f);
    kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

bool fixture_find(const char *directory, const char *suffix, char *out, uint64_t size) {
  DIR *list = opendir(directory);
  bool found = false;
  if (!list)
    return false;
  for (struct dirent *entry; !found && (entry = readdir(list));) {
    const size_t length = strlen(entry->d_name), tail = strlen(suffix);
    if (length > tail && !strcmp(entry->d_name + length - tail, suffix)) {
      snprintf(out, size, "%s/%s", directory, entry->d_name);
      found = true;
    }
  }
  closedir(list);
  return found;
}

unsigned char *fixture_load(const char *path, uint64_t *length) {
  const int fd = open(path, O_RDONLY);
  struct stat file;
  assert_true(fd >= 0);
  assert_int_equal(fstat(fd, &file), 0);
  unsigned char *bytes = malloc((size_t)file.st_size + 1);
  assert_non_null(bytes);
  assert_int_equal(read(fd, bytes, (size_t)file.st_size), file.st_size);
  close(fd);
  *length = (uint64_t)file.st_size;
  return bytes;
}

void fixture_store(const char *path, const unsigned char *bytes, uint64_t length) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, bytes, length), (ssize_t)length);
  close(fd);
}

uint64_t fixture_random(void) {
  static uint64_t state = UINT64_C(0x853c49e6748fea9b);
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}
