/* SPDX-License-Identifier: Apache-2.0 */
/* What dumps add to a verdict: where a culprit is, and facts about hardware. The verdict itself stays as it is. */
#include <unistd.h>

#include "analysis/describe.h"
#include "analysis/load_trace.h"
#include "model_builder.h"
#include "trace_fixture.h"

static struct job j;

static uint32_t start(uint32_t ranks, const char *members) {
  job_start(&j, ranks);
  return job_comm(&j, "A", members);
}

/* A dump of the rank, now, in which its main thread is in load() and reads. */
static struct nt_model_dump *dump(uint32_t rank) {
  struct nt_model_dump *made = calloc(1, sizeof *made);
  made->began_ns = j.clock;
  made->threads = calloc(4, sizeof *made->threads);
  made->facts = calloc(8, sizeof *made->facts);
  made->threads[made->thread_count++] =
      (struct nt_model_dump_thread){.tid = 1000 + rank,
                                    .main = true,
                                    .name = strdup("python3"),
                                    .place = strdup("load() at data.py:41"),
                                    .doing = strdup("sleeping in read(fd 7)"),
                                    .stack = {.user = strdup("data.py:41 load"),
                                              .all = strdup("data.py:41 load\nmain.py:1 main")}};
  job_rank(&j, rank)->dump = made;
  job_pass(&j, 1);
  return made;
}

static void add_fact(struct nt_model_dump *dump, const char *text, enum nt_fact_of of,
                     int64_t at_ns) {
  dump->facts[dump->fact_count++] =
      (struct nt_model_fact){.text = strdup(text), .of = of, .at_ns = at_ns};
}

static const struct nt_culprit *culprit(void) {
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_int_equal(v->findings[0].class, NT_CLASS_MISSING);
  assert_int_equal(v->findings[0].culprit_count, 1);
  return &v->findings[0].culprits[0];
}

/* How often a line of the first finding's evidence begins with `text`. */
static int evidence(const char *text) {
  int count = 0;
  const struct nt_lines *lines = &j.verdict.findings[0].evidence;
  for (uint32_t i = 0; i < lines->count; i++)
    count += !strncmp(lines->line[i], text, strlen(text));
  return count;
}

static void a_culprit_is_where_its_dump_says(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  dump(1);
  const struct nt_culprit *it = culprit();
  assert_non_null(strstr(it->now, "in host code in load() at data.py:41 (host code since "));
  assert_non_null(strstr(it->now, " UTC: main thread sleeping in read(fd 7); from the dump of "));
  assert_false(it->of_last);
  assert_string_equal(it->stack->user, "data.py:41 load");
  job_free(&j);
}

static void a_dump_of_before_the_last_call_says_nothing(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  dump(1);
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  const struct nt_culprit *it = culprit();
  assert_null(strstr(it->now, "from the dump"));
  assert_null(it->stack);
  job_free(&j);
}

/* A line of the first finding's `next` begins with `text`. */
static bool next(const char *text) {
  const struct nt_lines *lines = &j.verdict.findings[0].next;
  for (uint32_t i = 0; i < lines->count; i++)
    if (!strncmp(lines->line[i], text, strlen(text)))
      return true;
  return false;
}

static void next_is_a_dump_until_there_is_one(void **state) {
  (void)state;
  for (int python = 0; python < 2; python++)
    for (int dumped = 0; dumped < 2; dumped++) {
      uint32_t a = start(3, "0-2");
      job_all(&j, a, NT_FN_AllReduce, 16);
      job_others(&j, 1, a, NT_FN_AllReduce, 16);
      job_rank(&j, 1)->python_stacks = python;
      if (dumped)
        dump(1)->stacks = true;
      culprit();
      assert_int_equal(next("all its threads: nccltrace show --dump 1001 on node"), dumped);
      assert_int_equal(next("nccltrace dump 1001 on node, then"), !dumped && python);
      assert_int_equal(next("nccltrace dump --native 1001 on node, then"), !dumped && !python);
      job_free(&j);
    }
}

static void of_who_has_died_next_is_the_dump_in_its_trace(void **state) {
  (void)state;
  for (int dumped = 0; dumped < 2; dumped++) {
    uint32_t a = start(3, "0-2");
    job_all(&j, a, NT_FN_AllReduce, 16);
    job_others(&j, 1, a, NT_FN_AllReduce, 16);
    if (dumped)
      dump(1);
    job_pass(&j, 3000);
    for (uint32_t r = 0; r < 3; r++) {
      struct nt_model_rank *rank = job_rank(&j, r);
      rank->state = NT_PROCESS_VANISHED;
      rank->exit_ns = rank->gone_ns = j.clock;
      rank->live = false;
      rank->source = strdup(r == 1 ? "/traces/rank1.trace" : "/traces/other.trace");
    }
    culprit();
    assert_int_equal(next("all its threads, as they were at "), dumped);
    const struct nt_lines *lines = &j.verdict.findings[0].next;
    bool named = false;
    for (uint32_t i = 0; i < lines->count; i++)
      named |= strstr(lines->line[i], ": nccltrace show --dump /traces/rank1.trace") != NULL;
    assert_int_equal(named, dumped);
    job_free(&j);
  }
}

static void a_dump_without_stacks_or_of_before_the_stall_is_not_enough(void **state) {
  (void)state;
  for (int early = 0; early < 2; early++) {
    uint32_t a = start(3, "0-2");
    job_all(&j, a, NT_FN_AllReduce, 16);
    if (early)
      dump(1)->stacks = true;
    job_pass(&j, 5);
    job_others(&j, 1, a, NT_FN_AllReduce, 16);
    if (!early)
      dump(1);
    culprit();
    assert_true(next("nccltrace dump --native 1001 on node, then tracediff again"));
    job_free(&j);
  }
}

static void of_another_thread_that_called_nccl_both_are_told(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  struct nt_model_rank *rank = job_rank(&j, 1);
  rank->calls[rank->call_count - 1].thread = 4;
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  struct nt_model_dump *made = dump(1);
  made->threads[made->thread_count++] = (struct nt_model_dump_thread){
      .tid = 9, .thread = 4, .name = strdup("worker"), .doing = strdup("running")};
  const struct nt_culprit *it = culprit();
  assert_non_null(strstr(it->now, "in host code since "));
  assert_non_null(strstr(it->now, " UTC: thread worker running; main thread in load() at "
                                  "data.py:41, sleeping in read(fd 7) (from the dump of "));
  job_free(&j);
}

static void a_thread_inside_a_call_is_said_to_be_there(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_call(&j, 0, a, NT_FN_AllReduce, 16);
  job_call(&j, 1, a, NT_FN_AllGather, 16);
  job_block(&j, 1);
  dump(1);
  job_judge(&j);
  char text[NT_DESCRIBE];
  uint32_t rank = nt_model_find(&j.model, 1);
  assert_null(nt_describe_thread(&j.verdict.job, rank, 0));
  assert_non_null(
      strstr(nt_describe_now(text, sizeof text, &j.verdict.job, rank), "in AllGather #2"));
  job_free(&j);
}

static void facts_of_hardware_are_evidence_of_a_standstill_outside(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_pass(&j, 3000);
  for (uint32_t r = 0; r < 3; r++) {
    struct nt_model_dump *made = dump(r);
    add_fact(made, "kernel log: NVRM: Xid 79", NT_FACT_OF_NODE, j.clock);
    add_fact(made, "kernel log: of last week", NT_FACT_OF_NODE, 1);
    add_fact(made, "NCCL RAS: rank 2 lags behind", NT_FACT_OF_JOB, 0);
    made->missing = strdup("NVML (it is not there)");
    if (r == 1)
      add_fact(made, "gpu.0.fault: GPU is lost", NT_FACT_OF_PROCESS, 0);
  }
  job_judge(&j);
  assert_int_equal(j.verdict.findings[0].class, NT_CLASS_OUTSIDE);
  assert_int_equal(nt_rank_set_count(&j.verdict.findings[0].blame), 0);
  assert_int_equal(evidence("host node: kernel log: NVRM: Xid 79"), 1);
  assert_int_equal(evidence("host node: kernel log: of last week"), 0);
  assert_int_equal(evidence("rank 1: gpu.0.fault: GPU is lost"), 1);
  assert_int_equal(evidence("NCCL RAS: rank 2 lags behind"), 1);
  assert_int_equal(evidence("ranks 0-2: not asked: NVML (it is not there)"), 1);
  job_free(&j);
}

static void a_kernel_log_counts_from_the_job_s_start_and_of_its_own_processes(void **state) {
  (void)state;
  char line[400] = "kernel log: NVRM: Xid 31, ";
  memset(line + strlen(line), 'x', 300);
  uint32_t a = start(2, "0-1");
  const int64_t began = j.clock;
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_pass(&j, 3000);
  struct nt_model_dump *made = dump(0);
  add_fact(made, "kernel log: NVRM: Xid 13", NT_FACT_OF_NODE, began - 2000 * MS);
  add_fact(made, "kernel log: Memory cgroup out of memory: Killed process 77 (x)", NT_FACT_OF_NODE,
           j.clock);
  add_fact(made, "kernel log: oom-kill:constraint=CONSTRAINT_MEMCG,pid=1001,uid=0", NT_FACT_OF_NODE,
           j.clock);
  add_fact(made, "kernel log: Out of memory: Killed process 78 (x)", NT_FACT_OF_NODE, j.clock);
  add_fact(made, line, NT_FACT_OF_NODE, j.clock);
  job_judge(&j);
  assert_int_equal(j.verdict.findings[0].class, NT_CLASS_OUTSIDE);
  assert_int_equal(evidence("host node: kernel log: NVRM: Xid 13"), 0);
  assert_int_equal(evidence("host node: kernel log: Memory cgroup"), 0);
  assert_int_equal(evidence("host node: kernel log: oom-kill"), 1);
  assert_int_equal(evidence("host node: kernel log: Out of memory"), 1);
  assert_int_equal(evidence("host node: kernel log: NVRM: Xid 31"), 1);
  const struct nt_lines *lines = &j.verdict.findings[0].evidence;
  for (uint32_t i = 0; i < lines->count; i++) {
    assert_true(strlen(lines->line[i]) < 200);
    if (strstr(lines->line[i], "kernel log"))
      assert_non_null(strstr(lines->line[i], " UTC)"));
  }
  job_free(&j);
}

static void a_standstill_outside_tells_how_to_look_at_all_ranks(void **state) {
  (void)state;
  for (int dumped = 0; dumped < 2; dumped++) {
    uint32_t a = start(2, "0-1");
    job_all(&j, a, NT_FN_AllReduce, 16);
    job_pass(&j, 3000);
    for (uint32_t r = 0; r < 2 && dumped; r++)
      dump(r)->stacks = true;
    job_judge(&j);
    assert_int_equal(j.verdict.findings[0].class, NT_CLASS_OUTSIDE);
    assert_int_equal(next("nccltrace dump --native 1001 on node, then"), !dumped);
    assert_int_equal(next("all its threads: nccltrace show --dump 1001 on node"), dumped);
    assert_int_equal(next("where all ranks are: tracediff --full-stacks"), dumped);
    assert_int_equal(j.verdict.findings[0].stand_count, 2);
    assert_int_equal(j.verdict.findings[0].stands[1].stack != NULL, dumped);
    job_free(&j);
  }
}

static void facts_of_hardware_are_no_evidence_of_a_missing_call(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  struct nt_model_dump *made = dump(0);
  add_fact(made, "gpu.0.fault: GPU is lost", NT_FACT_OF_PROCESS, 0);
  made->missing = strdup("NVML (it is not there)");
  culprit();
  assert_int_equal(evidence("rank 0: gpu"), 0);
  assert_int_equal(evidence("rank 0: not asked"), 0);
  job_free(&j);
}

/* ---- loading ------------------------------------------------------------------------------------ */

static const char *const facts[][2] = {
    {"kernel.lines", "1"},
    {"kernel.1", "12 s ago: NVRM: Xid 79, GPU has fallen off the bus"},
    {"gpu.0.fault", "GPU is lost"},
    {"gpu.0.nvlink", "18 of 18 links are up"},
    {"gpu.1.nvlink", "16 of 18 links are up, without 4 5"},
    {"gpu.0.nvlink.3.crc_flit", "7"},
    {"gpu.0.clocks.held_by", "idle"},
    {"gpu.1.clocks.held_by", "hardware slowdown"},
    {"gpu.0.ecc.uncorrected", "0"},
    {"gpu.1.ecc.uncorrected", "2"},
    {"ib.mlx5_0.1", "ACTIVE, LinkUp, 400 Gb/sec"},
    {"ib.mlx5_1.1", "DOWN, Polling, 10 Gb/sec"},
    {"ib.mlx5_0.1.link_downed", "3"},
    {"ib.mlx5_0.1.port_rcv_errors", "3"},
    {"net.eth0", "up, 1000 Mb/s"},
    {"net.eth1", "down"},
    {"net.eth1.carrier_changes", "3"},
    {"net.eth2", "down"},
    {"net.eth2.carrier_changes", "1"},
    {"ras.1", "Job summary"},
    {"ras.2", "Errors"},
    {"ras.3", "======"},
    {"ras.4", "  INCOMPLETE"},
    {"missing.RAS", "it is asked by the process with local rank 0"},
    {"missing.NVML", "no permission"},
    {"missing.kernel-log", "/dev/kmsg: no permission"},
    {"missing.syscall", "no permission"},
};

static const char *const wanted[] = {
    "kernel log: NVRM: Xid 79, GPU has fallen off the bus",
    "gpu.0.fault: GPU is lost",
    "gpu.1.nvlink: 16 of 18 links are up, without 4 5",
    "gpu.0.nvlink.3.crc_flit: 7",
    "gpu.1.clocks.held_by: hardware slowdown",
    "gpu.1.ecc.uncorrected: 2",
    "ib.mlx5_1.1: DOWN, Polling, 10 Gb/sec",
    "ib.mlx5_0.1.link_downed: 3",
    "net.eth1: down",
    "NCCL RAS:   INCOMPLETE",
};

static void put_dump(struct fixture *f, int64_t began_ns) {
  struct nt_buffer section = {0};
  struct nt_dump_thread_facts thread = {.tid = (uint32_t)getpid(),
                                        .state = 'S',
                                        .flags = NT_DUMP_THREAD_MAIN,
                                        .syscall = NT_SYSCALL_NONE,
                                        .name = "python3"};
  const struct nt_dump_frame frames[] = {
      {.at = 5, .file = "/lib/python3.11/io.py", .file_length = 21, .name = "r", .name_length = 1},
      {.at = 41, .file = "/x/data.py", .file_length = 10, .name = "load", .name_length = 4}};
  const struct nt_dump_head head = {1,
                                    NT_DUMP_REQUESTED,
                                    NT_DUMP_THREADS,
                                    1u << NT_DUMP_THREADS,
                                    (uint64_t)began_ns,
                                    (uint64_t)began_ns};
  nt_dump_add_head(&section, &head);
  nt_dump_add_thread(&section, &thread);
  thread = (struct nt_dump_thread_facts){.tid = 77, .state = 'S', .name = "pool"};
  nt_dump_add_thread(&section, &thread);
  nt_dump_add_stack(&section, (uint32_t)getpid(), NT_DUMP_STACK_PYTHON, 0, frames, 2);
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
    nt_dump_add_fact(&section, facts[i][0], "%s", facts[i][1]);
  assert_int_equal(nt_drain_dump(f->drain, &section), 0);
  free(section.data);
}

static void only_what_a_finding_may_need_is_loaded(void **state) {
  (void)state;
  struct fixture f;
  struct nt_trace *trace;
  struct nt_trace_loader loader = {0};
  struct nt_error err;
  char path[700];
  const int64_t began = INT64_C(1764384000000000000);
  fixture_begin(&f);
  fixture_area(&f, 1 << 20);
  fixture_drain(&f, 8 << 20);
  fixture_calls(&f, 3);
  put_dump(&f, began);
  nt_drain_tick(f.drain, NT_DRAIN_FLUSH);
  assert_true(fixture_find(f.files, ".trace", path, sizeof path));
  assert_int_equal(nt_trace_open(path, NT_OPEN_NO_AREA, &trace, &err), 0);
  assert_int_equal(nt_trace_loader_add(&loader, trace, path, &err), 0);
  const struct nt_model_dump *dump = loader.model.ranks[0].dump;
  assert_non_null(dump);
  assert_int_equal(dump->thread_count, 1);
  assert_int_equal(dump->threads[0].thread, 1);
  assert_string_equal(dump->threads[0].place, "load() at data.py:41");
  assert_string_equal(dump->threads[0].doing, "sleeping");
  assert_string_equal(dump->threads[0].stack.user,
                      "(1 frame of the standard library)\ndata.py:41 load");
  assert_string_equal(dump->threads[0].stack.all, "io.py:5 r\ndata.py:41 load");
  assert_int_equal(dump->fact_count, sizeof wanted / sizeof *wanted);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    assert_string_equal(dump->facts[i].text, wanted[i]);
  assert_true(dump->facts[0].at_ns == began - INT64_C(12000000000));
  assert_int_equal(dump->facts[0].of, NT_FACT_OF_NODE);
  assert_int_equal(dump->facts[1].of, NT_FACT_OF_PROCESS);
  assert_string_equal(dump->missing, "NVML (no permission), kernel log (/dev/kmsg: no permission)");
  nt_trace_close(trace);
  nt_trace_loader_free(&loader);
  fixture_end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_culprit_is_where_its_dump_says),
      cmocka_unit_test(a_dump_of_before_the_last_call_says_nothing),
      cmocka_unit_test(next_is_a_dump_until_there_is_one),
      cmocka_unit_test(of_who_has_died_next_is_the_dump_in_its_trace),
      cmocka_unit_test(a_dump_without_stacks_or_of_before_the_stall_is_not_enough),
      cmocka_unit_test(of_another_thread_that_called_nccl_both_are_told),
      cmocka_unit_test(a_thread_inside_a_call_is_said_to_be_there),
      cmocka_unit_test(facts_of_hardware_are_evidence_of_a_standstill_outside),
      cmocka_unit_test(a_kernel_log_counts_from_the_job_s_start_and_of_its_own_processes),
      cmocka_unit_test(a_standstill_outside_tells_how_to_look_at_all_ranks),
      cmocka_unit_test(facts_of_hardware_are_no_evidence_of_a_missing_call),
      cmocka_unit_test(only_what_a_finding_may_need_is_loaded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
