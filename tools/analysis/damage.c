/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces that lack their end: files that were cut short or damaged, and files of processes that were killed when their state had
 * been written and their calls had not, where the live area is gone.
 *
 * Such a trace would make its rank look as if it had stood still. Its state tells how many collectives the rank had made of
 * each communicator, so it is as good as one in which calls were lost; where even that is not known it is worth no more
 * than none.
 */
#include "analysis/damage.h"

#include "nccl/nccl_api.h"

/* How many collectives it made is known of each communicator, whatever became of the calls. */
static bool is_counted(const struct nt_model_rank *rank) {
  if (rank->hollow || rank->aged || rank->recorder != NT_RECORDER_TRACE)
    return false;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->view != NT_NONE && nt_fn_is_collective(call->fn) &&
        call->seq > rank->views[call->view].collectives)
      return false;
  }
  return true;
}

static void note_damage(struct nt_model *model, const struct nt_model_rank *rank, bool kept) {
  const char *source = rank->source ? rank->source : "a trace";
  const char *counts = kept ? "" : ", and it counts as missing";
  const unsigned long long cut = rank->cut, total = rank->total_calls;
  const char *known =
      is_counted(rank) ? ", and only how many collectives it made is known of these" : counts;
  if (rank->hollow)
    nt_model_note(model,
                  "%s is cut short: nothing but its header is left, all calls of rank %d are "
                  "lost%s",
                  source, rank->world, counts);
  else if (rank->aged)
    nt_model_note(model, "%s is cut short inside its state: what rank %d did last is lost%s",
                  source, rank->world, counts);
  else if (rank->strange)
    nt_model_note(model,
                  "%s has calls of a form that this program does not know: %llu of %llu calls of "
                  "rank %d cannot be read%s; use the tools of the version that wrote it: %s",
                  source, cut, total, rank->world, known,
                  rank->writer ? rank->writer : "an unknown one");
  else
    nt_model_note(model, "%s is cut short or damaged: %llu of %llu calls of rank %d are lost%s",
                  source, cut, total, rank->world, known);
}

void nt_damage_settle(struct nt_model *model) {
  uint32_t kept = 0, damaged = 0;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    damaged += rank->hollow || rank->aged || (rank->cut && !is_counted(rank));
  }
  for (uint32_t i = 0; i < model->rank_count; i++) {
    struct nt_model_rank *rank = &model->ranks[i];
    const bool broken = nt_model_lacks_end(rank);
    const bool keep = !broken || damaged == model->rank_count || is_counted(rank);
    if (broken)
      note_damage(model, rank, keep);
    if (keep) {
      if (broken && is_counted(rank))
        rank->lost += rank->cut;
      model->ranks[kept++] = *rank;
      continue;
    }
    if (rank->world >= 0)
      (void)nt_rank_set_add(&model->damaged, (uint32_t)rank->world);
    if (rank->world_size > model->expected)
      model->expected = rank->world_size;
    nt_model_free_rank(rank);
  }
  model->rank_count = kept;
}
