/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records, one a line. A trace may hold millions, so lines are printed as they come, with fixed
 * column widths; only an array of pointers is sorted.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/call_text.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"
#include "nccltrace/process_list.h"
#include "nccltrace/show.h"
#include "nccltrace/show_gpu.h"
#include "nccltrace/show_stacks.h"

struct selection {
  const struct nt_call **calls;
  uint32_t *launches; /* of a launch of a graph: which one of that graph, from 1; else 0 */
  size_t count;
};

static void free_selection(struct selection *selection) {
  free(selection->calls);
  free(selection->launches);
}

/* Counts the launches of each graph, in the order of the calls. */
static int count_launches(struct selection *selection) {
  size_t places = 16;
  while (places < 2 * selection->count)
    places *= 2;
  struct {
    uint32_t graph, count;
  } *graphs = calloc(places, sizeof *graphs);
  selection->launches = calloc(selection->count + 1, sizeof *selection->launches);
  int status = graphs && selection->launches ? 0 : -NT_ERR_MEMORY;
  for (size_t i = 0; i < selection->count && !status; i++) {
    const struct nt_call *call = selection->calls[i];
    if (nt_fn_shape(call->fn) != NT_SHAPE_GRAPH_LAUNCH || !nt_call_graph(call) ||
        (call->flags & (NT_CALL_CAPTURED | NT_CALL_VOID)))
      continue;
    const uint32_t graph = nt_call_graph(call);
    size_t at = (graph * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (places - 1);
    while (graphs[at].graph && graphs[at].graph != graph)
      at = (at + 1) & (places - 1);
    graphs[at].graph = graph;
    selection->launches[i] = ++graphs[at].count;
  }
  free(graphs);
  return status;
}

static bool comm_matches(const struct nt_trace *trace, const struct nt_call *call,
                         const char *wanted) {
  char number[16];
  if (wanted == NULL)
    return true;
  if (call->comm == 0)
    return false;
  snprintf(number, sizeof number, "%" PRIu32, call->comm);
  if (strcmp(number, wanted) == 0)
    return true;
  const struct nt_trace_comm *comm = nt_trace_comm_by_number(trace, call->comm);
  return comm != NULL && strncmp(comm->def.name, wanted, sizeof comm->def.name) == 0;
}

/* By time; the order within a thread is kept whatever the clock did. */
static int compare(const void *left, const void *right) {
  const struct nt_call *a = *(const struct nt_call *const *)left;
  const struct nt_call *b = *(const struct nt_call *const *)right;
  if (a->thread == b->thread)
    return a->order < b->order ? -1 : a->order > b->order;
  if (a->enter_ns != b->enter_ns)
    return a->enter_ns < b->enter_ns ? -1 : 1;
  return a->thread < b->thread ? -1 : 1;
}

static int64_t select_calls(struct nt_trace *trace, const struct nt_show_filter *filter,
                            struct selection *out, struct nt_error *error) {
  const struct nt_call *calls = NULL;
  int64_t total = nt_trace_calls(trace, &calls, error);
  if (total < 0)
    return total;
  out->calls = calloc((size_t)total + 1, sizeof *out->calls);
  if (out->calls == NULL) {
    *error = (struct nt_error){.code = -NT_ERR_MEMORY, .reason = "out of memory"};
    return -NT_ERR_MEMORY;
  }
  for (int64_t i = 0; i < total; i++)
    if (comm_matches(trace, &calls[i], filter->comm))
      out->calls[out->count++] = &calls[i];
  qsort(out->calls, out->count, sizeof *out->calls, compare);
  if (count_launches(out) != 0) {
    *error = (struct nt_error){.code = -NT_ERR_MEMORY, .reason = "out of memory"};
    return -NT_ERR_MEMORY;
  }
  if (out->count > filter->tail) {
    memmove(out->calls, out->calls + out->count - filter->tail,
            (size_t)filter->tail * sizeof *out->calls);
    memmove(out->launches, out->launches + out->count - filter->tail,
            (size_t)filter->tail * sizeof *out->launches);
    out->count = (size_t)filter->tail;
  }
  return (int64_t)out->count;
}

static int label_width(const struct nt_trace *trace) {
  size_t width = 4;
  char label[NT_LABEL_TEXT];
  for (size_t i = 0; i < nt_trace_comm_count(trace); i++) {
    size_t own = nt_text_width(nt_comm_label(label, sizeof label, nt_trace_comm_at(trace, i)));
    if (own > width)
      width = own;
  }
  return (int)width;
}

/* Of the widest name among the calls. */
static int function_width(const struct selection *selection) {
  bool seen[NT_FN_LIMIT] = {false};
  size_t width = strlen("FUNCTION");
  char function[64];
  for (size_t i = 0; i < selection->count; i++) {
    unsigned fn = selection->calls[i]->fn;
    if (seen[fn])
      continue;
    seen[fn] = true;
    size_t own = strlen(nt_call_function(function, sizeof function, fn));
    width = own > width ? own : width;
  }
  return (int)width;
}

/* Columns whose width depends on the trace. */
struct widths {
  int function, comm;
};

static const char *flags_text(char *out, size_t size, const struct nt_call *call) {
  static const struct {
    uint16_t flag;
    const char *name;
  } names[] = {
      {NT_CALL_IN_PLACE, "in-place"},
      {NT_CALL_CAPTURED, "captured"},
      {NT_CALL_IN_PROGRESS, "in-progress"},
      {NT_CALL_VOID, "void"},
  };
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (call->flags & names[i].flag)
      used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "," : "", names[i].name);
  return used > 0 ? out : "-";
}

static void number_or_dash(char out[24], int64_t value, bool present) {
  if (present)
    snprintf(out, 24, "%" PRId64, value);
  else
    snprintf(out, 24, "-");
}

static bool moves_data(const struct nt_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  return shape == NT_SHAPE_COLL || shape == NT_SHAPE_COLL_P2P || shape == NT_SHAPE_SEND ||
         shape == NT_SHAPE_RECV || shape == NT_SHAPE_RMA;
}

/* The last column is there only if some call has a stack: `at` NULL for none. */
static void print_titles(FILE *out, struct widths widths, const char *at, bool color) {
  fprintf(out, "%s%-16s %6s  %-*s %-*s %8s  %9s %-6s %-6s %5s %6s  %-8s %-17s %-10s %*s%s%s%s\n",
          nt_style_text(color, NT_STYLE_BOLD), "TIME (UTC)", "THREAD", widths.function, "FUNCTION",
          widths.comm, "COMM", "SEQ", "COUNT", "TYPE", "OP", "PEER", "STREAM", "FLAGS", "RESULT",
          "DURATION", at ? -16 : 0, "GPU", at ? " " : "", at ? at : "",
          nt_style_text(color, NT_STYLE_PLAIN));
}

static void print_record(const struct nt_trace *trace, const struct nt_call *call, uint32_t launch,
                         FILE *out, struct widths widths, const char *at, bool color) {
  char time[NT_TIME_TEXT], function[64], label[NT_LABEL_TEXT], seq[24], count[NT_SIZE_TEXT] = "-";
  char dtype[32], op[32], peer[24], stream[24], flags[64], duration[NT_DURATION_TEXT] = "-";
  char gpu[NT_GPU_TEXT], result[NT_RESULT_TEXT];
  bool data = moves_data(call), open = call->exit_ns == 0;
  nt_time_short(time, call->enter_ns);
  time[strcspn(time, " ")] = '\0';
  const char *comm = nt_process_comm_label(trace, call->comm, label, sizeof label);
  comm = comm != NULL ? comm : "-";
  int gap = widths.comm - (int)nt_text_width(comm);
  if (data)
    nt_count_text(count, call->count);
  else if (nt_call_graph(call) != 0)
    snprintf(count, sizeof count, "%" PRIu32, nt_call_graph(call));
  else if (call->count != 0)
    snprintf(count, sizeof count, "%" PRId64, (int64_t)call->count);
  nt_dtype_text(dtype, sizeof dtype, data ? call->dtype : 255);
  nt_redop_text(op, sizeof op, call->op);
  number_or_dash(seq, launch ? launch : call->seq, launch || call->seq);
  number_or_dash(peer, call->peer, call->peer >= 0);
  number_or_dash(stream, call->stream, call->stream != 0);
  if (!open)
    nt_duration_text(duration, call->exit_ns - call->enter_ns);
  enum nt_style style = open ? NT_STYLE_WARN : call->result != 0 ? NT_STYLE_BAD : NT_STYLE_PLAIN;
  bool styled = color && style != NT_STYLE_PLAIN;
  fprintf(out,
          "%s%-16s %6" PRIu32
          "  %-*s %s%*s %8s  %9s %-6s %-6s %5s %6s  %-8s %-17s %-10s %*s%s%s%s\n",
          nt_style_text(styled, style), time, call->thread, widths.function,
          nt_call_function(function, sizeof function, call->fn), comm, gap > 0 ? gap : 0, "", seq,
          count, dtype[0] ? dtype : "-", op[0] ? op : "-", peer, stream,
          flags_text(flags, sizeof flags, call), nt_call_result(result, sizeof result, call),
          duration, at ? -16 : 0, nt_show_gpu(trace, call, gpu, sizeof gpu), at ? " " : "",
          at ? at : "", nt_style_text(styled, NT_STYLE_PLAIN));
}

int64_t nt_show_records(struct nt_trace *trace, const struct nt_show_filter *filter, FILE *out,
                        bool color, struct nt_error *error) {
  struct selection selection = {0};
  int64_t count = select_calls(trace, filter, &selection, error);
  struct widths widths = {.function = function_width(&selection), .comm = label_width(trace)};
  bool stacks = count > 0 && nt_show_has_stacks(selection.calls, selection.count);
  char at[256];
  if (count > 0)
    print_titles(out, widths, stacks ? "AT" : NULL, color);
  for (int64_t i = 0; i < count; i++) {
    const struct nt_call *call = selection.calls[i];
    print_record(trace, call, selection.launches[i], out, widths,
                 stacks ? nt_show_at(trace, call, at, sizeof at) : NULL, color);
    if (filter->stacks)
      nt_show_stack(trace, call, out);
  }
  free_selection(&selection);
  return count;
}

static json_t *optional(int64_t value, bool present) {
  return present ? json_integer(value) : json_null();
}

static json_t *record_json(const struct nt_trace *trace, const struct nt_call *call,
                           uint32_t launch) {
  char function[64], label[NT_LABEL_TEXT], dtype[32], op[32], result[NT_RESULT_TEXT];
  bool data = moves_data(call), open = call->exit_ns == 0;
  const char *comm = nt_process_comm_label(trace, call->comm, label, sizeof label);
  const struct nt_gpu_seen gpu = nt_gpu_seen_of(trace, call);
  nt_dtype_text(dtype, sizeof dtype, data ? call->dtype : 255);
  nt_redop_text(op, sizeof op, call->op);
  return json_pack(
      "{s:o, s:o, s:I, s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:I, s:b, s:b, s:o, s:o, s:o, "
      "s:o, s:b, s:s, s:o, s:o, s:o, s:s?, s:o}",
      "enter", nt_json_time(call->enter_ns), "enter_ns", json_integer(call->enter_ns), "thread",
      (json_int_t)call->thread, "function", nt_call_function(function, sizeof function, call->fn),
      "comm", nt_json_text(comm), "comm_number", optional(call->comm, call->comm != 0), "seq",
      optional(call->seq, call->seq != 0), "count", (json_int_t)call->count, "type",
      nt_json_text(dtype[0] ? dtype : NULL), "op", nt_json_text(op[0] ? op : NULL), "peer",
      optional(call->peer, call->peer >= 0), "stream", optional(call->stream, call->stream != 0),
      "group", (json_int_t)call->group, "in_place", (call->flags & NT_CALL_IN_PLACE) != 0,
      "captured", (call->flags & NT_CALL_CAPTURED) != 0, "capture",
      optional(nt_call_capture(call), nt_call_capture(call) != 0), "graph",
      optional(nt_call_graph(call), nt_call_graph(call) != 0), "held",
      optional(nt_call_held(call), nt_call_held(call) != 0), "launch",
      optional(launch, launch != 0), "void", (call->flags & NT_CALL_VOID) != 0, "result",
      nt_call_result(result, sizeof result, call), "duration_ns",
      optional(call->exit_ns - call->enter_ns, !open), "send", nt_json_address(call->send), "recv",
      nt_json_address(call->recv), "gpu", nt_gpu_state_name(gpu.state), "gpu_ns",
      optional(gpu.took_ns, gpu.took_ns >= 0));
}

int64_t nt_show_records_json(struct nt_trace *trace, const struct nt_show_filter *filter, FILE *out,
                             struct nt_error *error) {
  struct selection selection = {0};
  int64_t count = select_calls(trace, filter, &selection, error);
  fputc('[', out);
  for (int64_t i = 0; i < count; i++) {
    json_t *record = record_json(trace, selection.calls[i], selection.launches[i]);
    if (record != NULL && filter->stacks)
      json_object_set_new(record, "stack", nt_show_stack_json(trace, selection.calls[i]));
    fputs(i > 0 ? ",\n" : "\n", out);
    if (record == NULL || json_dumpf(record, out, JSON_COMPACT) != 0)
      fputs("null", out);
    json_decref(record);
  }
  fputs("]", out);
  free_selection(&selection);
  return count;
}
