/* SPDX-License-Identifier: Apache-2.0 */
/* Of a job that is too large: who is read as a whole, and what is found then. */
#include "analysis/sequence.h"
#include "analysis/window_whole.h"
#include "model_builder.h"
#include "nccl/signature.h"

static struct job j;

/* As if only calls from the `count`-th on were read; sums are those of all. */
static void read_last(uint32_t rank, uint32_t count) {
  struct nt_model_rank *model = job_rank(&j, rank);
  struct nt_model_view *view = &model->views[0];
  view->sums = calloc(NT_SUM_LEVELS, sizeof *view->sums);
  for (uint32_t i = 0; i < model->call_count; i++) {
    view->sum += nt_signature_mix(nt_call_signature(&model->calls[i]), model->calls[i].seq);
    view->collectives++;
    for (int level = 0; level < NT_SUM_LEVELS; level++)
      if (view->collectives % (1u << level) == 0)
        view->sums[level][(view->collectives >> level) % NT_SUM_KEPT] = view->sum;
  }
  model->unread = count;
  model->overwritten = count;
  model->call_count -= count;
  memmove(model->calls, model->calls + count, model->call_count * sizeof *model->calls);
}

/* 600 equal calls, but for the 40th of some ranks. */
static uint32_t train(uint32_t ranks, const char *odd) {
  char members[16];
  snprintf(members, sizeof members, "0-%u", ranks - 1);
  job_start(&j, ranks);
  const uint32_t comm = job_comm(&j, "A", members);
  for (int i = 0; i < 600; i++)
    job_all(&j, comm, NT_FN_AllReduce, 8);
  for (uint32_t r = 0; r < ranks; r++)
    if (odd[r] == 'x')
      job_rank(&j, r)->calls[39].count = 16;
  return comm;
}

/* "x" by rank: read as a whole. */
static void assert_whole(uint64_t most, const char *expected) {
  const struct nt_verdict *v = job_judge(&j);
  bool whole[16] = {false};
  char got[17] = "";
  assert_int_equal(nt_window_whole(&v->job, most, whole), 0);
  for (uint32_t r = 0; r < j.ranks; r++)
    strcat(got, whole[r] ? "x" : ".");
  assert_string_equal(got, expected);
  job_free(&j);
}

static void nobody_is_read_as_a_whole_where_sums_agree(void **state) {
  (void)state;
  train(8, "........");
  for (uint32_t r = 0; r < 8; r++)
    read_last(r, 500);
  assert_whole(UINT64_MAX, "........");
}

static void those_that_differ_are_read_and_more_of_the_others(void **state) {
  (void)state;
  train(16, "..........x...x.");
  for (uint32_t r = 0; r < 16; r++)
    read_last(r, 500);
  assert_whole(UINT64_MAX, "xxxxxxxx..x...x.");
}

static void no_more_are_read_than_fit(void **state) {
  (void)state;
  train(8, "...x..x.");
  for (uint32_t r = 0; r < 8; r++)
    read_last(r, 500);
  assert_whole(3 * 600, "x..x..x.");
}

static void who_is_behind_what_was_read_of_others_is_read(void **state) {
  (void)state;
  const uint32_t comm = train(8, "........");
  for (int i = 0; i < 200; i++)
    job_others(&j, 5, comm, NT_FN_AllReduce, 8);
  for (uint32_t r = 0; r < 8; r++)
    read_last(r, r == 5 ? 500 : 700);
  assert_whole(600 + 800, "x....x..");
}

/* The reference that got furthest differs from all: what was read of some tells more than their sums. */
static void a_difference_that_was_read_is_found_where_others_were_not(void **state) {
  (void)state;
  train(8, "x.......");
  for (uint32_t r = 0; r < 8; r++)
    read_last(r, r < 4 ? 0 : 500);
  const struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_int_equal(v->findings[0].class, NT_CLASS_MISMATCH);
  assert_int_equal(v->findings[0].seq, 40);
  assert_string_equal(set_text(&v->findings[0].blame), "0");
  job_free(&j);
}

static void what_was_read_is_not_said_to_be_unread(void **state) {
  (void)state;
  for (int read = 0; read < 2; read++) {
    train(8, "x.......");
    for (uint32_t r = 0; r < 8; r++)
      read_last(r, read && r < 4 ? 0 : 500);
    j.model.bounded = true;
    const struct nt_verdict *v = job_judge(&j);
    const char *note = v->notes.line[v->notes.count - 1];
    assert_int_equal(strstr(note, "earlier collectives differ") != NULL, !read);
    assert_int_equal(strstr(note, "they agree") != NULL, read);
    assert_int_equal(strstr(v->findings[0].summary, "were not read") != NULL, !read);
    job_free(&j);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nobody_is_read_as_a_whole_where_sums_agree),
      cmocka_unit_test(those_that_differ_are_read_and_more_of_the_others),
      cmocka_unit_test(no_more_are_read_than_fit),
      cmocka_unit_test(who_is_behind_what_was_read_of_others_is_read),
      cmocka_unit_test(a_difference_that_was_read_is_found_where_others_were_not),
      cmocka_unit_test(what_was_read_is_not_said_to_be_unread),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
