/* SPDX-License-Identifier: Apache-2.0 */
/* One row a member; rows are compared place by place, so a member that is merely behind is no difference. */
#include "analysis/moved.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/graphs.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* Operations of one member; of more nothing is told. */
#define MOST_MOVED (1u << 20)

struct operation {
  int64_t enter_ns; /* of the call or the launch */
  uint64_t sig;     /* captured or not */
  uint32_t call, place;
  bool launched;
};

struct row {
  struct operation *list;
  uint32_t count, room;
  uint32_t captured; /* positions of its window that are captured */
};

struct lister {
  const struct nt_model_rank *rank;
  struct row *row;
  struct operation next;
  uint32_t view;
};

static int append(struct row *row, struct operation operation) {
  if (row->count == row->room) {
    uint32_t room = row->room ? 2 * row->room : 64;
    struct operation *list = realloc(row->list, room * sizeof *list);
    if (!list)
      return -NT_ERR_MEMORY;
    row->list = list;
    row->room = room;
  }
  operation.place = row->count;
  row->list[row->count++] = operation;
  return 0;
}

static int add_replayed(void *arg, uint32_t index) {
  struct lister *lister = arg;
  const struct nt_model_call *call = &lister->rank->calls[index];
  if (call->view != lister->view || !nt_fn_is_collective(call->fn) ||
      lister->row->count > MOST_MOVED)
    return 0;
  lister->next.sig = ~nt_call_signature(call);
  return append(lister->row, lister->next);
}

static int by_time(const void *a, const void *b) {
  const struct operation *x = a, *y = b;
  if (x->enter_ns != y->enter_ns)
    return x->enter_ns < y->enter_ns ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static int list_row(const struct nt_job *job, const struct nt_member *member, struct row *row) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  struct lister lister = {.rank = rank, .row = row, .view = member->view};
  struct nt_graphs graphs;
  int status = nt_graphs_build(rank, &graphs);
  for (uint32_t i = 0; i < rank->call_count && !status && row->count <= MOST_MOVED; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->enter_ns > job->cut_ns)
      continue;
    lister.next = (struct operation){.enter_ns = call->enter_ns, .call = i, .launched = true};
    if (nt_is_replay(call) && graphs.count) {
      status = nt_graphs_walk(&graphs, call->graph, add_replayed, &lister);
    } else if (call->view == member->view && nt_fn_is_collective(call->fn) && call->seq &&
               nt_call_counts(call)) {
      const bool captured = (call->flags & NT_CALL_CAPTURED) != 0;
      row->captured += captured;
      lister.next.launched = false;
      lister.next.sig = nt_call_signature(call);
      if (!captured)
        status = append(row, lister.next);
    }
  }
  nt_graphs_free(&graphs);
  if (row->count)
    qsort(row->list, row->count, sizeof *row->list, by_time);
  return status;
}

/* A look at the windows, since most communicators have no captured calls. */
static bool has_captured(const struct nt_job *job, const struct nt_joint *joint) {
  bool captured = false;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_rank *rank = nt_member_rank(job, member);
    if (rank->lost || rank->overwritten || rank->cut || member->first > 1)
      return false;
    for (uint32_t p = member->first; p <= member->called && !captured; p++) {
      const struct nt_model_call *call = nt_member_call(job, member, p);
      captured = call && (call->flags & NT_CALL_CAPTURED);
    }
  }
  return captured;
}

/* The first place, from 1, at which some called what others replayed; 0 if none. *alike: they moved the same as far as two of
 * them got, or at least up to there. */
static uint32_t first_mixed(const struct row *rows, uint32_t count, bool *alike) {
  uint32_t longest = 0;
  *alike = true;
  for (uint32_t i = 0; i < count; i++)
    longest = rows[i].count > longest ? rows[i].count : longest;
  for (uint32_t p = 0; p < longest; p++) {
    const struct operation *first = NULL;
    bool mixed = false;
    for (uint32_t i = 0; i < count; i++) {
      if (p >= rows[i].count)
        continue;
      const struct operation *own = &rows[i].list[p];
      first = first ? first : own;
      if (own->sig != first->sig) {
        *alike = false;
        return 0;
      }
      mixed |= own->launched != first->launched;
    }
    if (mixed)
      return p + 1;
  }
  return 0;
}

/* As far as all got: in another order only? */
static bool is_order(const struct row *rows, uint32_t count) {
  uint32_t shortest = UINT32_MAX, first = 0;
  for (uint32_t i = 0; i < count; i++)
    shortest = rows[i].count < shortest ? rows[i].count : shortest;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t launched = 0;
    for (uint32_t p = 0; p < shortest; p++)
      launched += rows[i].list[p].launched;
    first = i ? first : launched;
    if (launched != first)
      return false;
  }
  return true;
}

/* Does the position tell just the same already: who captured what the others called? */
static bool is_told(const struct nt_divergence *divergence, const struct row *rows, uint32_t count,
                    uint32_t mixed) {
  uint32_t next = 0, launched = 0, voters = 0;
  if (!divergence->position || !divergence->captured)
    return false;
  for (uint32_t i = 0; i < count; i++) {
    voters += rows[i].count >= mixed;
    launched += rows[i].count >= mixed && rows[i].list[mixed - 1].launched;
  }
  for (uint32_t i = 0; i < count; i++) {
    const bool deviates =
        next < divergence->deviation_count && divergence->deviations[next].member == i;
    next += deviates;
    if (rows[i].count < mixed
            ? deviates
            : deviates != (rows[i].list[mixed - 1].launched != (2 * launched > voters)))
      return false;
  }
  return true;
}

static int note_mixed(struct nt_divergence *divergence, const struct row *rows, uint32_t count,
                      uint32_t mixed) {
  nt_divergence_free(divergence);
  divergence->captured = true;
  divergence->mixed = malloc(count * sizeof *divergence->mixed);
  if (!divergence->mixed)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < count; i++)
    divergence->mixed[i] = rows[i].count < mixed ? NT_NONE : rows[i].list[mixed - 1].call;
  return 0;
}

/* Positions of the reference's calls that moved something, in *out; returns their number. */
static uint32_t list_called(const struct nt_job *job, const struct nt_member *reference,
                            uint32_t *out) {
  uint32_t count = 0;
  for (uint32_t p = reference->first; p <= reference->called; p++) {
    const struct nt_model_call *call = nt_member_call(job, reference, p);
    if (!call || !(call->flags & NT_CALL_CAPTURED))
      out[count++] = p;
  }
  return count;
}

/* The member's calls at the positions of the reference's; what that one captured is not known of this one. */
static int renumber(const struct nt_job *job, const uint32_t *positions, uint32_t known,
                    uint32_t last, struct nt_member *member) {
  uint32_t calls = 0, own = 0;
  uint32_t *called = malloc(((size_t)member->called + 1) * sizeof *called);
  if (!called)
    return -NT_ERR_MEMORY;
  calls = list_called(job, member, called);
  const uint32_t high = !calls ? 0 : calls <= known ? positions[calls - 1] : last + calls - known;
  uint32_t *call = malloc(((size_t)high + 1) * sizeof *call);
  uint64_t *sig = calloc((size_t)high + 1, sizeof *sig);
  if (!call || !sig) {
    free(called);
    free(call);
    free(sig);
    return -NT_ERR_MEMORY;
  }
  for (uint32_t p = 0; p < high; p++)
    call[p] = NT_NONE;
  for (; own < calls; own++) {
    const uint32_t to = (own < known ? positions[own] : last + 1 + own - known) - 1;
    call[to] = member->call[called[own] - member->first];
    sig[to] = member->sig[called[own] - member->first];
  }
  free(called);
  free(member->call);
  free(member->sig);
  member->call = call;
  member->sig = sig;
  member->first = 1;
  member->called = high;
  return 0;
}

/* Do captures alone explain why equal positions are not the same operation? Who is behind may lack the very call that others
 * captured, and that is another story. */
static bool only_captures_differ(const struct nt_job *job, const struct nt_joint *joint,
                                 const struct row *rows, const struct nt_divergence *divergence) {
  uint32_t shortest = UINT32_MAX;
  bool all = true, replays = false, more = false;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    shortest = rows[i].count < shortest ? rows[i].count : shortest;
    all &= rows[i].captured != 0;
  }
  bool ahead = false;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    ahead |= rows[i].count > shortest;
    replays |= rows[i].count > shortest && rows[i].list[shortest].launched;
    for (uint32_t j = 0; j < joint->member_count; j++)
      more |= rows[i].count == shortest && rows[j].count > shortest &&
              rows[i].captured > rows[j].captured;
  }
  if (replays && !all)
    return false;
  if (!divergence->position)
    return more;
  for (uint32_t i = 0; i < joint->member_count && ahead; i++) {
    const struct nt_model_call *call =
        nt_member_call(job, &joint->members[i], divergence->position);
    if (rows[i].count == shortest && call && (call->flags & NT_CALL_CAPTURED))
      return false;
  }
  return true;
}

static int renumber_all(const struct nt_job *job, struct nt_joint *joint, const struct row *rows,
                        struct nt_divergence *divergence) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < joint->member_count; i++)
    if (rows[i].captured < rows[best].captured ||
        (rows[i].captured == rows[best].captured &&
         joint->members[i].called > joint->members[best].called))
      best = i;
  const struct nt_member *reference = &joint->members[best];
  uint32_t *positions = malloc(((size_t)reference->called + 1) * sizeof *positions);
  int status = positions ? 0 : -NT_ERR_MEMORY;
  const uint32_t last = reference->called;
  const uint32_t known = status ? 0 : list_called(job, reference, positions);
  for (uint32_t i = 0; i < joint->member_count && !status; i++)
    if (i != best && (divergence->position || rows[i].captured != rows[best].captured))
      status = renumber(job, positions, known, last, &joint->members[i]);
  free(positions);
  nt_divergence_free(divergence);
  return status ? status : nt_align_joint(job, joint, divergence);
}

int nt_moved_settle(const struct nt_job *job, struct nt_joint *joint,
                    struct nt_divergence *divergence) {
  const uint32_t count = joint->member_count;
  if (count < 2 || divergence->hidden_high || !has_captured(job, joint))
    return 0;
  struct row *rows = calloc(count, sizeof *rows);
  int status = rows ? 0 : -NT_ERR_MEMORY;
  bool known = true, alike;
  for (uint32_t i = 0; i < count && !status; i++) {
    status = list_row(job, &joint->members[i], &rows[i]);
    known &= rows[i].count <= MOST_MOVED;
  }
  if (!status && known) {
    const uint32_t mixed = first_mixed(rows, count, &alike);
    if (mixed && !is_order(rows, count) && !is_told(divergence, rows, count, mixed))
      status = note_mixed(divergence, rows, count, mixed);
    else if (!mixed && alike && only_captures_differ(job, joint, rows, divergence))
      status = renumber_all(job, joint, rows, divergence);
  }
  for (uint32_t i = 0; rows && i < count; i++)
    free(rows[i].list);
  free(rows);
  return status;
}
