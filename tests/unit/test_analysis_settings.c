/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings about what the ranks' environments say. */
#include "model_builder.h"

static struct job j;

static void start(const char *first, const char *others) {
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-2");
  for (uint32_t r = 0; r < 3; r++)
    job_rank(&j, r)->nccl_env = strdup(r ? others : first);
  job_all(&j, a, NT_FN_AllReduce, 8);
}

static bool warns(const char *words) {
  const struct nt_verdict *v = job_judge(&j);
  bool found = false;
  assert_int_equal(v->count, 0); /* never a finding */
  for (uint32_t i = 0; i < v->warning_count; i++)
    found |= v->warnings[i].class == NT_CLASS_CONFIG && strstr(v->warnings[i].summary, words);
  job_free(&j);
  return found;
}

static void another_value_on_one_rank_is_a_warning(void **state) {
  (void)state;
  start("NCCL_ALGO=Tree", "NCCL_ALGO=Ring");
  assert_true(warns("NCCL_ALGO is not the same on all ranks"));
  start("NCCL_ALGO=Ring", "NCCL_ALGO=Ring");
  assert_false(warns("NCCL_ALGO"));
}

static void an_implicit_launch_order_on_one_rank_is_a_warning(void **state) {
  (void)state;
  start("NCCL_LAUNCH_ORDER_IMPLICIT=1", "NCCL_DEBUG=WARN");
  assert_true(warns("NCCL_LAUNCH_ORDER_IMPLICIT is not the same on all ranks"));
  start("NCCL_LAUNCH_ORDER_IMPLICIT=1", "NCCL_LAUNCH_ORDER_IMPLICIT=1");
  assert_false(warns("NCCL_LAUNCH_ORDER_IMPLICIT"));
}

static void a_setting_known_to_do_harm_is_a_warning_though_all_have_it(void **state) {
  (void)state;
  start("CUDA_LAUNCH_BLOCKING=1", "CUDA_LAUNCH_BLOCKING=1");
  assert_true(warns("CUDA_LAUNCH_BLOCKING=1 on ranks 0-2"));
  start("NCCL_PROTO=LL,LL128", "NCCL_PROTO=LL,LL128");
  assert_true(warns("NCCL_PROTO=LL128 on ranks 0-2"));
}

static void its_harmless_values_are_none(void **state) {
  (void)state;
  start("CUDA_LAUNCH_BLOCKING=0", "CUDA_LAUNCH_BLOCKING=0");
  assert_false(warns("CUDA_LAUNCH_BLOCKING"));
  start("NCCL_PROTO=^LL128", "NCCL_PROTO=^LL128");
  assert_false(warns("NCCL_PROTO"));
  start("NCCL_PROTO=Simple", "NCCL_PROTO=Simple");
  assert_false(warns("NCCL_PROTO"));
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(another_value_on_one_rank_is_a_warning),
      TEST(an_implicit_launch_order_on_one_rank_is_a_warning),
      TEST(a_setting_known_to_do_harm_is_a_warning_though_all_have_it),
      TEST(its_harmless_values_are_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
