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
  assert_string_equal(nt_call_result(&call), "in call");
  call.result = 0;
  assert_string_equal(nt_call_result(&call), "ok");
  call.flags = NT_CALL_VOID;
  assert_string_equal(nt_call_result(&call), "discarded");
  call.result = 5;
  assert_string_equal(nt_call_result(&call), "ncclInvalidUsage");
  call.flags = NT_CALL_ABANDONED;
  assert_string_equal(nt_call_result(&call), "never returned");
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

static void unknown_numbers_have_words(void **state) {
  (void)state;
  char text[32];
  assert_string_equal(nt_dtype_text(text, sizeof text, 200), "type 200");
  assert_string_equal(nt_dtype_text(text, sizeof text, 255), "");
  assert_string_equal(nt_redop_text(text, sizeof text, 5), "user operator 1");
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
      cmocka_unit_test(unknown_numbers_have_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
