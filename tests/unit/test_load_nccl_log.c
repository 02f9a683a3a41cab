/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's own logs: every spelling from 2.18 to 2.30, files of many processes, and what is damaged. */
#include <dirent.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/load_nccl_log.h"
#include "analysis/load_source.h"
#include "analysis/verdict.h"
#include "nccl/nccl_api.h"

enum { RANKS = 4 };

/* A job's logs, one text for each file, and what is made of them. */
struct logs {
  char *text[RANKS];
  size_t size[RANKS];
  FILE *file[RANKS];
  struct nt_trace_loader loader;
  struct nt_model model;
  struct nt_verdict verdict;
  bool judged;
};

static void begin(struct logs *logs) {
  memset(logs, 0, sizeof *logs);
  for (int i = 0; i < RANKS; i++) {
    logs->file[i] = open_memstream(&logs->text[i], &logs->size[i]);
    assert_non_null(logs->file[i]);
  }
}

__attribute__((format(printf, 3, 4))) static void say(struct logs *logs, int rank,
                                                      const char *format, ...) {
  va_list arguments;
  fprintf(logs->file[rank], "node1:%d:%d [0] NCCL INFO ", 100 + rank, 100 + rank);
  va_start(arguments, format);
  vfprintf(logs->file[rank], format, arguments);
  va_end(arguments);
  fputc('\n', logs->file[rank]);
}

static void init(struct logs *logs, int rank, uint64_t id) {
  for (int i = 0; i < 2; i++)
    say(logs, rank,
        "ncclCommInitRankConfig comm 0x%x rank %d nranks 4 cudaDev 0 nvmlDev 0 busId 60 commId "
        "0x%llx - Init %s",
        0x1000 + rank, rank, (unsigned long long)id, i ? "COMPLETE" : "START");
}

static void reduce(struct logs *logs, int rank, unsigned count) {
  say(logs, rank,
      "AllReduce: opCount %x sendbuff 0x7f00 recvbuff 0x7f00 count %u datatype 7 op 0 root 0 comm "
      "0x%x [nranks=4] stream (nil)",
      count, 1024 + count, 0x1000 + rank);
}

static int load(struct logs *logs, int rank, struct nt_error *err) {
  char name[32];
  if (logs->file[rank])
    fclose(logs->file[rank]);
  logs->file[rank] = NULL;
  /* An exact allocation, so that a sanitizer sees the first byte read past the end. */
  uint8_t *bytes = malloc(logs->size[rank] + !logs->size[rank]);
  assert_non_null(bytes);
  memcpy(bytes, logs->text[rank], logs->size[rank]);
  snprintf(name, sizeof name, "log.%d", rank);
  int status = nt_load_nccl_log(&logs->loader, name, bytes, logs->size[rank], err);
  free(bytes);
  return status;
}

static const struct nt_finding *finish(struct logs *logs) {
  assert_int_equal(nt_number_log_ranks(&logs->loader.model), 0);
  assert_int_equal(nt_trace_loader_finish(&logs->loader, 0, &logs->model), 0);
  assert_int_equal(nt_verdict_make(&logs->model, &logs->verdict), 0);
  logs->judged = true;
  return logs->verdict.count ? &logs->verdict.findings[0] : NULL;
}

static const struct nt_finding *judge(struct logs *logs) {
  struct nt_error err;
  for (int i = 0; i < RANKS; i++)
    assert_int_equal(load(logs, i, &err), 0);
  return finish(logs);
}

static void end(struct logs *logs) {
  for (int i = 0; i < RANKS; i++) {
    if (logs->file[i])
      fclose(logs->file[i]);
    free(logs->text[i]);
  }
  nt_trace_loader_free(&logs->loader);
  if (logs->judged)
    nt_verdict_free(&logs->verdict);
  nt_model_free(&logs->model);
}

static void assert_finding(const struct nt_finding *finding, enum nt_class class, uint32_t seq,
                           const char *blame) {
  char text[64];
  assert_non_null(finding);
  assert_string_equal(nt_class_name(finding->class), nt_class_name(class));
  assert_int_equal(finding->seq, seq);
  assert_string_equal(nt_rank_set_text(text, sizeof text, &finding->blame), blame);
}

static bool is_noted(const struct nt_model *model, const char *words) {
  for (uint32_t i = 0; i < model->note_count; i++)
    if (strstr(model->notes[i], words))
      return true;
  return false;
}

static void a_rank_that_skips_a_call_is_found(void **state) {
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) {
    init(&logs, rank, 7);
    for (unsigned i = 0; i < 10; i++)
      if (rank != 2 || i != 6)
        reduce(&logs, rank, i);
  }
  assert_finding(judge(&logs), NT_CLASS_MISSING, 7, "2");
  assert_int_equal(logs.verdict.findings[0].confidence, NT_LIKELY);
  end(&logs);
}

static void equal_logs_are_consistent(void **state) {
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) {
    init(&logs, rank, 7);
    for (unsigned i = 0; i < 10; i++)
      reduce(&logs, rank, i);
  }
  assert_null(judge(&logs));
  assert_false(logs.verdict.moving);
  assert_int_equal(logs.model.expected, 4);
  end(&logs);
}

/* Nothing of what a log does not tell may be made up: neither a state, nor a time, nor progress. */
static void what_a_log_does_not_tell_stays_unknown(void **state) {
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) {
    init(&logs, rank, 7);
    reduce(&logs, rank, 0);
  }
  judge(&logs);
  for (uint32_t r = 0; r < logs.model.rank_count; r++) {
    const struct nt_model_rank *rank = &logs.model.ranks[r];
    assert_int_equal(rank->recorder, NT_RECORDER_LOG);
    assert_int_equal(rank->state, NT_PROCESS_UNKNOWN);
    assert_int_equal(rank->last_beat_ns, 0);
    assert_int_equal(rank->exit_ns, 0);
    for (uint32_t i = 0; i < rank->call_count; i++) {
      assert_int_equal(rank->calls[i].progress, NT_PROGRESS_UNKNOWN);
      assert_int_equal(rank->calls[i].at, 0);
      assert_true(rank->calls[i].enter_ns < INT64_C(1) << 32);
    }
  }
  end(&logs);
}

static void one_whose_peer_was_gone_is_not_blamed(void **state) {
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) {
    init(&logs, rank, 7);
    for (unsigned i = 0; i < (rank == 1 || rank == 2 ? 6 : 7); i++)
      reduce(&logs, rank, i);
  }
  fputs("\n[2026-11-29 15:13:47] node1:102:140 [0] misc/socket.cc:72 NCCL WARN socketProgress: "
        "Connection closed by remote peer localhost<50762>\n",
        logs.file[2]);
  say(&logs, 2, "transport/net.cc:1508 -> 6");
  assert_finding(judge(&logs), NT_CLASS_MISSING, 7, "1");
  assert_true(is_noted(&logs.model,
                       "log.2: line 10: rank 2 (node1:102) warns: socketProgress: Connection"));
  assert_true(is_noted(&logs.model, "log.2: line 11: rank 2 (node1:102) lost a connection"));
  end(&logs);
}

static void where_all_that_are_behind_lost_a_peer_nobody_is_blamed(void **state) {
  struct logs logs;
  struct nt_error err;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) {
    init(&logs, rank, 7);
    for (unsigned i = 0; i < (rank == 2 ? 6 : 7); i++)
      reduce(&logs, rank, i);
  }
  say(&logs, 2, "proxy.cc:965 -> 6 [Progress Thread]");
  for (int rank = 0; rank < RANKS; rank++)
    if (rank != 1)
      assert_int_equal(load(&logs, rank, &err), 0);
  assert_finding(finish(&logs), NT_CLASS_UNDECIDED, 7, "none");
  end(&logs);
}

/* As each release writes a creation, a split of it and its end. */
static const struct spelling {
  const char *release, *start, *complete, *split_start, *split_complete, *destroyed;
} spellings[] = {
    {"2.18.1", NULL, "comm %p rank %d nranks %d cudaDev 0 busId 60 commId 0x%llx - Init COMPLETE",
     NULL, "comm %p rank %d nranks %d cudaDev 0 busId 60 commId 0x%llx - Init COMPLETE",
     "comm %p rank %d nranks %d cudaDev 0 busId 60 - Destroy COMPLETE"},
    {"2.20.5", "comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx - Init START",
     "comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx - Init COMPLETE",
     "comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx - Init START",
     "comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx - Init COMPLETE",
     "comm %p rank %d nranks %d cudaDev 0 busId 60 - Destroy COMPLETE"},
    {"2.22.3",
     "ncclCommInitRank comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx - Init "
     "START",
     "ncclCommInitRank comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx - Init "
     "COMPLETE",
     "ncclCommSplit comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 parent 0x1 color 0 key "
     "0 commId 0x%llx - Init START",
     "ncclCommSplit comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 parent 0x1 color 0 key "
     "0 commId 0x%llx - Init COMPLETE",
     "comm %p rank %d nranks %d cudaDev 0 busId 60 - Destroy COMPLETE"},
    {"2.23.4",
     "ncclCommInitRank comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx - Init "
     "START",
     "ncclCommInitRank comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx - Init "
     "COMPLETE",
     "ncclCommSplit comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 parent 0x1 color 0 key "
     "0- Init START",
     "ncclCommSplit comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 parent 0x1 color 0 key "
     "0 - Init COMPLETE",
     "comm %p rank %d nranks %d cudaDev 0 busId 60 - Destroy COMPLETE"},
    {"2.28.9",
     "ncclCommInitRankConfig comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx "
     "- Init START",
     "ncclCommInitRankConfig comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx "
     "- Init COMPLETE",
     "ncclCommSplit comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 parent 0x1 splitCount 1 "
     "color 0 key 0- Init START",
     "ncclCommSplit comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 parent 0x1 splitCount 1 "
     "color 0 key 0 - Init COMPLETE",
     "comm %p rank %d nranks %d cudaDev 0 busId 60 - Destroy COMPLETE"},
    {"2.30.7",
     "[Rank 0] ncclCommInitRankConfig comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 "
     "commId "
     "0x%llx - Init START",
     "ncclCommInitRankConfig comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 commId 0x%llx "
     "- Init COMPLETE",
     "ncclCommSplit comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 parent 0x1 childCount 1 "
     "color 0 key 0- Init START",
     "ncclCommSplit comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 60 parent 0x1 childCount 1 "
     "color 0 key 0 - Init COMPLETE",
     "comm %p rank %d nranks %d cudaDev 0 busId 60 - Destroy COMPLETE"},
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
static void spell(struct logs *logs, int rank, const char *format, void *comm, uint64_t id) {
  if (format)
    say(logs, rank, format, comm, rank, RANKS, (unsigned long long)id);
}
#pragma GCC diagnostic pop

/* Each release's lines name the same two communicators; on the second, rank 3 calls once less. */
static void every_release_is_read(void **state) {
  (void)state;
  for (size_t s = 0; s < sizeof spellings / sizeof *spellings; s++) {
    const struct spelling *as = &spellings[s];
    struct logs logs;
    begin(&logs);
    for (int rank = 0; rank < RANKS; rank++) {
      void *comm = (void *)(uintptr_t)1, *child = (void *)(uintptr_t)0xabc0;
      spell(&logs, rank, as->start, comm, 5);
      spell(&logs, rank, as->complete, comm, 5);
      spell(&logs, rank, as->split_start, child, 6);
      spell(&logs, rank, as->split_complete, child, 6);
      for (int i = 0; i < 3 - (rank == 3); i++)
        say(&logs, rank,
            "ReduceScatter: opCount %x sendbuff 0x1 recvbuff 0x2 count 16 datatype 9 op 4 root 0 "
            "comm 0xabc0 [nranks=4] stream 0x55",
            i);
      if (rank == 0)
        spell(&logs, rank, as->destroyed, comm, 0);
    }
    const struct nt_finding *finding = judge(&logs);
    assert_finding(finding, NT_CLASS_MISSING, 3, "3");
    assert_int_equal(finding->fn, NT_FN_ReduceScatter);
    assert_int_equal(logs.verdict.job.joint_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
      assert_int_equal(logs.verdict.job.joints[i].size, 4);
      assert_int_equal(logs.verdict.job.joints[i].member_count, 4);
    }
    assert_int_equal(logs.model.ranks[0].views[0].state, NT_COMM_DESTROYED);
    assert_int_equal(logs.model.ranks[1].views[0].state, NT_COMM_LIVE);
    end(&logs);
  }
}

static void sends_and_receives_pair_up_by_peer(void **state) {
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) {
    init(&logs, rank, 7);
    for (int peer = 0; peer < RANKS && rank == 0; peer++)
      if (peer)
        say(&logs, 0,
            "Send: opCount 0 sendbuff (nil) recvbuff 0x7f00 count 8 datatype 7 op 0 root %d comm "
            "0x1000 [nranks=4] stream 0x1",
            peer);
    if (rank && rank != 3)
      say(&logs, rank,
          "Recv: opCount 0 sendbuff (nil) recvbuff 0x7f00 count 8 datatype 7 op 0 root 0 comm 0x%x "
          "[nranks=4] stream 0x1",
          0x1000 + rank);
  }
  const struct nt_finding *finding = judge(&logs);
  assert_int_equal(logs.model.ranks[0].calls[1].group, 1); /* one launch, so one group */
  if (finding)
    assert_int_not_equal(nt_rank_set_has(&finding->blame, 1), true);
  end(&logs);
}

static void a_creation_without_its_end_is_open(void **state) {
  struct logs logs;
  struct nt_error err;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < 3; rank++)
    say(&logs, rank,
        "ncclCommInitRank comm 0x1 rank %d nranks 4 cudaDev 0 nvmlDev 0 busId 60 commId 0x9 - Init "
        "START",
        rank);
  for (int rank = 0; rank < 3; rank++)
    assert_int_equal(load(&logs, rank, &err), 0);
  const struct nt_finding *finding = finish(&logs);
  assert_finding(finding, NT_CLASS_INIT, 1, "3");
  end(&logs);
}

/* One file of the whole job, with what launchers put in front. */
static void one_file_may_hold_all_processes(void **state) {
  static const char *const prefixes[] = {
      "", "[rank%d]:", "[default%d]:", "%d: ", "[1,%d]<stdout>:", "2026-11-29T15:13:47.120 "};
  (void)state;
  for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
    struct logs logs;
    struct nt_error err;
    char *line[RANKS], prefix[32];
    begin(&logs);
    for (int rank = 0; rank < RANKS; rank++) {
      init(&logs, rank, 7);
      for (unsigned i = 0; i < 10; i++)
        if (rank != 2 || i != 6)
          reduce(&logs, rank, i);
      fflush(logs.file[rank]);
      line[rank] = logs.text[rank];
    }
    char *all = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&all, &size);
    fputs("NCCL version 2.28.9+cuda13.0\nepoch 1: 10%\r\n", file);
    for (int left = RANKS; left;) {
      left = 0;
      for (int rank = RANKS; rank-- > 0;) {
        char *next = *line[rank] ? strchr(line[rank], '\n') : NULL;
        if (!next)
          continue;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
        snprintf(prefix, sizeof prefix, prefixes[p], rank);
#pragma GCC diagnostic pop
        fprintf(file, "%s%.*s\n", prefix, (int)(next - line[rank]), line[rank]);
        line[rank] = next + 1;
        left++;
      }
    }
    fclose(file);
    assert_true(nt_is_nccl_log((const uint8_t *)all, size));
    assert_int_equal(nt_load_nccl_log(&logs.loader, "all.log", (const uint8_t *)all, size, &err),
                     0);
    free(all);
    assert_int_equal(logs.loader.model.rank_count, 4);
    bool labelled = strchr(prefixes[p], '%') != NULL;
    assert_int_equal(logs.loader.model.ranks[0].world, labelled ? 3 : -1);
    assert_finding(finish(&logs), NT_CLASS_MISSING, 7, "2");
    end(&logs);
  }
}

static void lines_that_ran_into_each_other_are_told_apart(void **state) {
  struct logs logs;
  struct nt_error err;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++)
    init(&logs, rank, 7);
  fputs("node1:100:100 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f00 recvbunode1:101:101 [0] "
        "NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 1024 datatype 7 op 0 root "
        "0 comm 0x1001 [nranks=4] stream (nil)\n",
        logs.file[1]);
  for (int rank = 0; rank < RANKS; rank++)
    if (rank)
      assert_int_equal(load(&logs, rank, &err), 0);
  /* In this file rank 0's call was cut off, and rank 1's is whole. */
  const struct nt_model *model = &logs.loader.model;
  for (uint32_t r = 0; r < model->rank_count; r++)
    if (model->ranks[r].pid == 101) {
      assert_int_equal(model->ranks[r].call_count, 2);
      assert_int_equal(model->ranks[r].calls[1].fn, NT_FN_AllReduce);
    }
  assert_true(is_noted(model, "log.1: line 3: a call or a creation is cut off there"));
  end(&logs);
}

/* Else the rank would look as if it had stood still. */
static void a_rank_whose_log_is_cut_is_not_blamed(void **state) {
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) {
    init(&logs, rank, 7);
    for (unsigned i = 0; i < (rank == 2 ? 5 : 9); i++)
      reduce(&logs, rank, i);
  }
  fputs("node1:102:102 [0] NCCL INFO AllReduce: opCou", logs.file[2]);
  const struct nt_finding *finding = judge(&logs);
  if (finding)
    assert_false(nt_rank_set_has(&finding->blame, 2) && finding->confidence != NT_UNDECIDED);
  assert_int_equal(logs.model.rank_count, 3);
  assert_true(is_noted(&logs.model, "log.2 is cut short or damaged"));
  end(&logs);
}

static void repeated_identities_are_communicators_of_their_own(void **state) {
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) {
    init(&logs, rank, 7); /* NCCL_COMM_ID makes all ids equal, and addresses are used again */
    reduce(&logs, rank, 0);
    init(&logs, rank, 7);
    for (unsigned i = 0; i < (rank == 1 ? 1 : 2); i++)
      reduce(&logs, rank, i);
  }
  const struct nt_finding *finding = judge(&logs);
  assert_finding(finding, NT_CLASS_MISSING, 2, "1");
  assert_int_equal(logs.verdict.job.joint_count, 2);
  end(&logs);
}

static void operators_of_the_application_are_compared_by_their_order(void **state) {
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) {
    init(&logs, rank, 7);
    say(&logs, rank,
        "AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 8 datatype 7 op %d root 0 comm 0x%x "
        "[nranks=4] stream 0x1",
        70000 + 13 * rank, 0x1000 + rank);
  }
  assert_null(judge(&logs));
  end(&logs);
}

static void processes_without_a_common_communicator_are_numbered(void **state) {
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++) { /* a ring of pairs: 0-1, 1-2, 2-3, 3-0 */
    for (int k = 0; k < 2; k++) {
      int pair = (rank + k) % RANKS;
      say(&logs, rank,
          "ncclCommInitRank comm 0x%x rank %d nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x%x - "
          "Init COMPLETE",
          0x10 + k, 1 - k, 0x900 + pair);
    }
  }
  judge(&logs);
  assert_int_equal(logs.model.rank_count, 4);
  for (int i = 0; i < RANKS; i++)
    assert_int_equal(logs.model.ranks[i].pid, 100 + i);
  assert_true(is_noted(&logs.model, "no communicator spans all processes"));
  end(&logs);
}

static void several_ranks_of_one_process_are_told_apart(void **state) {
  struct logs logs;
  struct nt_error err;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++)
    fprintf(
        logs.file[0],
        "node1:9:%d [%d] NCCL INFO ncclCommInitAll comm 0x%x rank %d nranks 4 cudaDev %d nvmlDev "
        "%d busId %d0 commId 0x7 - Init COMPLETE\n",
        10 + rank, rank, 0x1000 + rank, rank, rank, rank, rank);
  for (int rank = 0; rank < RANKS; rank++)
    for (int i = 0; i < (rank == 3 ? 1 : 2); i++)
      fprintf(logs.file[0],
              "node1:9:9 [%d] NCCL INFO AllReduce: opCount %d sendbuff 0x1 recvbuff 0x1 count 8 "
              "datatype 7 op 0 root 0 comm 0x%x [nranks=4] stream 0x1\n",
              rank, i, 0x1000 + rank);
  assert_int_equal(load(&logs, 0, &err), 0);
  assert_finding(finish(&logs), NT_CLASS_MISSING, 2, "3");
  assert_int_equal(logs.model.rank_count, 4);
  end(&logs);
}

static int refused(const char *text, size_t size, struct nt_error *err) {
  struct nt_trace_loader loader = {0};
  int status = nt_load_nccl_log(&loader, "a log", (const uint8_t *)text, size, err);
  assert_int_equal(loader.model.rank_count, 0);
  nt_trace_loader_free(&loader);
  return status;
}

static void a_log_without_communicators_is_refused_with_what_to_set(void **state) {
  static const char calls[] =
      "h:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 8 datatype 7 op 0 "
      "root 0 comm 0x9 [nranks=4] stream 0x1\n";
  struct nt_error err;
  (void)state;
  assert_true(nt_is_nccl_log((const uint8_t *)calls, sizeof calls - 1));
  assert_int_equal(refused(calls, sizeof calls - 1, &err), -NT_ERR_FOREIGN);
  assert_non_null(strstr(err.reason, "NCCL_DEBUG_SUBSYS=INIT,COLL"));
  assert_int_equal(refused("", 0, &err), -NT_ERR_FOREIGN);
}

static void what_is_no_log_is_none(void **state) {
  static const char *const texts[] = {
      "",
      "NCCL INFO\n",
      " NCCL INFO x\n",
      "a:1 [0] NCCL INFO x\n",
      "a:1:1 [x] NCCL INFO x\n",
      ":1:1 [0] NCCL INFO x\n",
      "a:99999999999:1 [0] NCCL INFO x\n",
      "a:1:1 [0]NCCL INFO x\n",
      "see NCCL INFO lines such as a:1:1 [0]\n",
  };
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    assert_false(nt_is_nccl_log((const uint8_t *)texts[i], strlen(texts[i])));
}

/* Numbers that no NCCL writes, and bytes that are no text. */
static void hostile_values_do_no_harm(void **state) {
  static const char *const lines[] = {
      "AllReduce: opCount ffffffffffffffffffff sendbuff 0x1 recvbuff 0x1 count 8 datatype 7 op 0 "
      "root 0 comm 0x1000 [nranks=4] stream 0x1",
      "AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 99999999999999999999999 datatype 7 op "
      "0 "
      "root 0 comm 0x1000 [nranks=4] stream 0x1",
      "Send: opCount 0 sendbuff 0x1 recvbuff 0x1 count 8 datatype -7 op -9 root -2147483647 comm "
      "0x1000 [nranks=4] stream 0x1",
      "Nonsense: opCount 0 sendbuff 0x1 recvbuff 0x1 count 8 datatype 7 op 0 root 0 comm 0x1000 "
      "[nranks=4] stream 0x1",
      "ncclCommInitRank comm 0x5 rank 2000000000 nranks 2147483647 cudaDev 0 nvmlDev 0 busId "
      "ffffffffffffffff commId 0x1 - Init START",
      "ncclCommSplit comm 0x6 rank -5 nranks -1 cudaDev 0 nvmlDev 0 busId 0 parent 0x6 splitCount "
      "18446744073709551615 color -1 key 0- Init START",
      "comm 0x77 rank 0 nranks 4 cudaDev 0 busId 60 - Abort COMPLETE",
      " comm ",
      "ncclCommSplit comm ",
      ": opCount",
      "\x01\xff\xfe -> 6:",
  };
  struct logs logs;
  (void)state;
  begin(&logs);
  for (int rank = 0; rank < RANKS; rank++)
    init(&logs, rank, 7);
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    say(&logs, 0, "%s", lines[i]);
  fwrite("node1:100:100 [0] NCCL INFO \0\0\0", 1, 31, logs.file[0]);
  judge(&logs);
  end(&logs);
}

/* Real logs of known faults, where there are some: NT_LOGS=DIR with DIR/CASE/FILE. */
static void real_logs_name_the_culprit(void **state) {
  static const struct {
    const char *name;
    enum nt_class class;
    uint32_t seq;
    const char *blame;
  } cases[] = {{"skip", NT_CLASS_MISSING, 7, "2"},
               {"optype", NT_CLASS_MISMATCH, 5, "3"},
               {"killed", NT_CLASS_MISSING, 7, "1"}};
  const char *directory = getenv("NT_LOGS");
  (void)state;
  if (!directory)
    directory = "../shared/data/nccl-log";
  if (access(directory, R_OK) != 0) {
    print_message("no real logs in %s (NT_LOGS)\n", directory);
    skip();
  }
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct logs logs;
    begin(&logs);
    char command[4096];
    snprintf(command, sizeof command, "%s/%s", directory, cases[c].name);
    DIR *open = opendir(command);
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open));) {
      char path[8192];
      struct nt_error err;
      snprintf(path, sizeof path, "%s/%s", command, entry->d_name);
      if (entry->d_name[0] == '.')
        continue;
      assert_int_equal(nt_source_detect(path, false, false), NT_RECORDER_LOG);
      assert_int_equal(nt_source_load(&logs.loader, NT_RECORDER_LOG, path, &err), 0);
    }
    closedir(open);
    assert_finding(finish(&logs), cases[c].class, cases[c].seq, cases[c].blame);
    end(&logs);
  }
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_rank_that_skips_a_call_is_found),
      TEST(equal_logs_are_consistent),
      TEST(what_a_log_does_not_tell_stays_unknown),
      TEST(one_whose_peer_was_gone_is_not_blamed),
      TEST(where_all_that_are_behind_lost_a_peer_nobody_is_blamed),
      TEST(every_release_is_read),
      TEST(sends_and_receives_pair_up_by_peer),
      TEST(a_creation_without_its_end_is_open),
      TEST(one_file_may_hold_all_processes),
      TEST(lines_that_ran_into_each_other_are_told_apart),
      TEST(a_rank_whose_log_is_cut_is_not_blamed),
      TEST(repeated_identities_are_communicators_of_their_own),
      TEST(operators_of_the_application_are_compared_by_their_order),
      TEST(processes_without_a_common_communicator_are_numbered),
      TEST(several_ranks_of_one_process_are_told_apart),
      TEST(a_log_without_communicators_is_refused_with_what_to_set),
      TEST(what_is_no_log_is_none),
      TEST(hostile_values_do_no_harm),
      TEST(real_logs_name_the_culprit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
