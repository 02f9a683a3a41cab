/* SPDX-License-Identifier: Apache-2.0 */
/* Knots of thousands of ranks: what is asked of each must not grow with all others. */
#include "model_builder.h"

enum { RANKS = 4096, TURNS = 3 };

static struct nt_model model;
static struct nt_verdict verdict;

static void add_view(struct nt_model_rank *rank, uint8_t id, int32_t own, const char *name) {
  struct nt_model_view *view = nt_model_add_view(rank);
  memset(view->id, id, sizeof view->id);
  memset(view->uid_hash, id, sizeof view->uid_hash);
  view->number = id;
  view->rank = own;
  view->nranks = RANKS;
  view->ordinal = 1;
  view->origin = NT_COMM_INIT;
  view->state = NT_COMM_LIVE;
  view->created_ns = MS;
  snprintf(view->name, sizeof view->name, "%s", name);
}

/* View 0: W, view 1: P. Each call at the same moment on all ranks, and at a line of its own. */
static void add_call(struct nt_model_rank *rank, uint8_t fn, int32_t peer, uint32_t seq,
                     uint32_t line) {
  struct nt_model_call *call = nt_model_add_call(rank);
  char site[32];
  call->enter_ns = INT64_C(1764384000000) * MS + rank->call_count * MS;
  call->exit_ns = call->enter_ns + MS / 2;
  call->view = fn != NT_FN_AllReduce;
  call->fn = fn;
  call->count = 1 << 20;
  call->dtype = ncclFloat32;
  call->op = fn == NT_FN_AllReduce ? ncclSum : 255;
  call->peer = peer;
  call->seq = seq;
  call->stream = 1;
  snprintf(site, sizeof site, "train.py:%u step", line);
  call->at = nt_model_add_site(rank, site);
  rank->total_calls++;
}

static struct nt_model_rank *add_rank(uint32_t r) {
  struct nt_model_rank *rank = nt_model_add_rank(&model);
  rank->world = (int32_t)r;
  rank->world_size = RANKS;
  rank->pid = 1000 + r;
  rank->host = strdup("node");
  rank->state = NT_PROCESS_RUNNING;
  rank->started_ns = MS;
  rank->live = true;
  add_view(rank, 1, (int32_t)r, "W");
  add_view(rank, 2, (int32_t)r, "P");
  return rank;
}

static void add_turn(struct nt_model_rank *rank, uint32_t r, uint32_t turn) {
  add_call(rank, NT_FN_AllReduce, -1, turn, 1);
  add_call(rank, NT_FN_Send, (int32_t)((r + 1) % RANKS), turn, 2);
  add_call(rank, NT_FN_Recv, (int32_t)((r + RANKS - 1) % RANKS), turn, 3);
}

static void block(struct nt_model_rank *rank) {
  rank->calls[rank->call_count - 1].exit_ns = 0;
}

static void judge(void) {
  const struct nt_model_rank *first = &model.ranks[0];
  model.now_ns = first->calls[first->call_count - 1].enter_ns + JOB_LOOK_MS * MS;
  for (uint32_t r = 0; r < RANKS; r++)
    model.ranks[r].last_beat_ns = model.now_ns;
  assert_int_equal(nt_model_settle(&model), 0);
  assert_int_equal(nt_verdict_make(&model, &verdict), 0);
}

static void release(void) {
  nt_verdict_free(&verdict);
  nt_model_free(&model);
  memset(&model, 0, sizeof model);
}

static void all_receive_first_around_a_ring_of_thousands(void **state) {
  (void)state;
  for (uint32_t r = 0; r < RANKS; r++) {
    struct nt_model_rank *rank = add_rank(r);
    for (uint32_t t = 1; t <= TURNS; t++)
      add_turn(rank, r, t);
    add_call(rank, NT_FN_Recv, (int32_t)((r + RANKS - 1) % RANKS), TURNS + 1, 3);
    block(rank);
  }
  judge();
  assert_int_equal(nt_verdict_class(&verdict), NT_CLASS_P2P);
  release();
}

static void one_of_thousands_leaves_its_messages_out_and_reduces(void **state) {
  (void)state;
  for (uint32_t r = 0; r < RANKS; r++) {
    struct nt_model_rank *rank = add_rank(r);
    for (uint32_t t = 1; t <= TURNS; t++)
      add_turn(rank, r, t);
    add_call(rank, NT_FN_AllReduce, -1, TURNS + 1, 1);
    if (r == 7) {
      add_call(rank, NT_FN_AllReduce, -1, TURNS + 2, 1);
    } else {
      add_call(rank, NT_FN_Recv, (int32_t)((r + RANKS - 1) % RANKS), TURNS + 1, 3);
    }
    block(rank);
  }
  judge();
  assert_string_equal(set_text(&verdict.findings[0].blame), "7");
  release();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_receive_first_around_a_ring_of_thousands),
      cmocka_unit_test(one_of_thousands_leaves_its_messages_out_and_reduces),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
