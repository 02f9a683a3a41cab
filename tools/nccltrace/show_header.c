/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace says about its process: identity, evidence, communicators, counts, warnings. */
#include <inttypes.h>
#include <string.h>

#include "cli/call_text.h"
#include "cli/process_text.h"
#include "cli/rank_name.h"
#include "cli/rank_set.h"
#include "cli/text.h"
#include "nccltrace/process_list.h"
#include "nccltrace/show.h"

/* Lines "name   value", the value escaped. */
static void line(FILE *out, const char *name, const char *value) {
  fprintf(out, "%-18s", name);
  nt_text_escape_print(out, value);
  fputc('\n', out);
}

static void time_line(FILE *out, const char *name, int64_t ns) {
  char text[NT_TIME_TEXT];
  if (ns != 0)
    line(out, name, nt_time_text(text, ns));
}

static void title(FILE *out, bool color, const char *text) {
  fprintf(out, "\n%s%s%s\n", nt_style_text(color, NT_STYLE_BOLD), text,
          nt_style_text(color, NT_STYLE_PLAIN));
}

static void show_process(const struct nt_process_info *info, FILE *out) {
  char text[NT_FATE_TEXT], seen[NT_TIME_TEXT];
  const struct nt_fate_facts fate = nt_fate_of(info);
  snprintf(text, sizeof text, "%" PRIu32, info->pid);
  line(out, "pid", text);
  if (info->world_rank < 0)
    snprintf(text, sizeof text, "unknown");
  else if (info->world_size > 0)
    snprintf(text, sizeof text, "%d of %d", info->world_rank, info->world_size);
  else
    snprintf(text, sizeof text, "%d", info->world_rank);
  line(out, "rank", text);
  snprintf(text, sizeof text, "%d", info->local_rank);
  if (info->local_rank >= 0)
    line(out, "local rank", text);
  line(out, "host", info->host ? info->host : "");
  if (info->run_id != NULL && info->run_id[0] != '\0')
    line(out, "run", info->run_id);
  snprintf(text, sizeof text, "%" PRIu32, info->restart);
  if (info->restart != 0)
    line(out, "restart", text);
  line(out, "state", nt_fate_text(text, sizeof text, &fate));
  time_line(out, "traced since", info->started_ns);
  time_line(out, "last sign of life", info->last_beat_ns);
  time_line(out, info->state == NT_PROCESS_ENDING ? "called exit" : "left", info->exit_ns);
  snprintf(text, sizeof text,
           "not since %s: the thread that polls it is blocked in the CUDA driver",
           nt_time_text(seen, info->gpu_beat_ns));
  if (info->gpu_blocked)
    line(out, "GPU seen", text);
  time_line(out, "digest made", info->digest_ns);
  line(out, "read from",
       info->from_file && info->from_area ? "file and area"
       : info->from_area                  ? "area"
                                          : "file");
  if (info->file_path != NULL)
    line(out, "file", info->file_path);
}

/* The devices of the process's communicators by all of their names. */
static void show_gpus(const struct nt_trace *trace, FILE *out) {
  struct nt_rank_set devices = {0};
  for (size_t i = 0; i < nt_trace_comm_count(trace); i++) {
    const int32_t device = nt_trace_comm_at(trace, i)->def.device;
    struct nt_rank_name name;
    char gpu[64], text[256];
    if (device < 0 || nt_rank_set_has(&devices, (uint32_t)device))
      continue;
    nt_rank_set_add(&devices, (uint32_t)device);
    nt_rank_name_gpu(&name, trace, device);
    snprintf(text, sizeof text, "%s%s%s", nt_gpu_name_text(gpu, sizeof gpu, &name),
             name.pci ? ", " : "", name.pci ? name.pci : "");
    line(out, "GPU", text);
  }
  nt_rank_set_free(&devices);
}

static void show_counts(const struct nt_process_info *info, FILE *out) {
  const struct {
    const char *name;
    uint64_t value;
    bool always;
  } counts[] = {
      {"calls", info->calls, true},
      {"calls lost", info->lost, true},
      {"calls overwritten", info->overwritten - info->left_out, true},
      {"calls left out", info->left_out, false},
      {"calls abandoned", info->abandoned, false},
      {"comms lost", info->comms_lost, false},
      {"write errors", info->write_errors, false},
  };
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
    if (counts[i].always || counts[i].value != 0)
      fprintf(out, "%-18s%" PRIu64 "\n", counts[i].name, counts[i].value);
}

static void show_comms(const struct nt_trace *trace, FILE *out, bool color) {
  static const struct nt_column columns[] = {
      {"NUMBER", true},  {"NAME", false},  {"RANK", false},    {"DEVICE", true},
      {"ORIGIN", false}, {"STATE", false}, {"PARENT", true},   {"COLLECTIVES", true},
      {"SENDS", true},   {"RECVS", true},  {"CREATED", false}, {"ID", false},
  };
  struct nt_table *table = nt_table_new(columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < nt_trace_comm_count(trace); i++) {
    const struct nt_trace_comm *comm = nt_trace_comm_at(trace, i);
    const struct nt_comm_def *def = &comm->def;
    char name[sizeof def->name + 1], created[NT_TIME_TEXT], id[33];
    memcpy(name, def->name, sizeof def->name);
    name[sizeof def->name] = '\0';
    nt_table_cell(table, NT_STYLE_BOLD, "%" PRIu32, def->number);
    nt_table_cell(table, NT_STYLE_PLAIN, "%s", name[0] ? name : "-");
    if (def->rank >= 0 && def->nranks >= 0)
      nt_table_cell(table, NT_STYLE_PLAIN, "%" PRId32 " of %" PRId32, def->rank, def->nranks);
    else
      nt_table_cell(table, NT_STYLE_PLAIN, "?");
    if (def->device >= 0)
      nt_table_cell(table, NT_STYLE_PLAIN, "%" PRId32, def->device);
    else
      nt_table_cell(table, NT_STYLE_PLAIN, "-");
    nt_table_cell(table, NT_STYLE_PLAIN, "%s", nt_comm_origin_text(def->origin));
    nt_table_cell(table, comm->state == NT_COMM_ABORTED ? NT_STYLE_BAD : NT_STYLE_PLAIN, "%s",
                  nt_comm_state_text(comm->state));
    if (def->parent_number != 0)
      nt_table_cell(table, NT_STYLE_PLAIN, "%" PRIu32, def->parent_number);
    else
      nt_table_cell(table, NT_STYLE_PLAIN, "-");
    nt_table_cell(table, NT_STYLE_PLAIN, "%" PRIu32, comm->collectives);
    nt_table_cell(table, NT_STYLE_PLAIN, "%" PRIu32, comm->sends);
    nt_table_cell(table, NT_STYLE_PLAIN, "%" PRIu32, comm->recvs);
    nt_table_cell(table, NT_STYLE_PLAIN, "%s",
                  comm->created_ns ? nt_time_short(created, comm->created_ns) : "-");
    nt_table_cell(table, NT_STYLE_DIM, "%s", nt_comm_id_text(id, def->id));
  }
  if (nt_table_rows(table) > 0)
    nt_table_print(table, out, color);
  else
    fputs("none\n", out);
  nt_table_free(table);
}

/* How far the GPU had come with each stream that NCCL launches on. */
static void show_streams(const struct nt_trace *trace, FILE *out, bool color) {
  static const struct nt_column columns[] = {
      {"STREAM", true},   {"DEVICE", true},   {"LAUNCHES", true}, {"REACHED", true},
      {"FINISHED", true}, {"UNMARKED", true}, {"ERROR", true},    {"LAST LOOK", false},
  };
  struct nt_table *table = nt_table_new(columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < nt_trace_stream_count(trace); i++) {
    const struct nt_trace_stream stream = nt_trace_stream_at(trace, i);
    char looked[NT_TIME_TEXT];
    nt_table_cell(table, NT_STYLE_BOLD, "%" PRIu32, stream.number);
    nt_table_cell(table, NT_STYLE_PLAIN, "%" PRId32, stream.device);
    nt_table_cell(table, NT_STYLE_PLAIN, "%" PRIu32, stream.issued);
    nt_table_cell(table, NT_STYLE_PLAIN, "%" PRIu32, stream.reached);
    nt_table_cell(table, NT_STYLE_PLAIN, "%" PRIu32, stream.finished);
    nt_table_cell(table, NT_STYLE_PLAIN, "%" PRIu32, stream.unmarked);
    nt_table_cell(table, stream.error ? NT_STYLE_BAD : NT_STYLE_PLAIN, "%" PRIu32, stream.error);
    nt_table_cell(table, NT_STYLE_PLAIN, "%s",
                  stream.polled_ns ? nt_time_short(looked, stream.polled_ns) : "never");
  }
  if (nt_table_rows(table) > 0) {
    title(out, color, "streams");
    nt_table_print(table, out, color);
  }
  nt_table_free(table);
}

static void show_peers(const struct nt_trace *trace, FILE *out, bool color) {
  if (nt_trace_peer_count(trace) > 0)
    title(out, color, "peers of this node");
  for (size_t i = 0; i < nt_trace_peer_count(trace); i++) {
    const struct nt_peer_note *peer = nt_trace_peer_at(trace, i);
    if (!peer->vanished_ns) {
      fprintf(out, "rank %" PRId32 " (pid %" PRIu32 "): there\n", peer->world_rank, peer->pid);
      continue;
    }
    char noticed[NT_TIME_TEXT], beat[NT_TIME_TEXT];
    fprintf(out, "rank %" PRId32 " (pid %" PRIu32 "): vanished, noticed %s, last sign of life %s\n",
            peer->world_rank, peer->pid, nt_time_text(noticed, (int64_t)peer->vanished_ns),
            nt_time_text(beat, (int64_t)peer->last_beat_ns));
    if (peer->oom_kills)
      fprintf(out, "  out-of-memory kills in its cgroup since then: %" PRIu32 "\n",
              peer->oom_kills);
  }
}

/* Evidence by what it is about: the first group whose beginning of keys fits; the last takes what is left. */
static const struct {
  const char *title;
  const char *beginnings[12];
} groups[] = {
    {"program",
     {"library", "started", "exe", "script", "cmdline", "cwd", "python.", "host", "pid"}},
    {"GPUs and CUDA", {"gpu.", "cuda."}},
    {"NCCL", {"nccl.", "comm."}},
    {"machine", {"kernel", "machine", "cpus", "shm.", "limit."}},
    {"network", {"net.", "ib."}},
    {"tracing", {"area", "directory", "dump.", "native."}},
    {"environment", {"env."}},
    {"other evidence", {""}},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

static size_t group_of(const char *key) {
  for (size_t g = 0; g < GROUPS; g++)
    for (size_t i = 0; groups[g].beginnings[i] != NULL; i++)
      if (strncmp(key, groups[g].beginnings[i], strlen(groups[g].beginnings[i])) == 0)
        return g;
  return GROUPS - 1;
}

static void show_evidence(const struct nt_trace *trace, FILE *out, bool color) {
  const char *key, *value;
  for (size_t g = 0; g < GROUPS; g++) {
    bool first = true;
    for (size_t i = 0; nt_trace_evidence_at(trace, i, &key, &value); i++) {
      if (group_of(key) != g)
        continue;
      if (first)
        title(out, color, groups[g].title);
      first = false;
      nt_text_escape_print(out, key);
      fputs(" = ", out);
      nt_text_escape_print(out, value);
      fputc('\n', out);
    }
  }
}

void nt_show_header(struct nt_trace *trace, FILE *out, bool color) {
  const struct nt_process_info *info = nt_trace_process(trace);
  show_process(info, out);
  show_gpus(trace, out);
  show_counts(info, out);
  if (nt_trace_dump_count(trace) > 0)
    fprintf(out, "%-18s%zu\n", "dumps", nt_trace_dump_count(trace));
  title(out, color, "communicators");
  show_comms(trace, out, color);
  show_streams(trace, out, color);
  show_peers(trace, out, color);
  show_evidence(trace, out, color);
  if (nt_trace_warning_count(trace) > 0)
    title(out, color, "warnings");
  for (size_t i = 0; i < nt_trace_warning_count(trace); i++) {
    nt_text_escape_print(out, nt_trace_warning_at(trace, i));
    fputc('\n', out);
  }
}

static json_t *comm_json(const struct nt_trace_comm *comm) {
  const struct nt_comm_def *def = &comm->def;
  char name[sizeof def->name + 1], id[33], parent[33];
  memcpy(name, def->name, sizeof def->name);
  name[sizeof def->name] = '\0';
  return json_pack("{s:I, s:o, s:s, s:i, s:i, s:i, s:s, s:s, s:I, s:s, s:i, s:i, s:I, s:I, s:I, "
                   "s:I, s:I, s:o}",
                   "number", (json_int_t)def->number, "name", nt_json_text(name[0] ? name : NULL),
                   "id", nt_comm_id_text(id, def->id), "rank", def->rank, "size", def->nranks,
                   "device", def->device, "origin", nt_comm_origin_text(def->origin), "state",
                   nt_comm_state_text(comm->state), "parent", (json_int_t)def->parent_number,
                   "parent_id", nt_comm_id_text(parent, def->parent_id), "color", def->color, "key",
                   def->key, "collectives", (json_int_t)comm->collectives, "all_peer",
                   (json_int_t)comm->all_peer, "sends", (json_int_t)comm->sends, "recvs",
                   (json_int_t)comm->recvs, "async_error", (json_int_t)comm->async_error, "created",
                   nt_json_time(comm->created_ns));
}

static json_t *stream_json(const struct nt_trace_stream *stream) {
  return json_pack("{s:I, s:i, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "number",
                   (json_int_t)stream->number, "device", (int)stream->device, "handle",
                   nt_json_address(stream->handle), "launches", (json_int_t)stream->issued,
                   "reached", (json_int_t)stream->reached, "finished", (json_int_t)stream->finished,
                   "unmarked", (json_int_t)stream->unmarked, "error", (json_int_t)stream->error,
                   "last_look", nt_json_time(stream->polled_ns));
}

static json_t *process_json(const struct nt_process_info *info) {
  return json_pack(
      "{s:I, s:i, s:i, s:i, s:I, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, "
      "s:o, s:o, s:o, s:o}",
      "pid", (json_int_t)info->pid, "rank", info->world_rank, "world_size", info->world_size,
      "local_rank", info->local_rank, "restart", (json_int_t)info->restart, "host",
      nt_json_text(info->host), "run", nt_json_text(info->run_id), "state",
      nt_process_state_text(info->state), "exit_code",
      info->exit_ns ? json_integer(info->exit_code) : json_null(), "started",
      nt_json_time(info->started_ns), "last_sign_of_life", nt_json_time(info->last_beat_ns), "left",
      nt_json_time(info->exit_ns), "live", info->live, "file", nt_json_text(info->file_path),
      "calls", nt_json_count(info->calls), "lost", nt_json_count(info->lost), "overwritten",
      nt_json_count(info->overwritten - info->left_out), "left_out", nt_json_count(info->left_out),
      "digest", nt_json_time(info->digest_ns), "abandoned", nt_json_count(info->abandoned),
      "comms_lost", nt_json_count(info->comms_lost), "write_errors",
      nt_json_count(info->write_errors));
}

json_t *nt_show_header_json(struct nt_trace *trace) {
  const char *key, *value;
  json_t *evidence = json_object(), *comms = json_array();
  json_t *streams = json_array(), *warnings = json_array();
  for (size_t i = 0; nt_trace_evidence_at(trace, i, &key, &value); i++) {
    json_t *name = nt_json_text(key); /* a key that is not UTF-8 would be refused */
    if (name != NULL)
      json_object_set_new(evidence, json_string_value(name), nt_json_text(value));
    json_decref(name);
  }
  for (size_t i = 0; i < nt_trace_comm_count(trace); i++)
    json_array_append_new(comms, comm_json(nt_trace_comm_at(trace, i)));
  for (size_t i = 0; i < nt_trace_stream_count(trace); i++) {
    struct nt_trace_stream stream = nt_trace_stream_at(trace, i);
    json_array_append_new(streams, stream_json(&stream));
  }
  for (size_t i = 0; i < nt_trace_warning_count(trace); i++)
    json_array_append_new(warnings, nt_json_text(nt_trace_warning_at(trace, i)));
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I}", "process",
                   process_json(nt_trace_process(trace)), "communicators", comms, "streams",
                   streams, "evidence", evidence, "warnings", warnings, "dumps",
                   (json_int_t)nt_trace_dump_count(trace));
}
