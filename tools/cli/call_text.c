/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and communicators in words. Pure functions. */
#include "cli/call_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/text.h"
#include "nccl/nccl_api.h"

enum { NONE = 255 };

static void append(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *out, size_t size, const char *format, ...) {
  va_list args;
  size_t used = strlen(out);
  va_start(args, format);
  vsnprintf(out + used, size - used, format, args);
  va_end(args);
}

char *nt_call_function(char *out, size_t size, unsigned fn) {
  const char *name = nt_fn_name(fn);
  if (name != NULL)
    snprintf(out, size, "%s", name);
  else
    snprintf(out, size, "function %u", fn);
  return out;
}

uint32_t nt_call_capture(const struct nt_call *call) {
  if (call->flags & NT_CALL_CAPTURED)
    return call->launch;
  return nt_fn_shape(call->fn) == NT_SHAPE_GRAPH_LAUNCH ? (uint32_t)call->count : 0;
}

uint32_t nt_call_graph(const struct nt_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  bool nests = shape == NT_SHAPE_GRAPH_PART || shape == NT_SHAPE_CAPTURE_END;
  return nests || shape == NT_SHAPE_GRAPH_LAUNCH ? (uint32_t)call->count : 0;
}

uint32_t nt_call_held(const struct nt_call *call) {
  return nt_call_graph(call) ? (uint32_t)(call->count >> 32) : 0;
}

char *nt_call_name(char *out, size_t size, const struct nt_call *call, const char *comm) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  nt_call_function(out, size, call->fn);
  if (call->seq != 0)
    append(out, size, " #%" PRIu32, call->seq);
  if (shape == NT_SHAPE_SEND && call->peer >= 0)
    append(out, size, " to rank %" PRId32, call->peer);
  if (shape == NT_SHAPE_RECV && call->peer >= 0)
    append(out, size, " from rank %" PRId32, call->peer);
  if (call->comm != 0 && comm != NULL)
    append(out, size, " %s %s", shape == NT_SHAPE_COMM_INIT ? "of" : "on", comm);
  return out;
}

static void data_arguments(char *out, size_t size, const struct nt_call *call) {
  char count[NT_SIZE_TEXT], dtype[32], op[32];
  append(out, size, "%s x %s", nt_count_text(count, call->count),
         nt_dtype_text(dtype, sizeof dtype, call->dtype));
  if (call->op != NONE)
    append(out, size, " %s", nt_redop_text(op, sizeof op, call->op));
  if ((nt_fn_shape(call->fn) == NT_SHAPE_COLL || nt_fn_shape(call->fn) == NT_SHAPE_COLL_P2P) &&
      call->peer >= 0)
    append(out, size, ", root %" PRId32, call->peer);
}

char *nt_call_arguments(char *out, size_t size, const struct nt_call *call) {
  char op[32], result[NT_RESULT_TEXT];
  out[0] = '\0';
  switch (nt_fn_shape(call->fn)) {
  case NT_SHAPE_COLL:
  case NT_SHAPE_COLL_P2P:
  case NT_SHAPE_SEND:
  case NT_SHAPE_RECV:
    data_arguments(out, size, call);
    break;
  case NT_SHAPE_COMM_INIT:
    append(out, size, "rank %" PRId32 " of %" PRIu64, call->peer, call->count);
    break;
  case NT_SHAPE_COMM_INIT_ALL:
    append(out, size, "%" PRIu64 " devices", call->count);
    break;
  case NT_SHAPE_COMM_SPLIT:
    if (call->peer < 0)
      append(out, size, "no colour");
    else
      append(out, size, "colour %" PRId32 ", key %" PRId64, call->peer, (int64_t)call->count);
    break;
  case NT_SHAPE_COMM_SHRINK:
    append(out, size, "without %" PRIu64 " rank%s", call->count, call->count == 1 ? "" : "s");
    break;
  case NT_SHAPE_COMM_GROW:
    append(out, size, "to %" PRIu64 " ranks", call->count);
    break;
  case NT_SHAPE_ASYNC_ERROR:
    append(out, size, "%s", nt_result_text(result, sizeof result, (int64_t)call->count));
    break;
  case NT_SHAPE_GROUP_END:
    append(out, size, "%" PRIu64 " call%s", call->count, call->count == 1 ? "" : "s");
    break;
  case NT_SHAPE_GRAPH_LAUNCH:
    append(out, size, "graph of capture %" PRIu32, nt_call_graph(call));
    break;
  case NT_SHAPE_GRAPH_PART:
  case NT_SHAPE_CAPTURE_END:
    append(out, size, "graph of capture %" PRIu32 " into another", nt_call_graph(call));
    break;
  case NT_SHAPE_REDOP_NEW:
    append(out, size, "%s", nt_redop_text(op, sizeof op, call->op));
    break;
  case NT_SHAPE_MEMORY:
  case NT_SHAPE_WINDOW:
    if (call->count != 0) {
      char bytes[NT_SIZE_TEXT];
      append(out, size, "%s", nt_bytes_text(bytes, call->count));
    }
    break;
  case NT_SHAPE_RMA:
    if (call->peer >= 0)
      append(out, size, "rank %" PRId32, call->peer);
    break;
  default:
    break;
  }
  return out;
}

char *nt_call_text(char *out, size_t size, const struct nt_call *call, const char *comm) {
  char arguments[NT_CALL_TEXT];
  nt_call_name(out, size, call, comm);
  nt_call_arguments(arguments, sizeof arguments, call);
  if (arguments[0] != '\0')
    append(out, size, ", %s", arguments);
  return out;
}

char *nt_result_text(char *out, size_t size, int64_t result) {
  const char *name = result >= 0 && result < NT_OTHER ? nt_result_name((int)result) : NULL;
  if (name != NULL)
    snprintf(out, size, "%s", name);
  else
    snprintf(out, size, "result %" PRId64, result);
  return out;
}

char *nt_call_result(char *out, size_t size, const struct nt_call *call) {
  const char *text = NULL;
  if (call->flags & NT_CALL_ABANDONED)
    text = "never returned";
  else if (call->result == NT_RESULT_OPEN)
    text = "in call";
  else if (call->result == 0)
    text = call->flags & NT_CALL_VOID ? "discarded" : "ok";
  else if (call->flags & NT_CALL_IN_PROGRESS)
    text = "in progress";
  if (text == NULL)
    return nt_result_text(out, size, call->result);
  snprintf(out, size, "%s", text);
  return out;
}

char *nt_dtype_text(char *out, size_t size, unsigned dtype) {
  const char *name = dtype < NT_OTHER ? nt_dtype_name((int)dtype) : NULL;
  if (name != NULL || dtype >= NONE)
    snprintf(out, size, "%s", name != NULL ? name : "");
  else if (dtype == NT_OTHER)
    snprintf(out, size, "dtype ?");
  else
    snprintf(out, size, "dtype %u", dtype);
  return out;
}

char *nt_redop_text(char *out, size_t size, unsigned op) {
  const char *name = op < NT_OP_USER ? nt_redop_name((int)op) : NULL;
  if (name != NULL || op >= NONE)
    snprintf(out, size, "%s", name != NULL ? name : "");
  else if (op == NT_OTHER)
    snprintf(out, size, "user operator ?");
  else if (op >= NT_OP_NEWER + NT_OP_USER)
    snprintf(out, size, "op %u", op - NT_OP_NEWER);
  else if (op >= NT_OP_USER)
    snprintf(out, size, "user operator %u", op - NT_OP_USER + 1);
  else
    snprintf(out, size, "op %u", op);
  return out;
}

char *nt_comm_label(char *out, size_t size, const struct nt_trace_comm *comm) {
  char name[sizeof comm->def.name + 1];
  memcpy(name, comm->def.name, sizeof comm->def.name);
  name[sizeof comm->def.name] = '\0';
  if (name[0] != '\0')
    nt_text_escape(out, size, name);
  else
    snprintf(out, size, "comm %" PRIu32, comm->def.number);
  return out;
}

char *nt_comm_id_text(char out[33], const uint8_t id[16]) {
  for (int i = 0; i < 16; i++)
    snprintf(out + 2 * i, 3, "%02x", id[i]);
  return out;
}

const char *nt_comm_state_text(unsigned state) {
  static const char *const names[] = {
      [NT_COMM_FREE] = "unused",         [NT_COMM_CREATING] = "being created",
      [NT_COMM_LIVE] = "live",           [NT_COMM_FINALIZED] = "finalized",
      [NT_COMM_DESTROYED] = "destroyed", [NT_COMM_ABORTED] = "aborted",
      [NT_COMM_FAILED] = "failed",
  };
  return state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}

const char *nt_comm_origin_text(unsigned origin) {
  static const char *const names[] = {
      [NT_COMM_UNKNOWN] = "unknown", [NT_COMM_INIT] = "init",     [NT_COMM_INIT_ALL] = "init-all",
      [NT_COMM_SPLIT] = "split",     [NT_COMM_SHRINK] = "shrink", [NT_COMM_GROW] = "grow",
  };
  return origin < sizeof names / sizeof names[0] ? names[origin] : "unknown";
}
