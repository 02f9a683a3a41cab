/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole stacks while loading: of each thread's last record and last call of NCCL only. That is where a
 * culprit stands; all other calls keep their site alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/load_parts.h"
#include "cli/stack_text.h"

/* Frames of the program itself that are shown where not all are. */
#define USER_FRAMES 3

/* Of the program, not of an installed package or the standard library. */
static bool is_user(const struct nt_stack_frame *frame) {
  const struct nt_stack_frame pair[2] = {*frame, {.file = "program.py", .function = "", .line = 0}};
  return nt_stack_site(pair, 2) == 0;
}

/* One line a frame; all frames, or only the first of the program. */
static char *stack_lines(const struct nt_stack_frame *frames, size_t count, bool all) {
  char *text = NULL;
  size_t size = 0, shown = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out)
    return NULL;
  for (size_t i = 0; i < count && (all || shown < USER_FRAMES); i++) {
    char site[NT_SITE_TEXT];
    if (!all && !is_user(&frames[i]))
      continue;
    fprintf(out, "%s%s", shown++ ? "\n" : "", nt_stack_site_text(site, sizeof site, &frames[i], 1));
  }
  if (fclose(out) != 0) {
    free(text);
    return NULL;
  }
  return text;
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
  stack->user = stack_lines(frames, (size_t)count, false);
  stack->all = stack_lines(frames, (size_t)count, true);
  return stack->user && stack->all ? 0 : -NT_ERR_MEMORY;
}

int nt_load_stacks(struct nt_model_rank *rank, struct nt_trace *trace,
                   const struct nt_call *calls) {
  bool any = false, nccl = false; /* of this thread, seen already from its end */
  int status = 0;
  for (uint32_t i = rank->call_count; i-- > 0 && !status;) {
    const struct nt_model_call *call = &rank->calls[i];
    if (i + 1 < rank->call_count && call->thread != rank->calls[i + 1].thread)
      any = nccl = false;
    bool wanted = !any || (!nccl && call->view != NT_NONE);
    any = true;
    nccl |= call->view != NT_NONE;
    if (wanted && calls[i].stack)
      status = add_stack(rank, trace, i, calls[i].stack);
  }
  return status;
}
