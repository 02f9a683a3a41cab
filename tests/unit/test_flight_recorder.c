/* SPDX-License-Identifier: Apache-2.0 */
/* What of a flight recorder's dump comes into the model, on JSON written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/flight_parts.h"
#include "analysis/load_flight_recorder.h"
#include "analysis/load_source.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

static struct nt_trace_loader loader;

/* Loads a dump whose entries are given, of a group of all four ranks and one of two. */
static struct nt_model_rank *load(int rank, const char *entries, const char *status) {
  char *text, source[32];
  struct nt_error error = {0};
  assert_true(
      asprintf(&text,
               "{\"version\": \"2.10\", \"comm_lib_version\": \"2.28.9\", \"pg_config\": {"
               "\"0\": {\"name\": \"0\", \"desc\": \"default_pg\", \"ranks\": \"[0, 1, 2, 3]\"},"
               "\"7\": {\"name\": \"7\", \"desc\": \"pair\", \"ranks\": \"[3, 1]\"}},"
               "\"pg_status\": {%s}, \"entries\": [%s]}",
               status, entries) > 0);
  snprintf(source, sizeof source, "no such/dump_%d", rank);
  int result =
      nt_load_flight_recorder(&loader, source, (const uint8_t *)text, strlen(text), &error);
  free(text);
  assert_int_equal(result, 0);
  return &loader.model.ranks[loader.model.rank_count - 1];
}

static int forget(void **state) {
  (void)state;
  nt_trace_loader_free(&loader);
  return 0;
}

/* One entry; `seq` is the collective's or message's. */
static const char *entry(int id, const char *group, const char *name, int seq, int size,
                         const char *state) {
  static char texts[16][512];
  static unsigned turn;
  char *text = texts[turn++ % 16];
  bool message = strstr(name, "->") || strstr(name, "<-") || strstr(name, "p2p:");
  snprintf(text, sizeof texts[0],
           "{\"record_id\": %d, \"pg_id\": 0, \"process_group\": [\"%s\", \"x\"], "
           "\"collective_seq_id\": %d,"
           "\"p2p_seq_id\": %d, \"profiling_name\": \"%s\", \"time_created_ns\": %d, "
           "\"input_sizes\": [[%d, 2]],"
           "\"input_dtypes\": [\"Float\"], \"output_sizes\": [[%d, 4]], \"output_dtypes\": "
           "[\"BFloat16\"],"
           "\"state\": \"%s\", \"is_p2p\": %s, \"thread_id\": \"1\"}",
           id, group, message ? 1 : seq, message ? seq : 0, name, 1000 + id, size, size, state,
           message ? "true" : "false");
  return text;
}

static void names_of_operations_are_known(void **state) {
  (void)state;
  static const struct {
    const char *name;
    uint8_t fn;
    int32_t source, destination;
    bool end;
  } cases[] = {
      {"nccl:all_reduce", NT_FN_AllReduce, -1, -1, false},
      {"nccl:_all_gather_base", NT_FN_AllGather, -1, -1, false},
      {"nccl:all_gather_into_tensor_coalesced", NT_FN_AllGather, -1, -1, false},
      {"nccl:_reduce_scatter_base", NT_FN_ReduceScatter, -1, -1, false},
      {"xccl:all_to_all", NT_FN_AlltoAll, -1, -1, false},
      {"nccl:_broadcast_oop", NT_FN_Broadcast, -1, -1, false},
      {"nccl:send 0->12", NT_FN_Send, 0, 12, false},
      {"nccl:recv 3<-1", NT_FN_Recv, 1, 3, false},
      {"nccl:recv 3->1", NT_FN_NONE, -1, -1, false},
      {"nccl:send", NT_FN_NONE, -1, -1, false},
      {"nccl:coalesced", NT_FN_NONE, -1, -1, true},
      {"nccl:REDUCE_SCATTER_coalesced", NT_FN_ReduceScatter, -1, -1, true},
      {"nccl:something_new", NT_FN_NONE, -1, -1, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct nt_value name = {.type = NT_VALUE_TEXT, .count = (uint32_t)strlen(cases[i].name)};
    name.text = cases[i].name;
    struct nt_flight_op op = nt_flight_op(&name);
    assert_int_equal(op.fn, cases[i].fn);
    assert_int_equal(op.source, cases[i].source);
    assert_int_equal(op.destination, cases[i].destination);
    assert_int_equal(op.end, cases[i].end);
  }
}

static void counts_are_what_nccl_counts(void **state) {
  (void)state;
  char entries[4096];
  snprintf(entries, sizeof entries, "%s,%s,%s,%s",
           entry(0, "0", "nccl:all_reduce", 1, 8, "completed"),
           entry(1, "0", "nccl:_reduce_scatter_base", 2, 8, "completed"),
           entry(2, "0", "nccl:all_to_all", 3, 8, "completed"),
           entry(3, "7", "nccl:send 0->1", 1, 8, "completed"));
  const struct nt_model_rank *rank = load(3, entries, "");
  assert_int_equal(rank->call_count, 4);
  assert_int_equal(rank->calls[0].count, 16);
  assert_int_equal(rank->calls[0].dtype, ncclFloat32);
  assert_int_equal(rank->calls[1].count, 32); /* what one rank gets */
  assert_int_equal(rank->calls[1].dtype, ncclBfloat16);
  assert_true(rank->calls[2].count == NT_COUNT_UNKNOWN); /* it may be split unevenly */
  assert_int_equal(rank->calls[3].peer, 1);
  assert_int_equal(rank->calls[0].op, 255);
  assert_int_equal(rank->calls[0].peer, -1);
}

static void a_rank_and_its_groups_are_the_same_for_all(void **state) {
  (void)state;
  load(1, "", "");
  load(3, "", "");
  const struct nt_model_rank *a = &loader.model.ranks[0], *b = &loader.model.ranks[1];
  assert_int_equal(a->world, 1);
  assert_int_equal(b->world, 3);
  assert_int_equal(b->world_size, 4);
  assert_int_equal(b->recorder, NT_RECORDER_FLIGHT);
  assert_int_equal(b->state, NT_PROCESS_UNKNOWN);
  assert_string_equal(b->nccl, "2.28.9");
  assert_memory_equal(a->views[0].id, b->views[0].id, 16);
  assert_memory_equal(a->views[1].id, b->views[1].id, 16);
  assert_memory_not_equal(a->views[0].id, a->views[1].id, 16);
  assert_int_equal(a->views[1].rank, 1);
  assert_int_equal(b->views[1].rank, 0); /* as the group lists them */
  assert_string_equal(b->views[0].name, "default_pg");
  assert_string_equal(b->views[1].name, "7:pair");
}

static void states_become_progress(void **state) {
  (void)state;
  char entries[4096];
  snprintf(entries, sizeof entries, "%s,%s,%s", entry(0, "0", "nccl:all_reduce", 1, 8, "completed"),
           entry(1, "0", "nccl:all_reduce", 2, 8, "started"),
           entry(2, "0", "nccl:all_reduce", 3, 8, "scheduled"));
  const struct nt_model_rank *rank = load(0, entries, "");
  assert_int_equal(rank->calls[0].progress, NT_PROGRESS_FINISHED);
  assert_int_equal(rank->calls[1].progress, NT_PROGRESS_REACHED);
  assert_int_equal(rank->calls[2].progress, NT_PROGRESS_UNFINISHED);
}

static void a_coalesced_group_is_one_operation_with_the_state_of_its_end(void **state) {
  (void)state;
  char entries[4096];
  snprintf(entries, sizeof entries, "%s,%s,%s,%s,%s,%s",
           entry(0, "0", "nccl:all_reduce", 1, 8, "scheduled"),
           entry(1, "0", "nccl:all_reduce", 1, 4, "scheduled"),
           entry(2, "0", "nccl:coalesced", 1, 0, "completed"),
           entry(3, "7", "nccl:send 0->1", 5, 8, "scheduled"),
           entry(4, "7", "nccl:recv 0<-1", 5, 8, "scheduled"),
           entry(5, "7", "p2p:coalesced", 5, 0, "completed"));
  const struct nt_model_rank *rank = load(3, entries, "");
  assert_int_equal(rank->call_count, 3);
  assert_int_equal(rank->calls[0].count, 24);
  for (int i = 0; i < 3; i++)
    assert_int_equal(rank->calls[i].progress, NT_PROGRESS_FINISHED);
  assert_int_not_equal(rank->calls[1].group, 0);
  assert_int_equal(rank->calls[1].group, rank->calls[2].group);
}

static void a_wrapped_ring_keeps_absolute_numbers(void **state) {
  (void)state;
  const struct nt_model_rank *rank =
      load(0, entry(70, "0", "nccl:all_reduce", 51, 8, "completed"), "");
  assert_int_equal(rank->overwritten, 70);
  assert_int_equal(rank->calls[0].seq, 51);
  assert_int_equal(rank->views[0].collectives, 51);
}

static void a_dump_without_entries_tells_how_far_its_groups_came(void **state) {
  (void)state;
  const struct nt_model_rank *rank = load(3, "",
                                          "\"0\": {\"last_enqueued_collective\": \"41\"},"
                                          "\"3\": {\"last_enqueued_collective\": \"9\"}");
  assert_true(rank->overwritten);
  assert_int_equal(rank->views[0].collectives, 41);
  assert_int_equal(rank->views[1].collectives, 9);
}

static void messages_are_numbered_by_queue(void **state) {
  (void)state;
  char entries[4096];
  /* The sender's ring is whole, the receiver's begins at its third message. */
  snprintf(entries, sizeof entries, "%s,%s,%s",
           entry(0, "7", "nccl:send 0->1", 1, 99999, "completed"),
           entry(1, "7", "nccl:send 0->1", 2, 99999, "completed"),
           entry(2, "7", "nccl:send 0->1", 3, 99999, "scheduled"));
  load(3, entries, "");
  snprintf(entries, sizeof entries, "%s,%s", entry(8, "7", "nccl:recv 1<-0", 9, 99999, "completed"),
           entry(9, "7", "nccl:recv 1<-0", 10, 99999, "scheduled"));
  load(1, entries, "");
  assert_int_equal(nt_flight_settle(&loader.model), 0);
  assert_int_equal(loader.model.ranks[0].calls[2].seq, 3);
  assert_int_equal(loader.model.ranks[1].calls[0].seq, 2);
  assert_int_equal(loader.model.ranks[1].calls[1].seq, 3);
}

static void damaged_entries_are_counted_and_the_rest_is_kept(void **state) {
  (void)state;
  char entries[2048];
  snprintf(entries, sizeof entries, "null, [], {}, {\"process_group\": 3}, %s",
           entry(4, "0", "nccl:all_reduce", 1, 8, "completed"));
  const struct nt_model_rank *rank = load(0, entries, "");
  assert_int_equal(rank->call_count, 1);
  assert_int_equal(loader.model.note_count, 1);
  assert_string_equal(loader.model.notes[0],
                      "no such/dump_0: 4 entries are damaged, 0 of an unknown kind");
}

static void a_number_that_is_no_member_gives_way_to_messages(void **state) {
  (void)state;
  const struct nt_model_rank *rank =
      load(2026, entry(0, "7", "nccl:send 0->1", 1, 8, "completed"), "");
  assert_int_equal(rank->world, 3); /* rank 0 of the group [3, 1] */
}

static void json_that_is_nested_too_deep_is_refused(void **state) {
  (void)state;
  char text[512] = "{\"version\": \"2.10\", \"entries\": ";
  struct nt_error error = {0};
  size_t length = strlen(text);
  for (int i = 0; i < 100; i++)
    text[length + i] = '[', text[length + 100 + i] = ']';
  strcpy(text + length + 200, "}");
  int status =
      nt_load_flight_recorder(&loader, "dump_0", (const uint8_t *)text, strlen(text), &error);
  assert_int_equal(status, -NT_ERR_CORRUPT);
  assert_string_equal(error.reason, "JSON nested more than 64 deep");
  assert_int_equal(loader.model.rank_count, 0);
}

static void what_begins_like_a_dump_is_one_if_it_is_named(void **state) {
  (void)state;
  static const uint8_t pickle[] = "\x80\x02N.", dump[] = "\x80\x02}X\x07\0\0\0entries";
  static const uint8_t json[] = " {\"a\": 1}", log[] = "host:1:2 [0] NCCL INFO";
  assert_true(nt_is_flight_recorder(pickle, sizeof pickle - 1, true));
  assert_false(nt_is_flight_recorder(pickle, sizeof pickle - 1, false));
  assert_true(nt_is_flight_recorder(dump, sizeof dump - 1, false));
  assert_true(nt_is_flight_recorder(json, sizeof json - 1, true));
  assert_false(nt_is_flight_recorder(json, sizeof json - 1, false));
  assert_false(nt_is_flight_recorder(log, sizeof log - 1, true));
  assert_false(nt_is_flight_recorder(log, 0, true));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_of_operations_are_known),
      cmocka_unit_test_teardown(counts_are_what_nccl_counts, forget),
      cmocka_unit_test_teardown(a_rank_and_its_groups_are_the_same_for_all, forget),
      cmocka_unit_test_teardown(states_become_progress, forget),
      cmocka_unit_test_teardown(a_coalesced_group_is_one_operation_with_the_state_of_its_end,
                                forget),
      cmocka_unit_test_teardown(a_wrapped_ring_keeps_absolute_numbers, forget),
      cmocka_unit_test_teardown(a_dump_without_entries_tells_how_far_its_groups_came, forget),
      cmocka_unit_test_teardown(messages_are_numbered_by_queue, forget),
      cmocka_unit_test_teardown(damaged_entries_are_counted_and_the_rest_is_kept, forget),
      cmocka_unit_test_teardown(a_number_that_is_no_member_gives_way_to_messages, forget),
      cmocka_unit_test_teardown(json_that_is_nested_too_deep_is_refused, forget),
      cmocka_unit_test(what_begins_like_a_dump_is_one_if_it_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
