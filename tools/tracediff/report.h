/* SPDX-License-Identifier: Apache-2.0 */
/* A verdict for people and for programs. */
#ifndef NT_REPORT_H
#define NT_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "analysis/verdict.h"

struct nt_report_style {
  bool color;
  bool full_stacks; /* every frame, not only the first of the program itself */
};

#define NT_MOTION 96
/* Of a verdict without findings: "the job moves", "all processes have ended" …; "" if the verdict says it already. Returns
 * `out`. */
char *nt_report_motion(char *out, size_t size, const struct nt_verdict *verdict);

/* Both return 0, or -1 if the output failed. */
int nt_report_text(const struct nt_verdict *verdict, const struct nt_report_style *style,
                   FILE *out);
int nt_report_json(const struct nt_verdict *verdict, FILE *out);
/* What a program gets where there is no verdict; of the model only what could not be read. */
int nt_report_json_error(const char *error, const struct nt_model *model, FILE *out);

#endif
