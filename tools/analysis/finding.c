/* SPDX-License-Identifier: Apache-2.0 */
/* Names and memory of findings. */
#include "analysis/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *nt_class_name(enum nt_class class) {
  static const char *const names[NT_CLASS_LIMIT] = {
      [NT_CLASS_CONSISTENT] = "consistent",
      [NT_CLASS_DEAD] = "dead",
      [NT_CLASS_LEFT] = "left",
      [NT_CLASS_ERROR] = "error",
      [NT_CLASS_INIT] = "init",
      [NT_CLASS_MISSING] = "missing",
      [NT_CLASS_EXTRA] = "extra",
      [NT_CLASS_ORDER] = "order",
      [NT_CLASS_MISMATCH] = "mismatch",
      [NT_CLASS_P2P] = "p2p",
      [NT_CLASS_CYCLE] = "cycle",
      [NT_CLASS_TEARDOWN] = "teardown",
      [NT_CLASS_GPU] = "gpu",
      [NT_CLASS_STALLED] = "stalled",
      [NT_CLASS_OUTSIDE] = "outside",
      [NT_CLASS_CONFIG] = "config",
      [NT_CLASS_SLOW] = "slow",
      [NT_CLASS_UNDECIDED] = "undecided",
  };
  return names[class];
}

const char *nt_confidence_name(enum nt_confidence confidence) {
  static const char *const names[] = {"certain", "likely", "undecided"};
  return names[confidence];
}

void nt_lines_add(struct nt_lines *lines, const char *format, ...) {
  va_list arguments;
  char *text;
  va_start(arguments, format);
  if (vasprintf(&text, format, arguments) < 0)
    text = NULL;
  va_end(arguments);
  char **line = text ? realloc(lines->line, (lines->count + 1) * sizeof *line) : NULL;
  if (!line) {
    free(text);
    return;
  }
  lines->line = line;
  line[lines->count++] = text;
}

void nt_lines_free(struct nt_lines *lines) {
  for (uint32_t i = 0; i < lines->count; i++)
    free(lines->line[i]);
  free(lines->line);
  memset(lines, 0, sizeof *lines);
}

static void free_culprits(struct nt_culprit *list, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    free(list[i].last);
    free(list[i].at);
    free(list[i].now);
  }
  free(list);
}

void nt_finding_free(struct nt_finding *finding) {
  free_culprits(finding->culprits, finding->culprit_count);
  free_culprits(finding->stands, finding->stand_count);
  free(finding->summary);
  nt_rank_set_free(&finding->blame);
  nt_rank_set_free(&finding->waiting);
  nt_lines_free(&finding->evidence);
  nt_lines_free(&finding->next);
  memset(finding, 0, sizeof *finding);
}

int nt_finding_add(const struct nt_job *job, struct nt_rank_set *set, uint32_t rank) {
  int32_t world = job->model->ranks[rank].world;
  return world >= 0 ? nt_rank_set_add(set, (uint32_t)world) : 0;
}
