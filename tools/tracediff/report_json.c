/* SPDX-License-Identifier: Apache-2.0 */
/* Schema 1. Rank sets are compact strings of world ranks; times are UTC with milliseconds. */
#include "tracediff/report.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "cli/call_text.h"
#include "cli/json_output.h"
#include "nccl/nccl_api.h"

/* Sets grow with the job, so their text is made to measure. */
static json_t *ranks_json(const struct nt_rank_set *ranks) {
  size_t size = 24 + 18 * (size_t)nt_rank_set_count(ranks);
  if (!nt_rank_set_count(ranks))
    return json_string("");
  char *text = malloc(size);
  if (!text)
    return NULL;
  json_t *value = json_string(nt_rank_set_text(text, size, ranks));
  free(text);
  return value;
}

static json_t *lines_json(const struct nt_lines *lines) {
  json_t *array = json_array();
  for (uint32_t i = 0; array && i < lines->count; i++)
    json_array_append_new(array, nt_json_text(lines->line[i]));
  return array;
}

static json_t *comm_json(const struct nt_verdict *verdict, uint32_t index) {
  char id[33];
  if (index == NT_NONE)
    return json_null();
  const struct nt_joint *joint = &verdict->job.joints[index];
  return json_pack("{s:s, s:o, s:I, s:i, s:o}", "id", nt_comm_id_text(id, joint->id), "name",
                   nt_json_text(joint->name), "ordinal", (json_int_t)joint->ordinal, "size",
                   joint->size, "ranks", ranks_json(&joint->worlds));
}

/* Lines of a text as an array. */
static json_t *stack_json(const struct nt_model_stack *stack) {
  json_t *array = json_array();
  for (const char *at = stack ? stack->all : ""; *at;) {
    size_t length = strcspn(at, "\n");
    json_array_append_new(array, json_stringn(at, length));
    at += length + (at[length] == '\n');
  }
  return array;
}

static json_t *culprit_json(const struct nt_verdict *verdict, const struct nt_culprit *culprit) {
  json_t *value = json_object();
  json_object_set_new(value, "rank", json_integer(culprit->world));
  const struct nt_model_rank *rank =
      culprit->rank == NT_NONE ? NULL : &verdict->job.model->ranks[culprit->rank];
  json_object_set_new(value, "host", nt_json_text(rank ? rank->host : NULL));
  json_object_set_new(value, "pid", rank ? json_integer(rank->pid) : json_null());
  json_object_set_new(value, "gpu", nt_json_text(rank ? rank->gpu : NULL));
  json_object_set_new(value, "pci", nt_json_text(rank ? rank->pci : NULL));
  json_object_set_new(value, "gpu_index", nt_json_index(rank ? rank->gpu_index : -1));
  json_object_set_new(value, "cuda_device", nt_json_index(rank ? rank->cuda_device : -1));
  json_object_set_new(value, "state",
                      rank ? json_string(nt_process_state_text(rank->state))
                           : json_string("no trace"));
  json_object_set_new(value, "last", nt_json_text(culprit->last));
  json_object_set_new(value, "at", nt_json_text(culprit->at));
  json_object_set_new(value, "now", nt_json_text(culprit->now));
  json_object_set_new(value, "since", nt_json_time(culprit->since_ns));
  json_object_set_new(value, "stack", stack_json(culprit->stack));
  json_object_set_new(value, "stack_of",
                      culprit->stack ? json_string(culprit->of_last ? "last call" : "now")
                                     : json_null());
  return value;
}

static json_t *finding_json(const struct nt_verdict *verdict, const struct nt_finding *finding) {
  char name[64];
  json_t *value = json_object(), *culprits = json_array();
  json_object_set_new(value, "class", json_string(nt_class_name(finding->class)));
  json_object_set_new(value, "confidence", json_string(nt_confidence_name(finding->confidence)));
  json_object_set_new(value, "comm", comm_json(verdict, finding->joint));
  json_object_set_new(value, "op",
                      finding->fn ? json_string(nt_call_function(name, sizeof name, finding->fn))
                                  : json_null());
  json_object_set_new(value, "seq", finding->seq ? json_integer(finding->seq) : json_null());
  json_object_set_new(value, "field", finding->field ? json_string(finding->field) : json_null());
  json_object_set_new(value, "blame", ranks_json(&finding->blame));
  json_object_set_new(value, "waiting", ranks_json(&finding->waiting));
  for (uint32_t i = 0; i < finding->culprit_count; i++)
    json_array_append_new(culprits, culprit_json(verdict, &finding->culprits[i]));
  json_object_set_new(value, "culprits", culprits);
  json_object_set_new(value, "summary", nt_json_text(finding->summary ? finding->summary : ""));
  json_object_set_new(value, "evidence", lines_json(&finding->evidence));
  json_object_set_new(value, "next", lines_json(&finding->next));
  return value;
}

static json_t *unreadable_json(const struct nt_model *model) {
  json_t *array = json_array();
  for (uint32_t i = 0; array && i < model->unreadable_count; i++)
    json_array_append_new(array,
                          json_pack("{s:o, s:o}", "file", nt_json_text(model->unreadable[i].file),
                                    "reason", nt_json_text(model->unreadable[i].reason)));
  return array;
}

int nt_report_json(const struct nt_verdict *verdict, FILE *out) {
  json_t *root = json_object(), *ranks = json_object(), *findings = json_array(),
         *warnings = json_array();
  json_object_set_new(root, "tool", json_string("tracediff"));
  json_object_set_new(root, "schema", json_integer(1));
  json_object_set_new(root, "version", json_string(NT_VERSION));
  json_object_set_new(ranks, "expected", json_integer(verdict->job.model->expected));
  json_object_set_new(ranks, "present", ranks_json(&verdict->present));
  json_object_set_new(ranks, "missing", ranks_json(&verdict->missing));
  json_object_set_new(root, "ranks", ranks);
  json_object_set_new(root, "verdict", json_string(nt_class_name(nt_verdict_class(verdict))));
  json_object_set_new(root, "since",
                      nt_json_time(verdict->count ? verdict->findings[0].since_ns : 0));
  for (uint32_t i = 0; i < verdict->count; i++)
    json_array_append_new(findings, finding_json(verdict, &verdict->findings[i]));
  json_object_set_new(root, "findings", findings);
  for (uint32_t i = 0; i < verdict->warning_count; i++)
    json_array_append_new(warnings, finding_json(verdict, &verdict->warnings[i]));
  json_object_set_new(root, "warnings", warnings);
  json_t *notes = lines_json(&verdict->notes);
  char coverage[NT_COVERAGE], motion[NT_MOTION];
  if (!verdict->count) {
    json_array_append_new(notes,
                          json_string(nt_verdict_coverage(coverage, sizeof coverage, verdict)));
    if (*nt_report_motion(motion, sizeof motion, verdict))
      json_array_append_new(notes, json_string(motion));
  }
  json_object_set_new(root, "notes", notes);
  json_object_set_new(root, "unreadable", unreadable_json(verdict->job.model));
  return nt_json_print(root, out);
}

int nt_report_json_error(const char *error, const struct nt_model *model, FILE *out) {
  json_t *root = json_object();
  json_object_set_new(root, "tool", json_string("tracediff"));
  json_object_set_new(root, "schema", json_integer(1));
  json_object_set_new(root, "version", json_string(NT_VERSION));
  json_object_set_new(root, "error", nt_json_text(error));
  json_object_set_new(root, "unreadable", unreadable_json(model));
  return nt_json_print(root, out);
}
