/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: all cells are kept, escaped, until every column's width is known. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text.h"

struct cell {
  char *text;
  enum nt_style style;
};

struct nt_table {
  const struct nt_column *columns;
  size_t columns_count;
  struct cell *cells;
  size_t count, room;
  bool failed;
};

struct nt_table *nt_table_new(const struct nt_column *columns, size_t count) {
  struct nt_table *table = calloc(1, sizeof *table);
  if (table != NULL) {
    table->columns = columns;
    table->columns_count = count;
  }
  return table;
}

static bool make_room(struct nt_table *table) {
  if (table->count < table->room)
    return true;
  size_t room = table->room ? 2 * table->room : 64;
  struct cell *cells = realloc(table->cells, room * sizeof *cells);
  if (cells == NULL)
    return false;
  table->cells = cells;
  table->room = room;
  return true;
}

void nt_table_cell(struct nt_table *table, enum nt_style style, const char *format, ...) {
  va_list args;
  char *raw = NULL, *text = NULL;
  if (table == NULL)
    return;
  va_start(args, format);
  if (vasprintf(&raw, format, args) < 0)
    raw = NULL;
  va_end(args);
  if (raw != NULL)
    text = nt_text_escape_new(raw);
  free(raw);
  if (text == NULL || !make_room(table)) {
    table->failed = true;
    free(text);
    return;
  }
  table->cells[table->count++] = (struct cell){text, style};
}

size_t nt_table_rows(const struct nt_table *table) {
  return table != NULL ? table->count / table->columns_count : 0;
}

static void print_cell(const struct nt_table *table, size_t column, size_t width,
                       const struct cell *cell, FILE *file, bool color) {
  size_t own = nt_text_width(cell->text);
  int gap = own < width ? (int)(width - own) : 0;
  bool right = table->columns[column].right, last = column + 1 == table->columns_count;
  bool styled = color && cell->style != NT_STYLE_PLAIN && own > 0;
  fprintf(file, "%*s%s%s%s%*s%s", right ? gap : 0, "", nt_style_text(styled, cell->style),
          cell->text, nt_style_text(styled, NT_STYLE_PLAIN), right || last ? 0 : gap, "",
          last ? "\n" : "  ");
}

int nt_table_print(const struct nt_table *table, FILE *file, bool color) {
  if (table == NULL)
    return -1;
  size_t columns = table->columns_count, whole = table->count - table->count % columns;
  size_t *widths = calloc(columns, sizeof *widths);
  if (widths == NULL)
    return -1;
  for (size_t c = 0; c < columns; c++)
    widths[c] = nt_text_width(table->columns[c].title);
  for (size_t i = 0; i < whole; i++) {
    size_t width = nt_text_width(table->cells[i].text);
    if (width > widths[i % columns])
      widths[i % columns] = width;
  }
  for (size_t c = 0; c < columns; c++) {
    char *title = nt_text_escape_new(table->columns[c].title);
    struct cell cell = {title, NT_STYLE_BOLD};
    if (title != NULL)
      print_cell(table, c, widths[c], &cell, file, color);
    free(title);
  }
  for (size_t i = 0; i < whole; i++)
    print_cell(table, i % columns, widths[i % columns], &table->cells[i], file, color);
  free(widths);
  return table->failed ? -1 : 0;
}

void nt_table_free(struct nt_table *table) {
  if (table == NULL)
    return;
  for (size_t i = 0; i < table->count; i++)
    free(table->cells[i].text);
  free(table->cells);
  free(table);
}
