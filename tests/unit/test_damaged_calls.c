/* SPDX-License-Identifier: Apache-2.0 */
/* Traces whose calls cannot be read: of a form of another version, or damaged. Nobody is accused, and nothing is called fine. */
#include "model_builder.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "analysis/load_trace.h"
#include "trace/bytes.h"
#include "trace/format.h"
#include "trace_fixture.h"

static struct job j;

/* Of all its calls only the counts are left. */
static void lose_calls(uint32_t rank) {
  struct nt_model_rank *of = job_rank(&j, rank);
  of->cut = of->call_count;
  of->call_count = 0;
  of->damaged = true;
}

/* Eight collectives that all make, and a ninth that rank 1 does not; the last calls were long ago. */
static void begin(bool skips) {
  job_start(&j, 4);
  const uint32_t a = job_comm(&j, "A", "0-3");
  for (int i = 0; i < 8; i++)
    job_all(&j, a, NT_FN_AllReduce, 16);
  if (skips)
    job_others(&j, 1, a, NT_FN_AllReduce, 16);
  for (uint32_t r = 0; r < 4; r++)
    job_rank(&j, r)->views[0].collectives = j.collectives[r][a];
}

static struct nt_verdict *judge(bool together) {
  for (uint32_t r = 0; r < 4; r++)
    if (together)
      job_end(&j, r, NT_PROCESS_VANISHED, 0);
  job_pass(&j, 60000);
  return job_judge(&j);
}

static bool has_evidence(const struct nt_finding *finding, const char *text) {
  for (uint32_t i = 0; i < finding->evidence.count; i++)
    if (strstr(finding->evidence.line[i], text))
      return true;
  return false;
}

/* At most that rank 1 lacks a collective, by its counts. */
static void where_no_call_can_be_read_nothing_is_decided(void **state) {
  (void)state;
  for (int variant = 0; variant < 4; variant++) {
    begin(variant & 1);
    for (uint32_t r = 0; r < 4; r++)
      lose_calls(r);
    struct nt_verdict *v = judge(variant & 2);
    assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
    assert_int_equal(nt_verdict_class(v), variant == 1 ? NT_CLASS_MISSING : NT_CLASS_UNDECIDED);
    assert_string_equal(set_text(&v->findings[0].blame), variant == 1 ? "1" : "");
    assert_true(variant == 1 || has_evidence(&v->findings[0], "needed: the calls of ranks 0-3"));
    job_free(&j);
  }
}

static void counts_tell_who_made_fewer_collectives(void **state) {
  (void)state;
  begin(true);
  for (uint32_t r = 0; r < 4; r++)
    lose_calls(r);
  job_rank(&j, 0)->undone = 1;
  struct nt_verdict *v = judge(true);
  assert_true(has_evidence(&v->findings[0], "rank 1 made 8 collectives on A"));
  assert_true(has_evidence(&v->findings[0], "ranks 0,2-3 made 9 collectives on A"));
  assert_true(has_evidence(&v->findings[0], "had not finished when it was last looked at: rank 0"));
  job_free(&j);
}

static void one_readable_trace_of_many_tells_no_more(void **state) {
  (void)state;
  begin(true);
  for (uint32_t r = 0; r < 4; r++)
    if (r != 1)
      lose_calls(r);
  struct nt_verdict *v = judge(true);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_UNDECIDED);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  job_free(&j);
}

static void files_without_anything_but_headers_are_no_sign_of_health(void **state) {
  (void)state;
  job_start(&j, 2);
  for (uint32_t r = 0; r < 2; r++) {
    job_rank(&j, r)->hollow = true;
    job_rank(&j, r)->live = false;
    job_rank(&j, r)->state = NT_PROCESS_UNKNOWN;
  }
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_UNDECIDED);
  job_free(&j);
}

/* What the others' calls tell is enough where all made as many. */
static void of_one_damaged_trace_among_others_its_counts_are_enough(void **state) {
  (void)state;
  begin(false);
  lose_calls(2);
  struct nt_verdict *v = judge(true);
  assert_int_not_equal(nt_verdict_class(v), NT_CLASS_UNDECIDED);
  job_free(&j);
}

/* All frames of this type become ones of another version, as a newer library would write them. */
static uint32_t change_version(unsigned char *file, uint64_t length, uint8_t type) {
  uint32_t changed = 0;
  for (uint64_t at = 0; at + NT_FRAME_HEADER <= length; at += 8) {
    unsigned char *frame = file + at;
    if (memcmp(frame, "NTFR", 4) != 0 || frame[4] != type)
      continue;
    frame[6] = 77;
    nt_put_u64(frame + 56, XXH64(frame, 56, 0));
    changed++;
  }
  return changed;
}

static void of_calls_of_another_version_the_writer_is_named(void **state) {
  (void)state;
  struct fixture f;
  struct nt_error err = {0};
  struct nt_trace *trace;
  struct nt_loaded_trace loaded;
  char path[700];
  uint64_t length;
  fixture_begin(&f);
  fixture_area(&f, 8 << 20);
  fixture_drain(&f, 8 << 20);
  fixture_calls(&f, 500);
  nt_drain_tick(f.drain, NT_DRAIN_FLUSH);
  nt_drain_close(f.drain, false);
  f.drain = NULL;
  assert_true(fixture_find(f.files, ".trace", path, sizeof path));
  unsigned char *file = fixture_load(path, &length);
  assert_true(change_version(file, length, NT_FRAME_CALLS) > 0);
  snprintf(path, sizeof path, "%s/newer", f.files);
  fixture_store(path, file, length);
  free(file);
  assert_int_equal(nt_trace_open(path, NT_OPEN_NO_AREA, &trace, &err), 0);
  assert_int_equal(nt_trace_load(trace, path, &loaded, &err), 0);
  assert_int_equal(loaded.rank.strange, 500);
  assert_non_null(loaded.rank.writer);
  assert_non_null(strstr(loaded.rank.writer, "format 1."));
  bool told = false;
  for (size_t i = 0; i < nt_trace_warning_count(trace); i++)
    told |= strstr(nt_trace_warning_at(trace, i), "(version 77)") &&
            strstr(nt_trace_warning_at(trace, i), loaded.rank.writer);
  assert_true(told);
  nt_loaded_trace_free(&loaded);
  nt_trace_close(trace);
  fixture_end(&f);
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(where_no_call_can_be_read_nothing_is_decided),
      TEST(counts_tell_who_made_fewer_collectives),
      TEST(one_readable_trace_of_many_tells_no_more),
      TEST(files_without_anything_but_headers_are_no_sign_of_health),
      TEST(of_one_damaged_trace_among_others_its_counts_are_enough),
      TEST(of_calls_of_another_version_the_writer_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
