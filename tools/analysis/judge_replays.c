/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of a communicator that replay different graphs, and what the graphs hold that findings speak of.
 *
 * A graph is what it holds on the communicator: its numbers differ between ranks, and may. Those that replay
 * another one than more than half of the ranks are to blame.
 */
#include <stdio.h>
#include <stdlib.h>

#include "analysis/describe.h"
#include "analysis/edit.h"
#include "analysis/graphs.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "cli/call_text.h"
#include "nccl/nccl_api.h"

enum { TOLD_OPERATIONS = 4 };

static uint32_t graph_at(const struct nt_inquiry *inquiry, uint32_t joint, uint32_t member,
                         uint32_t position, uint32_t *rank) {
  const struct nt_replay *replay = nt_replay_at(&inquiry->waits.replays, joint, member, position);
  *rank = inquiry->job->joints[joint].members[member].rank;
  return replay ? inquiry->job->model->ranks[*rank].calls[replay->call].graph : 0;
}

/* "AllReduce #2 (1 Ki x f32 sum), Send (…), and 7 more": of one communicator, or (NT_NONE) of all. Where the first was
 * captured goes to *site, NULL if that is not known. */
static void content_text(char *out, size_t size, const struct nt_inquiry *inquiry, uint32_t rank,
                         uint32_t graph, uint32_t joint, const char **site) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  char name[64], arguments[128], place[16];
  uint32_t count, *list = nt_graph_operations(inquiry->job, rank, graph, joint, &count);
  size_t used = 0;
  snprintf(out, size, "what is not known");
  *site = count ? nt_model_site(model, model->calls[list[0]].at) : NULL;
  for (uint32_t i = 0; i < count && i < TOLD_OPERATIONS && used < size; i++) {
    const struct nt_model_call *call = &model->calls[list[i]];
    snprintf(place, sizeof place, call->seq ? " #%u" : "", call->seq);
    int n = snprintf(out + used, size - used, "%s%s%s (%s)", i ? ", " : "",
                     nt_call_function(name, sizeof name, call->fn), place,
                     nt_describe_arguments(arguments, sizeof arguments, call));
    used += n > 0 ? (size_t)n : 0;
  }
  if (count > TOLD_OPERATIONS && used < size)
    snprintf(out + used, size - used, ", and %u more", count - TOLD_OPERATIONS);
  free(list);
}

/* Which launch of its graph it is, from 1; and of how many. */
static uint32_t launch_number(const struct nt_model_rank *rank, uint32_t call, uint32_t *of) {
  uint32_t number = 0;
  *of = 0;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (nt_is_replay(&rank->calls[i]) && rank->calls[i].graph == rank->calls[call].graph) {
      (*of)++;
      number += rank->calls[i].enter_ns < rank->calls[call].enter_ns || i == call;
    }
  return number;
}

static void say_graph(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t member) {
  char text[2 * NT_DESCRIBE];
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  const struct nt_model_rank *rank = nt_member_rank(inquiry->job, &joint->members[member]);
  const struct nt_replay *replay =
      nt_replay_at(&inquiry->waits.replays, finding->joint, member, finding->seq);
  uint32_t of, number = launch_number(rank, replay->call, &of);
  const char *at = nt_model_site(rank, rank->calls[replay->call].at), *site;
  content_text(text, sizeof text, inquiry, joint->members[member].rank,
               rank->calls[replay->call].graph, finding->joint, &site);
  nt_lines_add(&finding->evidence,
               "rank %d replays a captured graph with %s%s%s; it is launch %u of %u of that graph"
               "%s%s",
               rank->world, text, site ? ", captured at " : "", site ? site : "", number, of,
               at ? ", at " : "", at ? at : "");
}

void nt_say_launch(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t rank,
                   uint32_t call) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  const struct nt_model_call *launch = &model->calls[call];
  char text[2 * NT_DESCRIBE];
  uint32_t of, number = launch_number(model, call, &of);
  const char *at = nt_model_site(model, launch->at), *site;
  content_text(text, sizeof text, inquiry, rank, launch->graph, NT_NONE, &site);
  nt_lines_add(&finding->evidence, "rank %d: launch %u of %u of a captured graph with %s%s%s%s%s",
               model->world, number, of, text, at ? ", at " : "", at ? at : "",
               site ? ", captured at " : "", site ? site : "");
}

uint32_t nt_outstanding_launch(const struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  uint32_t found = NT_NONE;
  for (uint32_t i = 0; i < model->call_count; i++)
    if (nt_is_replay(&model->calls[i]) && nt_call_outstanding(inquiry->job, rank, i) &&
        (found == NT_NONE || model->calls[i].enter_ns < model->calls[found].enter_ns))
      found = i;
  return found;
}

static uint64_t sig_at(const struct nt_inquiry *inquiry, uint32_t joint, uint32_t member,
                       uint32_t position) {
  const struct nt_replay *replay = nt_replay_at(&inquiry->waits.replays, joint, member, position);
  return replay ? replay->sig : 0;
}

/* Whose replay stands for most: a member; *decided if more than half of those that launched replay it. */
static uint32_t most(const struct nt_inquiry *inquiry, uint32_t index, uint32_t position,
                     bool *decided) {
  const struct nt_joint *joint = &inquiry->job->joints[index];
  uint32_t best = NT_NONE, best_votes = 0, voters = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    uint64_t sig = sig_at(inquiry, index, i, position);
    uint32_t votes = 0;
    bool seen = !sig;
    for (uint32_t k = 0; k < joint->member_count; k++) {
      bool same = sig && sig_at(inquiry, index, k, position) == sig;
      seen |= same && k < i;
      votes += same;
    }
    voters += sig != 0;
    if (!seen && votes > best_votes) {
      best = i;
      best_votes = votes;
    }
  }
  *decided = best_votes * 2 > voters;
  return best;
}

/* In what the first operations that differ do so: all else is another call. */
static const char *field_of(const struct nt_inquiry *inquiry, uint32_t joint, uint32_t position,
                            uint32_t a, uint32_t b) {
  uint32_t r, s, n, m, x = graph_at(inquiry, joint, a, position, &r),
                       y = graph_at(inquiry, joint, b, position, &s);
  uint32_t *of_x = nt_graph_operations(inquiry->job, r, x, joint, &n);
  uint32_t *of_y = nt_graph_operations(inquiry->job, s, y, joint, &m);
  const char *field = "call";
  for (uint32_t i = 0; i < n && i < m; i++) {
    const struct nt_model_call *p = &inquiry->job->model->ranks[r].calls[of_x[i]];
    const struct nt_model_call *q = &inquiry->job->model->ranks[s].calls[of_y[i]];
    if (nt_call_signature(p) == nt_call_signature(q))
      continue;
    field = p->fn != q->fn         ? "call"
            : p->count != q->count ? "count"
            : p->dtype != q->dtype ? "dtype"
            : p->op != q->op       ? "op"
                                   : "root";
    break;
  }
  free(of_x);
  free(of_y);
  return field;
}

/* The story of one member against the one that stands for most. */
static enum nt_class class_of(const struct nt_inquiry *inquiry, uint32_t joint, uint32_t position,
                              uint32_t reference, uint32_t other) {
  static const enum nt_class classes[] = {[NT_EDIT_CHANGED] = NT_CLASS_MISMATCH,
                                          [NT_EDIT_SKIPPED] = NT_CLASS_MISSING,
                                          [NT_EDIT_EXTRA] = NT_CLASS_EXTRA,
                                          [NT_EDIT_ORDER] = NT_CLASS_ORDER};
  uint64_t a[NT_EDIT_WINDOW], b[NT_EDIT_WINDOW];
  uint32_t n = 0, m = 0;
  while (n < NT_EDIT_WINDOW && (a[n] = sig_at(inquiry, joint, reference, position + n)))
    n++;
  while (m < NT_EDIT_WINDOW && (b[m] = sig_at(inquiry, joint, other, position + m)))
    m++;
  struct nt_edit edit = nt_edit_compare(a, n, b, m);
  return edit.matched ? classes[edit.how] : NT_CLASS_MISMATCH;
}

static int judge(struct nt_inquiry *inquiry, uint32_t index, uint32_t position) {
  const struct nt_joint *joint = &inquiry->job->joints[index];
  bool decided;
  uint32_t reference = most(inquiry, index, position, &decided), other = NT_NONE;
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_MISMATCH, index);
  int status = finding ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < joint->member_count && !status; i++) {
    const struct nt_replay *replay = nt_replay_at(&inquiry->waits.replays, index, i, position);
    if (!replay)
      continue;
    if (!finding->since_ns || replay->enter_ns < finding->since_ns)
      finding->since_ns = replay->enter_ns;
    if (nt_call_unfinished(inquiry->job, joint->members[i].rank, replay->call))
      status = nt_finding_add(inquiry->job, &finding->waiting, joint->members[i].rank);
    if (replay->sig == sig_at(inquiry, index, reference, position) || status)
      continue;
    other = other == NT_NONE ? i : other;
    if (decided)
      status = nt_finding_add(inquiry->job, &finding->blame, joint->members[i].rank);
  }
  if (status)
    return status;
  char place[NT_DESCRIBE], waiting[NT_DESCRIBE + 64], who[NT_DESCRIBE];
  finding->fn = NT_FN_cudaGraphLaunch;
  finding->seq = position;
  finding->confidence = decided ? NT_CERTAIN : NT_UNDECIDED;
  finding->class = class_of(inquiry, index, position, reference, other);
  if (finding->class == NT_CLASS_MISMATCH)
    finding->field = field_of(inquiry, index, position, reference, other);
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, position, index);
  nt_inquiry_waiting(waiting, sizeof waiting, finding);
  if (decided)
    nt_finding_say(finding, "%s replay%s another graph than the others in %s%s",
                   nt_describe_ranks(who, sizeof who, &finding->blame),
                   nt_rank_set_count(&finding->blame) == 1 ? "s" : "", place, waiting);
  else
    nt_finding_say(finding, "the ranks replay different graphs in %s%s", place, waiting);
  say_graph(inquiry, finding, reference);
  say_graph(inquiry, finding, other);
  return 0;
}

/* Which launch of the communicator it is; 0: not known. */
static uint32_t launch_place(const struct nt_inquiry *inquiry, uint32_t joint, uint32_t member,
                             uint32_t call) {
  const struct nt_replay *replay;
  for (uint32_t p = 1; (replay = nt_replay_at(&inquiry->waits.replays, joint, member, p)); p++)
    if (replay->call == call)
      return p;
  return 0;
}

static int blame_mixed(struct nt_inquiry *inquiry, uint32_t index, bool launches, bool decided,
                       struct nt_finding *finding) {
  const struct nt_joint *joint = &inquiry->job->joints[index];
  int status = 0;
  for (uint32_t i = 0; i < joint->member_count && !status; i++) {
    const uint32_t at = inquiry->divergences[index].mixed[i];
    if (at == NT_NONE)
      continue;
    const uint32_t rank = joint->members[i].rank;
    const struct nt_model_call *call = &inquiry->job->model->ranks[rank].calls[at];
    if (!finding->since_ns || call->enter_ns < finding->since_ns)
      finding->since_ns = call->enter_ns;
    if (nt_call_unfinished(inquiry->job, rank, at))
      status = nt_finding_add(inquiry->job, &finding->waiting, rank);
    if (decided && nt_is_replay(call) != launches && !status)
      status = nt_finding_add(inquiry->job, &finding->blame, rank);
  }
  return status;
}

/* The same operation, called by some and launched by others. */
static int judge_mixed(struct nt_inquiry *inquiry, uint32_t index) {
  const struct nt_joint *joint = &inquiry->job->joints[index];
  const uint32_t *mixed = inquiry->divergences[index].mixed;
  uint32_t launched = 0, called = 0, replays = NT_NONE, calls = NT_NONE;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    if (mixed[i] == NT_NONE)
      continue;
    const bool replay =
        nt_is_replay(&nt_member_rank(inquiry->job, &joint->members[i])->calls[mixed[i]]);
    *(replay ? &launched : &called) += 1;
    uint32_t *first = replay ? &replays : &calls;
    *first = *first == NT_NONE ? i : *first;
  }
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_MISMATCH, index);
  if (!finding)
    return -NT_ERR_MEMORY;
  const uint32_t voters = launched + called + joint->absent;
  const bool launches = launched > called, decided = 2 * (launches ? launched : called) > voters;
  const struct nt_model_call *call =
      &nt_member_rank(inquiry->job, &joint->members[calls])->calls[mixed[calls]];
  const uint32_t place = launches ? launch_place(inquiry, index, replays, mixed[replays]) : 0;
  finding->fn = place ? NT_FN_cudaGraphLaunch : call->fn;
  finding->seq = place ? place : call->seq;
  finding->field = "call";
  finding->confidence = decided ? NT_CERTAIN : NT_UNDECIDED;
  int status = blame_mixed(inquiry, index, launches, decided, finding);
  char one[NT_DESCRIBE], other[NT_DESCRIBE], who[NT_DESCRIBE], waiting[NT_DESCRIBE + 64];
  nt_describe_place(one, sizeof one, inquiry->job, call->fn, call->seq, index);
  nt_launch_text(other, sizeof other, inquiry, joint->members[replays].rank, mixed[replays]);
  nt_describe_ranks(who, sizeof who, &finding->blame);
  nt_inquiry_waiting(waiting, sizeof waiting, finding);
  if (!decided)
    nt_finding_say(finding, "some ranks called %s, others launched it in a graph (%s)%s", one,
                   other, waiting);
  else if (launches)
    nt_finding_say(finding, "%s called %s, the others launched it in a graph (%s)%s", who, one,
                   other, waiting);
  else
    nt_finding_say(finding, "%s launched %s in a graph (%s), the others called it%s", who, one,
                   other, waiting);
  if (!place)
    nt_say_launch(inquiry, finding, joint->members[replays].rank, mixed[replays]);
  return status;
}

int nt_judge_replays(struct nt_inquiry *inquiry) {
  const struct nt_replays *replays = &inquiry->waits.replays;
  int status = 0;
  for (uint32_t i = 0; i < replays->joint_count && !status; i++) {
    const struct nt_divergence *divergence = &inquiry->divergences[i];
    if (divergence->mixed)
      status = judge_mixed(inquiry, i);
    else if (nt_uneven_at(replays, i, divergence))
      status = nt_judge_uneven(inquiry, i);
    else if (replays->diverged[i] && !divergence->position && !divergence->hidden_high)
      status = judge(inquiry, i, replays->diverged[i]);
  }
  return status;
}

char *nt_launch_text(char *out, size_t size, const struct nt_inquiry *inquiry, uint32_t rank,
                     uint32_t call) {
  const struct nt_replays *replays = &inquiry->waits.replays;
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  for (uint32_t v = 0;
       v < model->view_count && replays->joint_count && nt_is_replay(&model->calls[call]); v++) {
    const struct nt_place place = inquiry->job->places[rank][v];
    const struct nt_replay_row *row = place.joint == NT_NONE || !replays->rows[place.joint]
                                          ? NULL
                                          : &replays->rows[place.joint][place.member];
    for (uint32_t p = row ? row->count : 0; p > 0; p--)
      if (row->list[p - 1].call == call)
        return nt_describe_place(out, size, inquiry->job, NT_FN_cudaGraphLaunch, p, place.joint);
  }
  return nt_describe_call(out, size, inquiry->job, rank, call);
}

/* Of a message: by the first of those that wait in a launch. */
static void say_message(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_model *model = inquiry->job->model;
  for (uint32_t w = nt_rank_set_next(&finding->waiting, 0); w < NT_RANK_MAX;
       w = nt_rank_set_next(&finding->waiting, w + 1)) {
    uint32_t rank = nt_model_find(model, (int32_t)w);
    uint32_t launch = rank == NT_NONE ? NT_NONE : nt_outstanding_launch(inquiry, rank);
    if (launch == NT_NONE)
      continue;
    nt_say_launch(inquiry, finding, rank, launch);
    return;
  }
}

void nt_say_replays(struct nt_inquiry *inquiry) {
  for (uint32_t i = 0; i < inquiry->verdict->count; i++) {
    struct nt_finding *finding = &inquiry->verdict->findings[i];
    if (nt_fn_shape(finding->fn) == NT_SHAPE_SEND || nt_fn_shape(finding->fn) == NT_SHAPE_RECV ||
        nt_fn_shape(finding->fn) == NT_SHAPE_RMA)
      say_message(inquiry, finding);
    if (finding->fn != NT_FN_cudaGraphLaunch || finding->joint == NT_NONE ||
        inquiry->waits.replays.diverged[finding->joint] == finding->seq)
      continue;
    for (uint32_t m = 0; m < inquiry->job->joints[finding->joint].member_count; m++)
      if (nt_replay_at(&inquiry->waits.replays, finding->joint, m, finding->seq)) {
        say_graph(inquiry, finding, m);
        break;
      }
  }
}
