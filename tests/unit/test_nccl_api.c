/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "nccl/comm_id.h"
#include "nccl/signature.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

static void every_row_has_a_name_and_a_shape(void **state) {
  (void)state;
  int rows = 0;
  for (unsigned fn = 0; fn < NT_FN_LIMIT; fn++) {
    assert_int_equal(nt_fn_name(fn) != NULL, nt_fn_shape(fn) != NT_SHAPE_NONE);
    rows += nt_fn_name(fn) != NULL;
  }
  assert_true(rows >= 40);
  assert_null(nt_fn_name(0));
  assert_null(nt_fn_name(100000));
}

/* Releases up to the newest; numbers that the next ones will use have no name and no size. */
static void types_operators_and_results_have_nccl_s_numbers_and_sizes(void **state) {
  (void)state;
  static const struct {
    const char *name;
    size_t size;
  } types[] = {{"i8", 1},  {"u8", 1},  {"i32", 4}, {"u32", 4},  {"i64", 8},    {"u64", 8},
               {"f16", 2}, {"f32", 4}, {"f64", 8}, {"bf16", 2}, {"f8e4m3", 1}, {"f8e5m2", 1}};
  static const char *const operators[] = {"sum", "prod", "max", "min", "avg"};
  for (int i = 0; i < 12; i++) {
    assert_string_equal(nt_dtype_name(i), types[i].name);
    assert_int_equal(nt_dtype_size(i), types[i].size);
  }
  for (int i = 0; i < 5; i++)
    assert_string_equal(nt_redop_name(i), operators[i]);
  assert_string_equal(nt_result_name(7), "ncclInProgress");
  assert_string_equal(nt_result_name(8), "ncclTimeout");
  for (int i = 12; i < 300; i++) {
    assert_null(nt_dtype_name(i));
    assert_int_equal(nt_dtype_size(i), 0);
    assert_null(nt_redop_name(i));
    assert_null(nt_result_name(i));
  }
}

static void a_collective_with_settings_is_the_same_operation(void **state) {
  (void)state;
  static const unsigned pairs[][2] = {
      {NT_FN_AllReduceConfig, NT_FN_AllReduce},
      {NT_FN_BroadcastConfig, NT_FN_Broadcast},
      {NT_FN_ReduceConfig, NT_FN_Reduce},
      {NT_FN_AllGatherConfig, NT_FN_AllGather},
      {NT_FN_ReduceScatterConfig, NT_FN_ReduceScatter},
      {NT_FN_AlltoAllConfig, NT_FN_AlltoAll},
      {NT_FN_GatherConfig, NT_FN_Gather},
      {NT_FN_ScatterConfig, NT_FN_Scatter},
  };
  for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
    const unsigned with = pairs[i][0], plain = pairs[i][1];
    assert_int_equal(nt_fn_canonical(with), plain);
    assert_int_equal(nt_fn_canonical(plain), plain);
    assert_int_equal(nt_fn_shape(with), nt_fn_shape(plain));
    assert_int_equal(nt_fn_moves_bytes(with), nt_fn_moves_bytes(plain));
    assert_true(nt_fn_is_collective(with));
    assert_true(nt_signature(with, 9, ncclFloat32, ncclSum, 1) ==
                nt_signature(plain, 9, ncclFloat32, ncclSum, 1));
  }
}

static void unknown_values_have_no_name(void **state) {
  (void)state;
  assert_string_equal(nt_dtype_name(ncclBfloat16), "bf16");
  assert_null(nt_dtype_name(99));
  assert_null(nt_dtype_name(-1));
  assert_null(nt_redop_name(5));
  assert_int_equal(nt_dtype_size(255), 0);
  assert_string_equal(nt_result_name(ncclRemoteError), "ncclRemoteError");
}

static void collectives_are_allreduce_to_scatter(void **state) {
  (void)state;
  assert_true(nt_fn_is_collective(NT_FN_AllReduce));
  assert_true(nt_fn_is_collective(NT_FN_Scatter));
  assert_false(nt_fn_is_collective(NT_FN_Send));
  assert_false(nt_fn_is_collective(NT_FN_CommSplit));
}

static void bytes_count_where_nothing_is_reduced(void **state) {
  (void)state;
  /* 8 f16 and 4 f32 are the same broadcast, and not the same all-reduce. */
  assert_true(nt_signature(NT_FN_Broadcast, 8, ncclFloat16, -1, 0) ==
              nt_signature(NT_FN_Broadcast, 4, ncclFloat32, -1, 0));
  assert_true(nt_signature(NT_FN_AllReduce, 8, ncclFloat16, ncclSum, -1) !=
              nt_signature(NT_FN_AllReduce, 4, ncclFloat32, ncclSum, -1));
  assert_true(nt_signature(NT_FN_Bcast, 8, ncclInt8, -1, 0) ==
              nt_signature(NT_FN_Broadcast, 8, ncclInt8, -1, 0));
}

static void every_field_changes_the_signature(void **state) {
  (void)state;
  uint64_t base = nt_signature(NT_FN_Reduce, 8, ncclFloat32, ncclSum, 1);
  assert_true(base != nt_signature(NT_FN_AllReduce, 8, ncclFloat32, ncclSum, 1));
  assert_true(base != nt_signature(NT_FN_Reduce, 9, ncclFloat32, ncclSum, 1));
  assert_true(base != nt_signature(NT_FN_Reduce, 8, ncclFloat16, ncclSum, 1));
  assert_true(base != nt_signature(NT_FN_Reduce, 8, ncclFloat32, ncclMax, 1));
  assert_true(base != nt_signature(NT_FN_Reduce, 8, ncclFloat32, ncclSum, 2));
}

static void order_inside_a_group_does_not_change_the_sum(void **state) {
  (void)state;
  uint64_t a = nt_signature(NT_FN_AllReduce, 1, ncclFloat32, ncclSum, -1);
  uint64_t b = nt_signature(NT_FN_AllReduce, 2, ncclFloat32, ncclSum, -1);
  assert_true(nt_signature_mix(a, 1) + nt_signature_mix(b, 1) ==
              nt_signature_mix(b, 1) + nt_signature_mix(a, 1));
  assert_true(nt_signature_mix(a, 1) + nt_signature_mix(b, 2) !=
              nt_signature_mix(b, 1) + nt_signature_mix(a, 2));
}

static void ids_differ_by_everything_they_are_made_from(void **state) {
  (void)state;
  struct nt_id128 uid = nt_hash("unique", 6);
  struct nt_id128 ids[] = {
      nt_comm_id_init(uid, 4, 1),     nt_comm_id_init(uid, 8, 1),     nt_comm_id_init(uid, 4, 2),
      nt_comm_id_split(uid, 1, 0),    nt_comm_id_split(uid, 1, 1),    nt_comm_id_split(uid, 2, 0),
      nt_comm_id_shrink(uid, uid, 1), nt_comm_id_shrink(uid, uid, 2), nt_comm_id_grow(uid, 1, 4),
      nt_comm_id_grow(uid, 2, 4),     nt_comm_id_grow(uid, 1, 5),     nt_comm_id_grow_new(uid, 4),
      nt_comm_id_grow_new(uid, 5),
  };
  for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
    for (size_t j = 0; j < i; j++)
      assert_true(memcmp(&ids[i], &ids[j], sizeof(*ids)) != 0);
}

/* {random, address} since NCCL 2.16, the address alone before; of IPv4 and of IPv6. */
static void the_root_s_address_is_found_in_every_release_s_unique_id(void **state) {
  (void)state;
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = 0x1234, .sin_addr = {0x0700000a}};
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = 0x1234};
  memset(&six.sin6_addr, 0xfe, sizeof(six.sin6_addr));
  for (size_t at = 0; at <= 8; at += 8) {
    char id[NCCL_UNIQUE_ID_BYTES] = {0};
    memcpy(id, "\x93\x02\xaa\x0a\x02\x00\x0a\x00", at);
    memcpy(id + at, &four, sizeof(four));
    assert_int_equal(nt_unique_id_address(id), at);
    memcpy(id + at, &six, sizeof(six));
    assert_int_equal(nt_unique_id_address(id), at);
  }
  char other[NCCL_UNIQUE_ID_BYTES];
  memset(other, 0x77, sizeof(other));
  assert_int_equal(nt_unique_id_address(other), 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_has_a_name_and_a_shape),
      cmocka_unit_test(types_operators_and_results_have_nccl_s_numbers_and_sizes),
      cmocka_unit_test(a_collective_with_settings_is_the_same_operation),
      cmocka_unit_test(unknown_values_have_no_name),
      cmocka_unit_test(collectives_are_allreduce_to_scatter),
      cmocka_unit_test(bytes_count_where_nothing_is_reduced),
      cmocka_unit_test(every_field_changes_the_signature),
      cmocka_unit_test(order_inside_a_group_does_not_change_the_sum),
      cmocka_unit_test(the_root_s_address_is_found_in_every_release_s_unique_id),
      cmocka_unit_test(ids_differ_by_everything_they_are_made_from),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
