/* SPDX-License-Identifier: Apache-2.0 */
/* No graph is forgotten for another's sake, and what finds no room is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "preload/graph_table.h"

enum { MANY = 5400 };

/* Handles as an allocator gives them. */
static const void *handle(uint32_t i) {
  return (const void *)(uintptr_t)(UINT64_C(0x7f12a4000010) + (uint64_t)i * 0x1a0);
}

static void graphs_of_many_layers_and_sizes_are_all_known(void **state) {
  (void)state;
  for (uint32_t i = 0; i < MANY; i++)
    nt_graph_keep(handle(i), i + 1);
  for (uint32_t i = 0; i < MANY; i++)
    assert_int_equal(nt_graph_capture(handle(i)), i + 1);
  assert_int_equal(nt_graphs_without_room(), 0);
  for (uint32_t i = 0; i < MANY; i++)
    nt_graph_keep(handle(i), 0);
}

static void a_destroyed_graph_is_unknown_and_its_handle_free(void **state) {
  (void)state;
  nt_graph_keep(handle(1), 7);
  nt_graph_keep(handle(1), 0);
  assert_int_equal(nt_graph_capture(handle(1)), 0);
  nt_graph_keep(handle(1), 8);
  assert_int_equal(nt_graph_capture(handle(1)), 8);
  nt_graph_keep(handle(1), 0);
}

static void graphs_come_and_go_without_end(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 20 * NT_GRAPH_PLACES; i++) {
    nt_graph_keep(handle(i), i + 1);
    if (i >= 100)
      nt_graph_keep(handle(i - 100), 0);
  }
  assert_int_equal(nt_graphs_without_room(), 0);
}

static void a_graph_without_nccl_takes_no_room(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 20 * NT_GRAPH_PLACES; i++)
    nt_graph_keep(handle(i), 0);
  nt_graph_keep(NULL, 3);
  assert_int_equal(nt_graph_capture(NULL), 0);
  assert_int_equal(nt_graphs_without_room(), 0);
}

static void what_finds_no_room_is_counted(void **state) {
  (void)state;
  uint32_t known = 0;
  for (uint32_t i = 0; i < NT_GRAPH_PLACES + 1000; i++)
    nt_graph_keep(handle(i), i + 1);
  for (uint32_t i = 0; i < NT_GRAPH_PLACES + 1000; i++)
    known += nt_graph_capture(handle(i)) == i + 1;
  assert_int_equal(known + nt_graphs_without_room(), NT_GRAPH_PLACES + 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(graphs_of_many_layers_and_sizes_are_all_known),
      cmocka_unit_test(a_destroyed_graph_is_unknown_and_its_handle_free),
      cmocka_unit_test(graphs_come_and_go_without_end),
      cmocka_unit_test(a_graph_without_nccl_takes_no_room),
      cmocka_unit_test(what_finds_no_room_is_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
