/* SPDX-License-Identifier: Apache-2.0 */
/* Reading traces: whole, live, torn, damaged and hostile ones. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "emulated.h"
#include "nccl/nccl_api.h"
#include "trace/bytes.h"
#include "trace/format.h"
#include "trace/trace_file.h"
#include "trace_fixture.h"

static int begin(void **state) {
  static struct fixture f;
  fixture_begin(&f);
  *state = &f;
  return 0;
}

static int end(void **state) {
  fixture_end(*state);
  return 0;
}

/* A finished file with `calls` calls and an open one; returns its bytes, *path where they lie. */
static unsigned char *make_file(struct fixture *f, uint32_t calls, char *path, size_t size,
                                uint64_t *length) {
  fixture_area(f, 1 << 20);
  fixture_drain(f, 1 << 20);
  for (uint32_t i = 0; i < calls; i += 100) {
    fixture_calls(f, 100);
    assert_true(nt_drain_tick(f->drain, NT_DRAIN_FLUSH) >= 0);
  }
  assert_int_equal(nt_drain_evidence(f->drain), 0);
  assert_int_equal(nt_drain_evidence(f->drain), 0);
  fixture_call(f, true);
  assert_true(nt_drain_tick(f->drain, NT_DRAIN_FINAL) >= 0);
  unsigned char *bytes = fixture_load(f->area.header->file_path, length);
  snprintf(path, size, "%s/copy.trace", f->files);
  return bytes;
}

static int open_copy(const char *path, struct nt_trace **trace, struct nt_error *err) {
  return nt_trace_open(path, NT_OPEN_NO_AREA, trace, err);
}

/* The calls that were made so far, `count` of them, from the file; valid until *trace is closed. */
static const struct nt_call *read_back(struct fixture *f, int64_t count, struct nt_trace **trace) {
  struct nt_error err;
  const struct nt_call *calls;
  nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
  assert_int_equal(open_copy(f->area.header->file_path, trace, &err), 0);
  assert_int_equal(nt_trace_calls(*trace, &calls, &err), count);
  return calls;
}

static void expect_refusal(const char *path, int code, const char *reason) {
  struct nt_trace *trace;
  struct nt_error err;
  assert_int_equal(open_copy(path, &trace, &err), -code);
  assert_int_equal(err.code, -code);
  assert_null(trace);
  if (!strstr(err.reason, reason))
    fail_msg("\"%s\" does not say \"%s\"", err.reason, reason);
}

static void what_cannot_be_read_is_named(void **state) {
  struct fixture *f = *state;
  char path[200];
  uint64_t length;
  unsigned char *bytes = make_file(f, 100, path, sizeof path, &length);
  expect_refusal("/nowhere/at.all", NT_ERR_IO, "No such file");
  expect_refusal(f->files, NT_ERR_FOREIGN, "regular file");
  fixture_store(path, bytes, 0);
  expect_refusal(path, NT_ERR_TRUNCATED, "empty");
  fixture_store(path, (const unsigned char *)"{\"json\": true}", 14);
  expect_refusal(path, NT_ERR_FOREIGN, "not an NCCL trace");
  fixture_store(path, bytes, 1000);
  expect_refusal(path, NT_ERR_TRUNCATED, "ends after 1000 bytes");
  bytes[NT_SUPER_MAJOR] = 2;
  fixture_store(path, bytes, length);
  expect_refusal(path, NT_ERR_VERSION, "version 2.");
  bytes[NT_SUPER_MAJOR] = 1;
  bytes[NT_SUPER_PID] ^= 1;
  fixture_store(path, bytes, length);
  expect_refusal(path, NT_ERR_CORRUPT, "checksum");
  free(bytes);
}

static void a_trace_tells_about_its_process(void **state) {
  struct fixture *f = *state;
  char path[200];
  uint64_t length;
  free(make_file(f, 100, path, sizeof path, &length));
  struct nt_trace *trace;
  struct nt_error err;
  assert_int_equal(nt_trace_open(f->area.header->file_path, 0, &trace, &err), 0);
  const struct nt_process_info *info = nt_trace_process(trace);
  assert_int_equal(info->world_rank, 3);
  assert_int_equal(info->world_size, 8);
  assert_int_equal(info->pid, getpid());
  assert_string_equal(info->run_id, "test-run");
  assert_string_equal(info->host, f->area.header->host);
  assert_int_equal(info->state, NT_PROCESS_RUNNING);
  assert_true(info->live && info->from_area && info->from_file);
  assert_int_equal(info->calls, 101);
  assert_string_equal(nt_trace_evidence(trace, "host"), "somewhere");
  assert_string_equal(nt_trace_evidence(trace, "empty"), "");
  assert_null(nt_trace_evidence(trace, "odd line"));
  assert_null(nt_trace_comm_by_number(trace, 2));
  assert_int_equal(nt_trace_comm_by_number(trace, 1)->collectives, 101);
  assert_int_equal(nt_trace_comm_at(trace, 0)->def.rank, 3);
  nt_trace_close(trace);
}

static void how_a_process_left_is_known(void **state) {
  struct fixture *f = *state;
  char path[200];
  uint64_t length;
  atomic_int keep = 0;
  (void)keep;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 1 << 20);
  f->area.header->start_time = 1; /* a process of that pid that is long gone */
  nt_drain_close(f->drain, false);
  fixture_drain(f, 1 << 20);
  nt_drain_tick(f->drain, NT_DRAIN_FINAL);
  struct nt_trace *trace;
  struct nt_error err;
  assert_int_equal(open_copy(f->area.header->file_path, &trace, &err), 0);
  assert_int_equal(nt_trace_process(trace)->state, NT_PROCESS_VANISHED);
  nt_trace_close(trace);
  atomic_store(&f->area.header->exit_code, 7);
  atomic_store(&f->area.header->exit_ns, 12345);
  atomic_store(&f->area.header->run_state, NT_RUN_EXITING);
  nt_drain_tick(f->drain, NT_DRAIN_FINAL);
  assert_int_equal(open_copy(f->area.header->file_path, &trace, &err), 0);
  assert_int_equal(nt_trace_process(trace)->state, NT_PROCESS_EXITED);
  assert_int_equal(nt_trace_process(trace)->exit_code, 7);
  assert_int_equal(nt_trace_process(trace)->exit_ns, 12345);
  nt_trace_close(trace);
  /* Another node: what was written last is all there is. */
  atomic_store(&f->area.header->run_state, NT_RUN_RUNNING);
  memset(f->area.header->boot_id, 'x', 36);
  nt_drain_close(f->drain, false);
  fixture_drain(f, 1 << 20);
  nt_drain_tick(f->drain, NT_DRAIN_FINAL);
  assert_int_equal(open_copy(f->area.header->file_path, &trace, &err), 0);
  assert_int_equal(nt_trace_process(trace)->state, NT_PROCESS_UNKNOWN);
  nt_trace_close(trace);
  (void)path;
  (void)length;
}

static void a_stopped_process_is_seen_to_be(void **state) {
  SKIP_IF_EMULATED("the start time in the emulator is not the one that others see");
  struct fixture *f = *state;
  int ready[2];
  char byte, file[700];
  assert_int_equal(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    fixture_area(f, 1 << 20);
    fixture_drain(f, 1 << 20);
    fixture_calls(f, 3);
    nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
    (void)!write(ready[1], "x", 1);
    for (;;)
      pause();
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  kill(child, SIGSTOP);
  int status;
  waitpid(child, &status, WUNTRACED);
  assert_true(fixture_find(f->files, ".trace", file, sizeof file));
  struct nt_trace *trace;
  struct nt_error err;
  assert_int_equal(nt_trace_open(file, 0, &trace, &err), 0);
  assert_int_equal(nt_trace_process(trace)->state, NT_PROCESS_STOPPED);
  assert_true(nt_trace_process(trace)->live);
  nt_trace_close(trace);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  assert_int_equal(nt_trace_open(file, 0, &trace, &err), 0);
  assert_int_equal(nt_trace_process(trace)->state, NT_PROCESS_VANISHED);
  assert_false(nt_trace_process(trace)->live);
  nt_trace_close(trace);
  close(ready[0]);
  close(ready[1]);
}

/* Reads whatever is left; never crashes, never invents: calls are in order and each once. */
static int64_t read_remains(const char *path, size_t *warnings, bool *refused) {
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  *refused = open_copy(path, &trace, &err) != 0;
  if (*refused) {
    assert_true(err.code < 0 && err.reason[0]);
    return 0;
  }
  const int64_t count = nt_trace_calls(trace, &calls, &err);
  assert_true(count >= 0);
  for (int64_t i = 1; i < count; i++)
    if (calls[i].seq <= calls[i - 1].seq || calls[i].fn != NT_FN_AllReduce)
      fail_msg("call %d after %d", (int)calls[i].seq, (int)calls[i - 1].seq);
  *warnings = nt_trace_warning_count(trace);
  nt_trace_close(trace);
  return count;
}

static void a_file_cut_off_anywhere_gives_what_is_before(void **state) {
  struct fixture *f = *state;
  char path[200];
  uint64_t length;
  unsigned char *bytes = make_file(f, 1000, path, sizeof path, &length);
  int64_t before = 1001;
  size_t warnings = 0;
  bool refused;
  for (uint64_t cut = length; cut > 0; cut = cut > length - 4000 ? cut - 7 : cut * 31 / 32) {
    fixture_store(path, bytes, cut);
    const int64_t count = read_remains(path, &warnings, &refused);
    assert_true(count <= before);
    assert_int_equal(refused, cut < NT_SUPER_SIZE);
    if (!refused && cut < length - 64)
      assert_true(warnings > 0 || count <= 1);
    before = count;
  }
  free(bytes);
}

static void a_flipped_byte_costs_one_frame_at_most(void **state) {
  struct fixture *f = *state;
  char path[200];
  uint64_t length;
  unsigned char *bytes = make_file(f, 1000, path, sizeof path, &length);
  size_t warnings = 0;
  bool refused;
  fixture_store(path, bytes, length);
  assert_int_equal(read_remains(path, &warnings, &refused), 1001);
  assert_int_equal(warnings, 0);
  for (int round = 0; round < 600; round++) {
    uint64_t at = fixture_random() % length;
    while (!bytes[at] && round % 8) /* mostly where there is something */
      at = fixture_random() % length;
    bytes[at] ^= (unsigned char)(1 + fixture_random() % 255);
    fixture_store(path, bytes, length);
    const int64_t count = read_remains(path, &warnings, &refused);
    assert_int_equal(refused, at < NT_SUPER_SIZE);
    if (!refused)
      assert_true(count >= 900);
    free(bytes);
    bytes = fixture_load(f->area.header->file_path, &length);
  }
  free(bytes);
}

/* The version of the first frame with calls becomes another one. */
static void change_version(unsigned char *bytes, uint64_t length) {
  for (uint64_t at = NT_SUPER_SIZE; at + NT_FRAME_HEADER <= length; at += NT_FRAME_ALIGN) {
    if (nt_get_u32(bytes + at) != NT_FRAME_MAGIC ||
        nt_get_u16(bytes + at + NT_FRAME_TYPE) != NT_FRAME_CALLS)
      continue;
    bytes[at + NT_FRAME_VERSION] = 1;
    nt_put_u64(bytes + at + NT_FRAME_HEADER_CHECKSUM,
               XXH64(bytes + at, NT_FRAME_HEADER_CHECKSUM, 0));
    return;
  }
  fail_msg("no frame with calls");
}

static void calls_of_another_version_are_left_out_and_told_of(void **state) {
  struct fixture *f = *state;
  char path[200];
  uint64_t length;
  unsigned char *bytes = make_file(f, 300, path, sizeof path, &length);
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  change_version(bytes, length);
  fixture_store(path, bytes, length);
  free(bytes);
  assert_int_equal(open_copy(path, &trace, &err), 0);
  assert_int_equal(nt_trace_calls(trace, &calls, &err), 201);
  assert_int_equal(calls[0].seq, 101);
  assert_int_equal(nt_trace_warning_count(trace), 1);
  assert_non_null(strstr(nt_trace_warning_at(trace, 0), "(version 1), 100 calls skipped"));
  nt_trace_close(trace);
}

static void either_state_slot_may_be_torn(void **state) {
  struct fixture *f = *state;
  char path[200];
  uint64_t length, offset;
  uint32_t size;
  unsigned char *bytes = make_file(f, 300, path, sizeof path, &length);
  memcpy(&offset, bytes + NT_SUPER_STATE_OFFSET, 8);
  memcpy(&size, bytes + NT_SUPER_STATE_SIZE, 4);
  for (int torn = 1; torn < 4; torn++) {
    unsigned char *copy = malloc(length);
    memcpy(copy, bytes, length);
    for (int slot = 0; slot < 2; slot++)
      if (torn >> slot & 1)
        memset(copy + offset + (uint64_t)slot * size + 80, 0xee, 100);
    fixture_store(path, copy, length);
    free(copy);
    struct nt_trace *trace;
    struct nt_error err;
    const struct nt_call *calls;
    assert_int_equal(open_copy(path, &trace, &err), 0);
    assert_int_equal(nt_trace_warning_count(trace), 1);
    assert_int_equal(nt_trace_comm_count(trace), 1); /* the segment has the definition too */
    const int64_t count = nt_trace_calls(trace, &calls, &err);
    assert_true(count == 300 || count == 301);
    nt_trace_close(trace);
  }
  free(bytes);
}

static void either_evidence_copy_may_be_torn(void **state) {
  struct fixture *f = *state;
  char path[200];
  uint64_t length, offset;
  uint32_t size;
  unsigned char *bytes = make_file(f, 100, path, sizeof path, &length);
  memcpy(&offset, bytes + NT_SUPER_EVIDENCE_OFFSET, 8);
  memcpy(&size, bytes + NT_SUPER_EVIDENCE_SIZE, 4);
  for (int torn = 0; torn < 2; torn++) {
    unsigned char *copy = malloc(length);
    memcpy(copy, bytes, length);
    copy[offset + (uint64_t)torn * size + 70] ^= 1;
    fixture_store(path, copy, length);
    free(copy);
    struct nt_trace *trace;
    struct nt_error err;
    assert_int_equal(open_copy(path, &trace, &err), 0);
    assert_string_equal(nt_trace_evidence(trace, "gpu.0.uuid"), "GPU-1");
    assert_int_equal(nt_trace_warning_count(trace), 1);
    nt_trace_close(trace);
  }
  free(bytes);
}

/* A failed group's members are void, the same group number of 65535 groups later is another group. */
static void a_failed_group_voids_its_members(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 1 << 20);
  static const struct {
    uint8_t fn, result;
    uint16_t group;
  } made[] = {
      {NT_FN_AllReduce, 0, 0},    {NT_FN_GroupStart, 0, 0}, {NT_FN_Send, 0, 65535},
      {NT_FN_GroupEnd, 0, 65535}, {NT_FN_Send, 0, 1},       {NT_FN_Recv, 0, 1},
      {NT_FN_GroupEnd, 5, 1},     {NT_FN_AllReduce, 0, 0},  {NT_FN_Send, 0, 2},
      {NT_FN_GroupEnd, 7, 2},
  };
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
    const struct nt_record record = {.enter = 1000000 * (i + 1),
                                     .comm = 1,
                                     .fn = made[i].fn,
                                     .result = made[i].result,
                                     .group = made[i].group};
    fixture_record(f, &record);
  }
  struct nt_trace *trace;
  const struct nt_call *calls = read_back(f, 10, &trace);
  for (int i = 0; i < 10; i++)
    assert_int_equal(calls[i].flags & NT_CALL_VOID, i == 4 || i == 5 ? NT_CALL_VOID : 0);
  assert_int_equal(calls[3].group, 65535);
  assert_int_equal(calls[4].group, 65536);
  assert_int_equal(calls[8].group, 65537);
  nt_trace_close(trace);
}

/* The second copy of the state is written first: where it is not there, a newer one than the first may have been. */
static void a_file_that_ends_in_its_state_is_no_news(void **state) {
  struct fixture *f = *state;
  char path[700];
  uint64_t length;
  unsigned char *bytes = make_file(f, 300, path, sizeof path, &length);
  struct nt_super super;
  struct nt_error err;
  struct nt_trace *trace;
  assert_int_equal(nt_super_parse(bytes, length, &super, &err), 0);
  const uint64_t second = super.layout.state_offset + super.layout.state_size;
  assert_true(second < length);
  for (int cut = 0; cut < 2; cut++) {
    fixture_store(path, bytes, cut ? second : length);
    assert_int_equal(open_copy(path, &trace, &err), 0);
    assert_int_equal(nt_trace_process(trace)->aged, cut);
    assert_int_equal(nt_trace_warning_count(trace) != 0, cut);
    nt_trace_close(trace);
  }
  free(bytes);
}

static void write_until_killed(struct fixture *f, int ready) {
  fixture_area(f, 1 << 20);
  fixture_drain(f, 2 << 20);
  for (;;) {
    for (int i = 0; i < 40; i++) {
      fixture_calls(f, 13);
      usleep(50);
    }
    nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
    if (ready >= 0)
      (void)!write(ready, "x", 1);
    ready = -1;
  }
}

static void a_live_trace_has_no_gap_and_no_double(void **state) {
  struct fixture *f = *state;
  int ready[2];
  char byte, file[700];
  uint32_t newest = 0;
  assert_int_equal(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0)
    write_until_killed(f, ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  assert_true(fixture_find(f->files, ".trace", file, sizeof file));
  for (int round = 0; round < 60; round++) {
    struct nt_trace *trace;
    struct nt_error err;
    const struct nt_call *calls;
    assert_int_equal(nt_trace_open(file, 0, &trace, &err), 0);
    assert_true(nt_trace_process(trace)->live);
    const uint32_t counted = nt_trace_comm_by_number(trace, 1)->collectives;
    const int64_t count = nt_trace_calls(trace, &calls, &err);
    assert_true(count > 0);
    for (int64_t i = 1; i < count; i++)
      if (calls[i].seq != calls[i - 1].seq + 1 || calls[i].comm != 1)
        fail_msg("seq %u after %u, comm %u", calls[i].seq, calls[i - 1].seq, calls[i].comm);
    assert_true(calls[count - 1].seq >= newest);
    newest = calls[count - 1].seq;
    assert_true(newest + 300000 > counted);
    nt_trace_close(trace);
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  close(ready[0]);
  close(ready[1]);
}

/* First a whole trace, then one that lacks its last calls, then the whole one again. */
static void what_one_trace_leaves_in_a_room_is_not_seen_in_the_next(void **state) {
  char path[700];
  uint64_t length;
  unsigned char *bytes = make_file(*state, 600, path, sizeof path, &length);
  struct nt_read_room *room = nt_read_room_new();
  assert_non_null(room);
  size_t counts[3];
  for (int turn = 0; turn < 3; turn++) {
    struct nt_trace *trace;
    struct nt_error err;
    const struct nt_call *calls;
    fixture_store(path, bytes, turn == 1 ? length - 2000 : length);
    assert_int_equal(nt_trace_open_in(room, path, NT_OPEN_NO_AREA, &trace, &err), 0);
    const int64_t count = nt_trace_calls(trace, &calls, &err);
    assert_true(count > 0);
    counts[turn] = (size_t)count;
    for (int64_t i = 0; i < count; i++) {
      assert_true(calls[i].seq && calls[i].order);
      assert_true(i == 0 || calls[i].order > calls[i - 1].order);
    }
    nt_trace_close(trace);
  }
  assert_int_equal(counts[0], 601);
  assert_true(counts[1] < counts[0]);
  assert_int_equal(counts[2], counts[0]);
  nt_read_room_free(room);
  free(bytes);
}

/* What NCCL does at once stays done when its group fails. */
static void a_failed_group_voids_nothing_that_took_effect_at_once(void **state) {
  struct fixture *f = *state;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 1 << 20);
  static const struct {
    uint8_t fn;
    bool voided;
  } made[] = {
      {NT_FN_GetUniqueId, false},
      {NT_FN_AllReduce, true},
      {NT_FN_AlltoAll, true},
      {NT_FN_Send, true},
      {NT_FN_CommInitRank, true},
      {NT_FN_CommInitAll, true},
      {NT_FN_CommSplit, true},
      {NT_FN_CommShrink, true},
      {NT_FN_CommGrow, true},
      {NT_FN_CommFinalize, true},
      {NT_FN_CommDestroy, true},
      {NT_FN_CommSuspend, true},
      {NT_FN_CommWindowRegister, true},
      {NT_FN_PutSignal, true},
      {NT_FN_CommGetUniqueId, false},
      {NT_FN_CommGetAsyncError, false},
      {NT_FN_RedOpCreatePreMulSum, false},
      {NT_FN_RedOpDestroy, false},
      {NT_FN_CommRegister, false},
      {NT_FN_CommDeregister, false},
      {NT_FN_cudaEventRecord, false},
      {NT_FN_cudaStreamSynchronize, false},
      {NT_FN_CommRevoke, false},
      {NT_FN_CommAbort, false},
  };
  enum { MADE = sizeof made / sizeof *made };
  for (size_t i = 0; i <= MADE; i++) {
    const struct nt_record record = {.enter = 1000000 * (i + 1),
                                     .comm = 1,
                                     .fn = i < MADE ? made[i].fn : NT_FN_GroupEnd,
                                     .result = i < MADE ? 0 : 5,
                                     .group = 1};
    fixture_record(f, &record);
  }
  struct nt_trace *trace;
  const struct nt_call *calls = read_back(f, MADE + 1, &trace);
  for (size_t i = 0; i < MADE; i++)
    if (!(calls[i].flags & NT_CALL_VOID) == made[i].voided)
      fail_msg("%s in a failed group is%s void", nt_fn_name(made[i].fn),
               made[i].voided ? " not" : "");
  nt_trace_close(trace);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(what_one_trace_leaves_in_a_room_is_not_seen_in_the_next),
      TEST(what_cannot_be_read_is_named),
      TEST(a_trace_tells_about_its_process),
      TEST(how_a_process_left_is_known),
      TEST(a_stopped_process_is_seen_to_be),
      TEST(a_file_cut_off_anywhere_gives_what_is_before),
      TEST(a_flipped_byte_costs_one_frame_at_most),
      TEST(calls_of_another_version_are_left_out_and_told_of),
      TEST(either_state_slot_may_be_torn),
      TEST(either_evidence_copy_may_be_torn),
      TEST(a_failed_group_voids_its_members),
      TEST(a_failed_group_voids_nothing_that_took_effect_at_once),
      TEST(a_live_trace_has_no_gap_and_no_double),
      TEST(a_file_that_ends_in_its_state_is_no_news),
  };
  return cmocka_run_group_tests_name("reader", tests, NULL, NULL);
}
