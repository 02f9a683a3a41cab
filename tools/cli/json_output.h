/* SPDX-License-Identifier: Apache-2.0 */
/* JSON for every tool: what jansson refuses from hostile input, and one way of printing. */
#ifndef NT_CLI_JSON_OUTPUT_H
#define NT_CLI_JSON_OUTPUT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* A string; bytes that are not UTF-8 become \xNN (JSON escapes control characters itself). NULL in:
 * null. */
json_t *nt_json_text(const char *text);
/* "2026-11-29T02:41:17.120Z", null for 0. */
json_t *nt_json_time(int64_t realtime_ns);
/* Numbers up to 2^63 - 1 as numbers, larger ones as that. */
json_t *nt_json_count(uint64_t count);
/* null for -1, which stands for what is not known. */
json_t *nt_json_index(int32_t index);
/* "0x7f…" for addresses: JSON numbers are not safe above 2^53. null for 0. */
json_t *nt_json_address(uint64_t address);

/* Prints with two blanks of indentation and in the order of insertion, a newline at the end; releases
 * the value. Returns 0, or -1 if it is NULL or the output failed. */
int nt_json_print(json_t *value, FILE *file);

#endif
