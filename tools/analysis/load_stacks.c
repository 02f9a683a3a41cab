/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole stacks while loading: of each thread's last record and last call of NCCL only. That is where a
 * culprit stands; all other calls keep their site alone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "analysis/load_parts.h"
#include "cli/stack_lines.h"
#include "nccl/nccl_api.h"

/* Frames of the program itself that are shown where not all are. */
#define USER_FRAMES 3

static char *stack_lines(const struct nt_stack_frame *frames, size_t count, bool all, bool cut) {
  struct nt_stack_style style = {.indent = "", .whole = all, .program = all ? 0 : USER_FRAMES};
  char *text = NULL;
  size_t size = 0, program = 0, native = 0;
  for (size_t i = 0; i < count; i++) {
    program += nt_stack_is_program(&frames[i]);
    native += frames[i].build_id != NULL;
  }
  FILE *out = open_memstream(&text, &size);
  if (!out)
    return NULL;
  if (all || program || native == count) /* of native code the innermost frames tell something */
    nt_stack_print(out, &style, frames, count, cut);
  if (fclose(out) != 0) {
    free(text);
    return NULL;
  }
  if (size && text[size - 1] == '\n')
    text[size - 1] = '\0';
  return text;
}

int nt_load_stack(struct nt_model_stack *out, const struct nt_stack_frame *frames, size_t count,
                  bool cut) {
  out->user = stack_lines(frames, count, false, cut);
  out->all = stack_lines(frames, count, true, cut);
  return out->user && out->all ? 0 : -NT_ERR_MEMORY;
}

static int add_stack(struct nt_model_rank *rank, struct nt_trace *trace, uint32_t call,
                     uint32_t id) {
  const struct nt_stack_frame *frames;
  int count = nt_trace_stack(trace, id, &frames);
  if (count <= 0)
    return 0;
  struct nt_model_stack *list = realloc(rank->stacks, (rank->stack_count + 1u) * sizeof *list);
  if (!list)
    return -NT_ERR_MEMORY;
  rank->stacks = list;
  struct nt_model_stack *stack = &list[rank->stack_count++];
  stack->call = call;
  for (int i = 0; i < count; i++)
    rank->python_stacks |= frames[i].build_id == NULL;
  return nt_load_stack(stack, frames, (size_t)count, false);
}

int nt_load_stacks(struct nt_model_rank *rank, struct nt_trace *trace,
                   const struct nt_call *calls) {
  bool any = false, nccl = false; /* of this thread, seen already from its end */
  int status = 0;
  for (uint32_t i = rank->call_count; i-- > 0 && !status;) {
    const struct nt_model_call *call = &rank->calls[i];
    if (i + 1 < rank->call_count && call->thread != rank->calls[i + 1].thread)
      any = nccl = false;
    bool moves = call->view != NT_NONE || nt_fn_shape(call->fn) == NT_SHAPE_GRAPH_LAUNCH;
    bool wanted = !any || (!nccl && moves);
    any = true;
    nccl |= moves;
    if (wanted && calls[i].stack)
      status = add_stack(rank, trace, i, calls[i].stack);
  }
  return status;
}
