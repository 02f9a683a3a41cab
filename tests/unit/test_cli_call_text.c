/* SPDX-License-Identifier: Apache-2.0 */
/* A call in words. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "cli/call_text.h"
#include "nccl/nccl_api.h"

static struct nt_call call_of(unsigned fn, uint32_t seq, uint64_t count, int32_t peer) {
  return (struct nt_call){.fn = (uint8_t)fn,
                          .seq = seq,
                          .count = count,
                          .peer = peer,
                          .comm = 1,
                          .dtype = 7, /* f32 */
                          .op = 255};
}

static void phrases(void **state) {
  (void)state;
  struct nt_call sum = call_of(NT_FN_AllReduce, 7, 4194304, -1);
  sum.op = 0;
  struct nt_call end = call_of(NT_FN_GroupEnd, 0, 5, -1);
  end.comm = 0;
  const struct {
    struct nt_call call;
    const char *text;
  } cases[] = {
      {sum, "AllReduce #7 on A, 4 Mi x f32 sum"},
      {call_of(NT_FN_Broadcast, 8, 1000, 2), "Broadcast #8 on A, 1000 x f32, root 2"},
      {call_of(NT_FN_Send, 3, 16, 1), "Send #3 to rank 1 on A, 16 x f32"},
      {call_of(NT_FN_Recv, 3, 16, 0), "Recv #3 from rank 0 on A, 16 x f32"},
      {call_of(NT_FN_CommInitRank, 1, 2, 0), "CommInitRank #1 of A, rank 0 of 2"},
      {call_of(NT_FN_CommSplit, 1, (uint64_t)-3, 4), "CommSplit #1 on A, colour 4, key -3"},
      {call_of(NT_FN_CommSplit, 1, 0, -1), "CommSplit #1 on A, no colour"},
      {end, "GroupEnd, 5 calls"},
      {call_of(250, 0, 0, -1), "function 250 on A"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[NT_CALL_TEXT];
    assert_string_equal(nt_call_text(text, sizeof text, &cases[i].call, "A"), cases[i].text);
  }
}

static void a_phrase_is_cut_not_overrun(void **state) {
  (void)state;
  struct nt_call call = call_of(NT_FN_AllReduce, 7, 4194304, -1);
  char text[12];
  assert_string_equal(nt_call_text(text, sizeof text, &call, "A"), "AllReduce #");
}

static void results(void **state) {
  (void)state;
  struct nt_call call = {.result = NT_RESULT_OPEN};
  char text[NT_RESULT_TEXT];
  assert_string_equal(nt_call_result(text, sizeof text, &call), "in call");
  call.result = 0;
  assert_string_equal(nt_call_result(text, sizeof text, &call), "ok");
  call.flags = NT_CALL_VOID;
  assert_string_equal(nt_call_result(text, sizeof text, &call), "discarded");
  call.result = 5;
  assert_string_equal(nt_call_result(text, sizeof text, &call), "ncclInvalidUsage");
  call.flags = NT_CALL_ABANDONED;
  assert_string_equal(nt_call_result(text, sizeof text, &call), "never returned");
}

static void names_of_communicators_are_escaped(void **state) {
  (void)state;
  struct nt_trace_comm comm = {.def = {.number = 3}};
  char label[NT_LABEL_TEXT];
  assert_string_equal(nt_comm_label(label, sizeof label, &comm), "comm 3");
  strcpy(comm.def.name, "tp\033[2J");
  assert_string_equal(nt_comm_label(label, sizeof label, &comm), "tp\\x1b[2J");
  memset(comm.def.name, 'n', sizeof comm.def.name); /* not terminated */
  assert_int_equal(strlen(nt_comm_label(label, sizeof label, &comm)), sizeof comm.def.name);
}

/* What a later NCCL brings is told by its number, never by a wrong name or none. */
static void values_of_a_newer_nccl_are_told_by_their_number(void **state) {
  (void)state;
  char text[NT_CALL_TEXT];
  struct nt_call call = call_of(NT_FN_AllReduce, 7, 1000, -1);
  call.dtype = nt_byte_of(14);
  call.op = nt_op_newer(9);
  call.result = nt_byte_of(11);
  assert_string_equal(nt_call_text(text, sizeof text, &call, "A"),
                      "AllReduce #7 on A, 1000 x dtype 14 op 9");
  assert_string_equal(nt_call_result(text, sizeof text, &call), "result 11");
  struct nt_call error = call_of(NT_FN_CommGetAsyncError, 0, 12, -1);
  assert_string_equal(nt_call_arguments(text, sizeof text, &error), "result 12");
  error.count = 8;
  assert_string_equal(nt_call_arguments(text, sizeof text, &error), "ncclTimeout");
  assert_string_equal(nt_call_function(text, sizeof text, 199), "function 199");
}

static void values_that_no_nccl_has_are_not_taken_for_others(void **state) {
  (void)state;
  char text[32];
  assert_int_equal(nt_byte_of(-1), NT_OTHER);
  assert_int_equal(nt_byte_of(256), NT_OTHER);
  assert_int_equal(nt_byte_of(255), NT_OTHER);
  assert_int_equal(nt_byte_of(253), 253);
  assert_int_equal(nt_op_newer(53), 253);
  assert_int_equal(nt_op_newer(54), NT_OTHER);
  assert_int_equal(nt_op_newer(0x12345678), NT_OTHER);
  assert_string_equal(nt_dtype_text(text, sizeof text, 200), "dtype 200");
  assert_string_equal(nt_dtype_text(text, sizeof text, NT_OTHER), "dtype ?");
  assert_string_equal(nt_dtype_text(text, sizeof text, 255), "");
  assert_string_equal(nt_redop_text(text, sizeof text, 5), "user operator 1");
  assert_string_equal(nt_redop_text(text, sizeof text, 204), "user operator 200");
  assert_string_equal(nt_redop_text(text, sizeof text, nt_op_newer(5)), "op 5");
  assert_string_equal(nt_redop_text(text, sizeof text, nt_op_newer(53)), "op 53");
  assert_string_equal(nt_redop_text(text, sizeof text, NT_OTHER), "user operator ?");
  assert_string_equal(nt_redop_text(text, sizeof text, 255), "");
  assert_string_equal(nt_comm_state_text(99), "unknown");
  assert_string_equal(nt_comm_origin_text(99), "unknown");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(phrases),
      cmocka_unit_test(a_phrase_is_cut_not_overrun),
      cmocka_unit_test(results),
      cmocka_unit_test(names_of_communicators_are_escaped),
      cmocka_unit_test(values_of_a_newer_nccl_are_told_by_their_number),
      cmocka_unit_test(values_that_no_nccl_has_are_not_taken_for_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
