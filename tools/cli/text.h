/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words for people: colours, escaping, times, durations, sizes, tables.
 *
 * Names, paths and evidence come from trace files and are hostile: whatever reaches a terminal goes
 * through nt_text_escape or a table cell (which escapes by itself). All functions that fill a buffer
 * terminate it, cut what does not fit, and return `out`, so that they can stand in an argument list.
 */
#ifndef NT_CLI_TEXT_H
#define NT_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* --color */
enum nt_color_when { NT_COLOR_AUTO, NT_COLOR_ALWAYS, NT_COLOR_NEVER };

/* "auto", "always", "never"; false for anything else. */
bool nt_color_parse(const char *text, enum nt_color_when *out);
/* AUTO: on a terminal, unless NO_COLOR is set or TERM is "dumb". */
bool nt_color_wanted(enum nt_color_when when, FILE *file);

enum nt_style {
  NT_STYLE_PLAIN,
  NT_STYLE_BOLD,
  NT_STYLE_DIM,
  NT_STYLE_GOOD,
  NT_STYLE_WARN,
  NT_STYLE_BAD
};

/* The sequence that begins a style (NT_STYLE_PLAIN ends it); "" when color is false. */
const char *nt_style_text(bool color, enum nt_style style);

/* A character that a terminal obeys, or that lets text look like what it is not. */
bool nt_text_is_unsafe(uint32_t character);

/* Copies UTF-8 text so that it is harmless on one line of a terminal: control characters, invalid
 * bytes, and characters that reorder or hide text become \n, \t, \xNN or \u{NNNN}. */
char *nt_text_escape(char *out, size_t size, const char *in);
/* The same in memory that the caller frees; NULL when there is none. NULL counts as "". */
char *nt_text_escape_new(const char *in);

/* What stands behind the last '/'; the whole path if nothing does. */
const char *nt_base_name(const char *path);
void nt_text_escape_print(FILE *file, const char *in);
/* Columns on a terminal, one per character. */
size_t nt_text_width(const char *text);
/* The length of the valid UTF-8 sequence at `in`, and its character; 0 if there is none. */
size_t nt_text_utf8(const char *in, uint32_t *character);

#define NT_TIME_TEXT 48
/* "2026-11-29T02:41:17.120Z" and "02:41:17.120 UTC"; rounds down. */
/* Below that, times are no more than an order of events, from a source that has none. */
#define NT_TIME_FIRST (INT64_C(1) << 32)
char *nt_time_text(char out[NT_TIME_TEXT], int64_t realtime_ns);
char *nt_time_short(char out[NT_TIME_TEXT], int64_t realtime_ns);

#define NT_DURATION_TEXT 32
/* "850 ns", "12.3 us", "412 ms", "1.05 s", "3 min 7 s", "2 h 5 min", "3 d 4 h". */
char *nt_duration_text(char out[NT_DURATION_TEXT], int64_t ns);

#define NT_SIZE_TEXT 32
/* "512 B", "16 KiB", "1.5 MiB". */
char *nt_bytes_text(char out[NT_SIZE_TEXT], uint64_t bytes);
/* A count exactly: "4 Mi" for 4194304, "1000" for 1000, "4194305" for that. */
char *nt_count_text(char out[NT_SIZE_TEXT], uint64_t count);

/* A table with aligned columns. Cells are filled from left to right, row by row. */
struct nt_column {
  const char *title;
  bool right; /* numbers: aligned to the right */
};
struct nt_table; /* opaque */

/* NULL when there is no memory; the other functions accept NULL then. */
struct nt_table *nt_table_new(const struct nt_column *columns, size_t count);
void nt_table_cell(struct nt_table *table, enum nt_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
size_t nt_table_rows(const struct nt_table *table);
/* Titles, then rows; columns are two blanks apart. Returns 0, or -1 if some cell found no memory. */
int nt_table_print(const struct nt_table *table, FILE *file, bool color);
void nt_table_free(struct nt_table *table);

#endif
