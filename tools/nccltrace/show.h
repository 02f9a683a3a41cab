/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of nccltrace show: what a trace says about its process, and its records. */
#ifndef NT_SHOW_H
#define NT_SHOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/json_output.h"
#include "trace/reader.h"

/* Process, evidence, communicators, counts, warnings. */
void nt_show_header(struct nt_trace *trace, FILE *out, bool color);
/* The same as an object; NULL when there is no memory. */
json_t *nt_show_header_json(struct nt_trace *trace);

struct nt_show_filter {
  const char *comm; /* name or number; NULL: all calls */
  uint64_t tail;    /* the last so many; UINT64_MAX: all */
  bool stacks;      /* with all frames of each call's Python stack */
};

/* Records in the order of time. Return the number printed, or a negative enum nt_err with `error`
 * filled. The JSON form prints an array, one record a line. */
int64_t nt_show_records(struct nt_trace *trace, const struct nt_show_filter *filter, FILE *out,
                        bool color, struct nt_error *error);
int64_t nt_show_records_json(struct nt_trace *trace, const struct nt_show_filter *filter, FILE *out,
                             struct nt_error *error);

#endif
