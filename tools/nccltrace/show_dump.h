/* SPDX-License-Identifier: Apache-2.0 */
/* nccltrace show --dump: what was learnt of a whole process at one moment. */
#ifndef NT_SHOW_DUMP_H
#define NT_SHOW_DUMP_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/json_output.h"
#include "trace/reader.h"

/* Index of the dump with this number, 0: of the newest. Returns -1 if it is not there. */
int nt_show_find_dump(const struct nt_trace *trace, uint32_t number);

/* `whole`: every frame of every stack, threads with equal stacks one by one. */
void nt_show_dump(const struct nt_trace *trace, size_t i, bool whole, FILE *out, bool color);
json_t *nt_show_dump_json(const struct nt_trace *trace, size_t i);

#endif
