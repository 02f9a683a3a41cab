/* SPDX-License-Identifier: Apache-2.0 */
/* docs/FORMAT.md says the same as the code: each row of its tables is compared with a constant or an offset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace/area.h"
#include "trace/codec_model.h"
#include "trace/format.h"
#include "trace/mark_codec.h"
#include "trace/record.h"
#include "trace/stack_frames.h"

struct row {
  const char *name;
  unsigned long offset, size;
};

/* Rows `| N | M | `name` | …` of the section "### title", in order. With size_first, the number and the
 * name come first. */
static size_t parse(const char *title, bool has_size, struct row *out, size_t room) {
  static char names[256][32];
  static size_t used;
  FILE *file = fopen("docs/FORMAT.md", "r");
  char line[1024], heading[128];
  bool inside = false;
  size_t count = 0;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "### %127[^\n]", heading) == 1 || sscanf(line, "## %127[^\n]", heading) == 1)
      inside = !strcmp(heading, title);
    unsigned long first, second = 0;
    char name[32];
    const int got = has_size ? sscanf(line, "| %lu | %lu | `%31[^`]`", &first, &second, name) - 1
                             : sscanf(line, "| %lu | `%31[^`]`", &first, name);
    if (!inside || got != 2)
      continue;
    assert_true(count < room && used < 256);
    strcpy(names[used], name);
    out[count++] = (struct row){names[used++], first, second};
  }
  fclose(file);
  return count;
}

static void compare(const char *title, bool has_size, const struct row *want, size_t count) {
  struct row rows[64];
  const size_t got = parse(title, has_size, rows, 64);
  for (size_t i = 0; i < got && i < count; i++) {
    if (strcmp(rows[i].name, want[i].name) != 0 || rows[i].offset != want[i].offset ||
        (has_size && want[i].size && rows[i].size != want[i].size))
      fail_msg("%s: the document has %s at %lu (%lu bytes), the code %s at %lu (%lu)", title,
               rows[i].name, rows[i].offset, rows[i].size, want[i].name, want[i].offset,
               want[i].size);
  }
  if (got != count)
    fail_msg("%s: %zu rows in the document, %zu in the code", title, got, count);
}

#define COMPARE(title, want) compare(title, true, want, sizeof(want) / sizeof *(want))
#define FIELD(type, name)                                                                          \
  { #name, offsetof(struct type, name), sizeof(((struct type *)0)->name) }

static void the_superblock_is_as_documented(void **state) {
  (void)state;
#define F(name, size)                                                                              \
  { #name, NT_SUPER_##name, size }
  static const struct row want[] = {
      F(MAGIC, 8),
      F(MAJOR, 2),
      F(MINOR, 2),
      F(HEADER_SIZE, 4),
      F(EVIDENCE_OFFSET, 8),
      F(EVIDENCE_SIZE, 4),
      F(EVIDENCE_COUNT, 4),
      F(STATE_OFFSET, 8),
      F(STATE_SIZE, 4),
      F(STATE_COUNT, 4),
      F(SEGMENT_OFFSET, 8),
      F(SEGMENT_SIZE, 8),
      F(SEGMENT_COUNT, 4),
      F(CLOCK_KIND, 4),
      F(PID, 4),
      F(UID, 4),
      F(START_TIME, 8),
      F(PID_NS, 8),
      F(NONCE, 8),
      F(CLOCK_FIRST, 24),
      F(WORLD_RANK, 4),
      F(WORLD_SIZE, 4),
      F(LOCAL_RANK, 4),
      F(RESTART, 4),
      F(BOOT_ID, 40),
      F(HOST, 64),
      F(RUN_ID, 64),
      F(WRITER, 32),
      F(DIGEST, 8),
      F(DIGEST_LEFT_OUT, 8),
      F(DIGEST_OOM, 8),
      F(DIGEST_STATE, 4),
      F(DIGEST_FLAGS, 4),
      F(CHECKSUM, 8),
  };
#undef F
  COMPARE("superblock", want);
  for (size_t i = 0; i + 2 < sizeof want / sizeof *want; i++)
    assert_int_equal(want[i].offset + want[i].size, want[i + 1].offset);
}

static void the_frame_header_is_as_documented(void **state) {
  (void)state;
#define F(name, size)                                                                              \
  { #name, NT_FRAME_##name, size }
  static const struct row want[] = {
      {"MAGIC", 0, 4},       F(TYPE, 2), F(VERSION, 1), F(FLAGS, 1), F(EPOCH, 8), F(STORED, 4),
      F(INDEX, 4),           F(RAW, 4),  F(RECORDS, 4), F(FIRST, 8), F(LAST, 8),  F(CHECKSUM, 8),
      F(HEADER_CHECKSUM, 8),
  };
  COMPARE("frame", want);
  static const struct row types[] = {F(EVIDENCE, 0), F(STATE, 0), F(SEGMENT, 0),
                                     F(DEFS, 0),     F(CALLS, 0), F(STACKS, 0),
                                     F(CODES, 0),    F(GPU, 0),   F(DUMP, 0)};
#undef F
  compare("frame", false, types, sizeof types / sizeof *types);
  assert_int_equal(NT_FRAME_MAGIC, 'N' | 'T' << 8 | 'F' << 16 | 'R' << 24);
  assert_int_equal(NT_FRAME_HEADER, 64);
}

static void stacks_are_as_documented(void **state) {
  (void)state;
#define F(name)                                                                                    \
  { #name, NT_NODE_##name, 4 }
  static const struct row node[] = {F(ID), F(PARENT), F(CODE), F(OFFSET), F(DEPTH)};
#undef F
  COMPARE("stack node", node);
  assert_int_equal(NT_NODE_SIZE, 20);
#define F(name, size)                                                                              \
  { #name, NT_CODE_##name, size }
  static const struct row code[] = {
      F(ID, 4),          F(FIRST_LINE, 4),  F(LINES, 2),        F(FLAGS, 2),
      F(FILE_LENGTH, 4), F(NAME_LENGTH, 4), F(TABLE_LENGTH, 4),
  };
#undef F
  COMPARE("code object", code);
  assert_int_equal(NT_CODE_HEAD, 24);
}

static void gpu_progress_is_as_documented(void **state) {
  (void)state;
#define F(name, size)                                                                              \
  { #name, NT_GPU_FIELD_##name, size }
  static const struct row entry[] = {
      F(STREAM, 4), F(ISSUED, 4),       F(REACHED, 4),       F(FINISHED, 4),
      F(FROZEN, 4), F(FROZEN_AFTER, 4), F(UNMARKED, 4),      F(ERROR, 4),
      F(POLLED, 8), F(FOLLOWED, 4),     F(UNMARKED_LAST, 4),
  };
#undef F
  COMPARE("GPU", entry);
  assert_int_equal(NT_GPU_FIELD_UNMARKED_LAST + 4, NT_ENTRY_GPU_SIZE);
#define F(name)                                                                                    \
  { #name, NT_MARK_COLUMN_##name, 0 }
  static const struct row columns[] = {F(STREAM), F(KIND),       F(FIRST), F(SPAN),
                                       F(BY),     F(NOT_BEFORE), F(TOOK)};
#undef F
  compare("GPU frames", false, columns, sizeof columns / sizeof *columns);
  assert_int_equal(NT_GPU_REACHED, 1);
  assert_int_equal(NT_GPU_FINISHED, 2);
  assert_int_equal(NT_GPU_DURATION, 3);
}

static void dumps_are_as_documented(void **state) {
  (void)state;
#define F(name, size)                                                                              \
  { #name, NT_DUMP_##name, size }
  static const struct row head[] = {F(NUMBER, 4), F(REASON, 4), F(SECTION, 4),
                                    F(ASKED, 4),  F(BEGAN, 8),  F(TAKEN, 8)};
#undef F
#define F(name, size)                                                                              \
  { #name, NT_DUMP_THREAD_##name, size }
  static const struct row thread[] = {F(TID, 4),     F(STATE, 1), F(FLAGS, 1), F(CPU, 8),
                                      F(SYSCALL, 8), F(ARGS, 48), F(NAME, 16), F(WAIT, 64)};
#undef F
#define F(name, size)                                                                              \
  { #name, NT_DUMP_STACK_##name, size }
  static const struct row stack[] = {F(TID, 4), F(KIND, 2), F(FLAGS, 2), F(COUNT, 4)};
#undef F
#define F(name, size)                                                                              \
  { #name, NT_DUMP_FRAME_##name, size }
  static const struct row frame[] = {F(AT, 8), F(FILE, 2), F(NAME, 2)};
#undef F
  COMPARE("DUMP", head);
  COMPARE("DUMP_THREAD", thread);
  COMPARE("DUMP_STACK", stack);
  COMPARE("DUMP_FRAME", frame);
}

static void entries_are_as_documented(void **state) {
  (void)state;
#define F(name)                                                                                    \
  { #name, NT_ENTRY_##name, 0 }
  static const struct row want[] = {
      {"COMM", 1, NT_ENTRY_COMM_SIZE},
      {"STREAM", 2, NT_ENTRY_STREAM_SIZE},
      {"THREAD", 3, NT_ENTRY_THREAD_SIZE},
      {"CLOCK", 4, NT_ENTRY_CLOCK_SIZE},
      {"OPEN", 5, NT_ENTRY_OPEN_SIZE},
      {"PROCESS", 6, NT_ENTRY_PROCESS_SIZE},
      {"PEER", 7, NT_ENTRY_PEER_SIZE},
      {"POSITION", 8, NT_ENTRY_POSITION_SIZE},
      {"GPU", 9, NT_ENTRY_GPU_SIZE},
      {"DUMP", 10, NT_ENTRY_DUMP_SIZE},
      {"DUMP_FACT", 11, 1},
      {"DUMP_THREAD", 12, NT_ENTRY_DUMP_THREAD_SIZE},
      {"DUMP_STACK", 13, NT_DUMP_STACK_HEAD},
  };
#undef F
  FILE *file = fopen("docs/FORMAT.md", "r");
  char line[1024], name[32];
  unsigned long kind, size;
  size_t found = 0;
  bool inside = false;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    if (line[0] == '#')
      inside = !strcmp(line, "## Entries\n");
    if (!inside || sscanf(line, "| %lu | `%31[^`]` | %lu |", &kind, name, &size) != 3)
      continue;
    assert_true(found < sizeof want / sizeof *want);
    assert_string_equal(name, want[found].name);
    assert_int_equal(kind, want[found].offset);
    assert_int_equal(size, want[found++].size);
  }
  fclose(file);
  assert_int_equal(found, sizeof want / sizeof *want);
  assert_int_equal(NT_ENTRY_OPEN, 5);
  assert_int_equal(NT_ENTRY_POSITION, 8);
  assert_int_equal(NT_ENTRY_GPU, 9);
  assert_int_equal(NT_ENTRY_DUMP, 10);
  assert_int_equal(NT_ENTRY_DUMP_STACK, 13);
}

static void structures_are_as_documented(void **state) {
  (void)state;
  static const struct row def[] = {
      FIELD(nt_comm_def, number),
      FIELD(nt_comm_def, parent_number),
      FIELD(nt_comm_def, id),
      FIELD(nt_comm_def, parent_id),
      FIELD(nt_comm_def, uid_hash),
      FIELD(nt_comm_def, rank),
      FIELD(nt_comm_def, nranks),
      FIELD(nt_comm_def, world_rank),
      FIELD(nt_comm_def, device),
      FIELD(nt_comm_def, color),
      FIELD(nt_comm_def, key),
      FIELD(nt_comm_def, ordinal),
      FIELD(nt_comm_def, origin),
      FIELD(nt_comm_def, library),
      FIELD(nt_comm_def, enter),
      FIELD(nt_comm_def, handle),
      FIELD(nt_comm_def, root),
      FIELD(nt_comm_def, name),
      FIELD(nt_comm_def, blocking),
      FIELD(nt_comm_def, parent_rank),
      FIELD(nt_comm_def, excluded_count),
      FIELD(nt_comm_def, reserved1),
      FIELD(nt_comm_def, excluded),
      FIELD(nt_comm_def, reserved),
  };
  static const struct row live[] = {
      FIELD(nt_comm_live, state),       FIELD(nt_comm_live, collectives),
      FIELD(nt_comm_live, sum),         FIELD(nt_comm_live, all_peer),
      FIELD(nt_comm_live, sends),       FIELD(nt_comm_live, recvs),
      FIELD(nt_comm_live, async_error), FIELD(nt_comm_live, last_enter),
      FIELD(nt_comm_live, splits),      FIELD(nt_comm_live, shrinks),
      FIELD(nt_comm_live, syncs),       FIELD(nt_comm_live, reserved),
      FIELD(nt_comm_live, sums),
  };
  static const struct row record[] = {
      FIELD(nt_record, enter),  FIELD(nt_record, duration), FIELD(nt_record, seq),
      FIELD(nt_record, count),  FIELD(nt_record, send),     FIELD(nt_record, recv),
      FIELD(nt_record, peer),   FIELD(nt_record, stack),    FIELD(nt_record, launch),
      FIELD(nt_record, comm),   FIELD(nt_record, stream),   FIELD(nt_record, group),
      FIELD(nt_record, fn),     FIELD(nt_record, dtype),    FIELD(nt_record, op),
      FIELD(nt_record, result), FIELD(nt_record, flags),
  };
  static const struct row peer[] = {
      FIELD(nt_peer_note, pid),          FIELD(nt_peer_note, world_rank),
      FIELD(nt_peer_note, start_time),   FIELD(nt_peer_note, vanished_ns),
      FIELD(nt_peer_note, last_beat_ns), FIELD(nt_peer_note, oom_kills),
      FIELD(nt_peer_note, reserved),
  };
  COMPARE("nt_comm_def", def);
  COMPARE("nt_comm_live", live);
  COMPARE("nt_record", record);
  COMPARE("nt_peer_note", peer);
  assert_int_equal(sizeof(struct nt_peer_note), NT_ENTRY_PEER_SIZE);
}

static void open_calls_and_counters_are_as_documented(void **state) {
  (void)state;
#define F(name, size)                                                                              \
  { #name, NT_OPEN_##name, size }
  static const struct row open[] = {F(SERIAL, 8), F(INDEX, 4),  F(THREAD, 4),
                                    F(COMM, 4),   F(STREAM, 4), F(RECORD, 64)};
#undef F
#define F(name, size)                                                                              \
  { #name, NT_PROCESS_FIELD_##name, size }
  static const struct row process[] = {
      F(HEARTBEAT, 8),  F(HEARTBEAT_MONO, 8), F(EXIT, 8),         F(RUN_STATE, 4),
      F(EXIT_CODE, 4),  F(CALLS, 8),          F(LOST, 8),         F(OVERWRITTEN, 8),
      F(COMMS_LOST, 8), F(ABANDONED, 8),      F(WRITE_ERRORS, 8), F(LAST_ERRNO, 4),
      F(WRITER, 4),     F(GPU_BEAT, 8),       F(OOM_KILLS, 8),    F(PHASE, 4),
  };
#undef F
  COMPARE("OPEN", open);
  COMPARE("PROCESS", process);
}

static void columns_are_as_documented(void **state) {
  (void)state;
#define F(name)                                                                                    \
  { #name, NT_COLUMN_##name, 0 }
  static const struct row want[] = {
      F(TEMPLATE), F(GAP),        F(DURATION),   F(SEQ),         F(SEND),
      F(RECV),     F(STACK),      F(LAUNCH),     F(GROUP),       F(MISSED),
      F(COUNT),    F(SEND_AGAIN), F(RECV_AGAIN), F(T_FN),        F(T_DTYPE),
      F(T_OP),     F(T_FLAGS),    F(T_RESULT),   F(T_COMM),      F(T_STREAM),
      F(T_PEER),   F(T_COUNT),    F(T_IN_GROUP), F(T_SEQ_CLASS), F(T_VARIES),
  };
#undef F
  compare("CALLS", false, want, sizeof want / sizeof *want);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_superblock_is_as_documented),
      cmocka_unit_test(the_frame_header_is_as_documented),
      cmocka_unit_test(stacks_are_as_documented),
      cmocka_unit_test(gpu_progress_is_as_documented),
      cmocka_unit_test(entries_are_as_documented),
      cmocka_unit_test(dumps_are_as_documented),
      cmocka_unit_test(structures_are_as_documented),
      cmocka_unit_test(open_calls_and_counters_are_as_documented),
      cmocka_unit_test(columns_are_as_documented),
  };
  return cmocka_run_group_tests_name("format", tests, NULL, NULL);
}
