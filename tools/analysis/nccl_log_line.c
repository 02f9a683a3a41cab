/* SPDX-License-Identifier: Apache-2.0 */
/* A line is hostile: nothing is taken that does not stand whole within it. */
#include "analysis/nccl_log_line.h"

#include <stdlib.h>
#include <string.h>

#include "nccl/nccl_api.h"

#define HOST_MAX 255
#define RANKS_MAX (1 << 20)

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* Decimal digits from *at on; false without one, or above `most`. */
static bool number(const char *line, size_t length, size_t *at, uint64_t most, uint64_t *out) {
  size_t begin = *at;
  uint64_t value = 0;
  for (; *at < length && is_digit(line[*at]); ++*at) {
    uint64_t digit = (uint64_t)(line[*at] - '0');
    if (value > (most - digit) / 10)
      return false;
    value = value * 10 + digit;
  }
  *out = value;
  return *at > begin;
}

/* ":PID:TID [DEVICE] " that ends where the '[' at `bracket` says; *colon is the first ':'. */
static bool process_before(const char *line, size_t begin, size_t bracket, size_t *colon,
                           struct nt_log_line *out) {
  uint64_t value[2];
  size_t end = bracket ? bracket - 1 : 0;
  if (bracket <= begin || line[end] != ' ')
    return false;
  for (int i = 1; i >= 0; i--) {
    size_t from = end;
    while (from > begin && is_digit(line[from - 1]))
      from--;
    size_t at = from;
    if (from == begin || line[from - 1] != ':' || !number(line, end, &at, UINT32_MAX, &value[i]))
      return false;
    end = from - 1;
  }
  out->pid = (uint32_t)value[0];
  out->tid = (uint32_t)value[1];
  *colon = end;
  return true;
}

/* The host in front of the ':', without what a launcher glued to it ("[rank0]:"). */
static bool host_before(const char *line, size_t begin, size_t colon, struct nt_log_line *out) {
  size_t from = colon;
  while (from > begin && (unsigned char)line[from - 1] > ' ' && line[from - 1] != ':' &&
         line[from - 1] != ']' && line[from - 1] != '>')
    from--;
  out->host = line + from;
  out->host_length = colon - from;
  return out->host_length && out->host_length <= HOST_MAX;
}

/* "[rank3]:", "[default3]:", "[1,3]<stdout>:" or "3: " at the begin of a line. */
static int32_t label_of(const char *line, size_t length) {
  uint64_t value = 0;
  size_t at = 0;
  if (length && line[0] == '[') {
    at = 1;
    while (at < length && ((line[at] | 0x20) >= 'a' && (line[at] | 0x20) <= 'z'))
      at++;
    bool named = at > 1, numbered = number(line, length, &at, INT32_MAX, &value);
    if (named && numbered && at + 1 < length && line[at] == ']' && line[at + 1] == ':')
      return (int32_t)value;
    if (named || !numbered || at >= length || line[at++] != ',' ||
        !number(line, length, &at, INT32_MAX, &value) || at + 1 >= length || line[at] != ']' ||
        line[at + 1] != '<')
      return -1;
    return (int32_t)value;
  }
  while (at < length && line[at] == ' ')
    at++;
  if (!number(line, length, &at, INT32_MAX, &value) || at + 1 >= length || line[at] != ':' ||
      line[at + 1] != ' ')
    return -1;
  return (int32_t)value;
}

/* Finds "HOST:PID:TID [DEVICE] … NCCL INFO|WARN " and what is in front of it; *text is behind it. */
static bool find_head(const char *line, size_t length, size_t begin, size_t *text,
                      struct nt_log_line *out, bool *warns) {
  static const char word[] = " NCCL ";
  for (size_t at = begin; at + sizeof word + 4 <= length;) {
    const char *found = memmem(line + at, length - at, word, sizeof word - 1);
    if (!found)
      return false;
    size_t where = (size_t)(found - line), colon;
    at = where + sizeof word - 1;
    if (length - at < 5 || (memcmp(line + at, "INFO ", 5) && memcmp(line + at, "WARN ", 5)))
      continue;
    *warns = line[at] == 'W';
    /* A warning has its place in the source between the device and the word. */
    size_t low = *warns && where > begin + 400 ? where - 400 : begin;
    for (size_t bracket = where; bracket-- > low;) {
      size_t device = bracket + 1;
      uint64_t ignored;
      if (line[bracket] != '[')
        continue;
      if (device < where && line[device] == '-')
        device++;
      if (!number(line, where, &device, INT32_MAX, &ignored) || device >= where ||
          line[device] != ']' || (!*warns && device + 1 != where) ||
          !process_before(line, begin, bracket, &colon, out) ||
          !host_before(line, begin, colon, out))
        continue;
      *text = at + 5;
      return true;
    }
  }
  return false;
}

/* What stands behind " NAME ", or "NAME" at the begin; NULL if nothing does. */
static const char *behind(const struct nt_log_line *line, const char *name, size_t *left) {
  size_t size = strlen(name);
  for (size_t at = 0; at + size + 1 < line->text_length; at++) {
    const char *found = memmem(line->text + at, line->text_length - at, name, size);
    if (!found)
      return NULL;
    at = (size_t)(found - line->text);
    if (at + size + 1 >= line->text_length)
      return NULL;
    if ((!at || found[-1] == ' ') && found[size] == ' ') {
      *left = line->text_length - at - size - 1;
      return found + size + 1;
    }
  }
  return NULL;
}

static bool ends(const char *text, size_t left, size_t used) {
  return used == left || text[used] == ' ' || text[used] == '\r' || text[used] == '-';
}

static bool get_decimal(const struct nt_log_line *line, const char *name, uint64_t *out) {
  size_t left, used = 0;
  const char *text = behind(line, name, &left);
  return text && number(text, left, &used, UINT64_MAX, out) && ends(text, left, used);
}

static bool get_int(const struct nt_log_line *line, const char *name, int32_t *out) {
  size_t left, used = 0;
  uint64_t value;
  const char *text = behind(line, name, &left);
  bool negative = text && left && *text == '-';
  used += negative;
  if (!text || !number(text, left, &used, INT32_MAX, &value) || !ends(text, left, used))
    return false;
  *out = negative ? -(int32_t)value : (int32_t)value;
  return true;
}

/* Hexadecimal with or without "0x", or "(nil)". */
static bool get_hex(const struct nt_log_line *line, const char *name, uint64_t *out) {
  static const char digits[] = "0123456789abcdef", nil[] = "(nil)";
  size_t left, used = 0, count = 0;
  const char *text = behind(line, name, &left), *digit;
  *out = 0;
  if (!text)
    return false;
  if (left >= sizeof nil - 1 && !memcmp(text, nil, sizeof nil - 1))
    return ends(text, left, sizeof nil - 1);
  if (left > 2 && text[0] == '0' && text[1] == 'x')
    used = 2;
  for (; used < left && text[used] && (digit = strchr(digits, text[used] | 0x20)); used++, count++)
    *out = *out << 4 | (uint64_t)(digit - digits);
  return count && count <= 16 && ends(text, left, used);
}

static bool begins(const struct nt_log_line *line, const char *words) {
  size_t size = strlen(words);
  return line->text_length >= size && !memcmp(line->text, words, size);
}

static bool has(const struct nt_log_line *line, const char *words) {
  return memmem(line->text, line->text_length, words, strlen(words)) != NULL;
}

static uint8_t function_named(const char *name, size_t length) {
  for (unsigned fn = 1; fn < NT_FN_LIMIT; fn++) {
    const char *known = nt_fn_name(fn);
    if (known && !nt_fn_is_cuda(fn) && strlen(known) == length && !memcmp(known, name, length))
      return (uint8_t)fn;
  }
  return NT_FN_NONE;
}

/* "NAME: opCount …" */
static bool parse_call(struct nt_log_line *line) {
  static const char mark[] = ": opCount";
  const char *found = memmem(line->text, line->text_length, mark, sizeof mark - 1);
  if (!found || memchr(line->text, ' ', (size_t)(found - line->text)))
    return false;
  line->fn = function_named(line->text, (size_t)(found - line->text));
  uint64_t stream;
  bool whole = get_hex(line, "opCount", &line->op_count) &&
               get_hex(line, "sendbuff", &line->send) && get_hex(line, "recvbuff", &line->recv) &&
               get_decimal(line, "count", &line->count) &&
               get_int(line, "datatype", &line->dtype) && get_int(line, "op", &line->op) &&
               get_int(line, "root", &line->root) && get_hex(line, "comm", &line->comm) &&
               get_hex(line, "stream", &stream);
  line->kind = !whole ? NT_LOG_DAMAGED : line->fn ? NT_LOG_CALL : NT_LOG_OTHER;
  return true;
}

/* "… comm P rank R nranks N …", with the identity and an end that says what happened. */
static bool parse_comm(struct nt_log_line *line) {
  bool start = has(line, "- Init START"), complete = has(line, "- Init COMPLETE");
  bool destroyed = has(line, "- Destroy COMPLETE");
  bool aborted = has(line, "- Abort ") || has(line, "- Revoke ");
  if (!start && !complete && !destroyed && !aborted)
    return false;
  uint64_t child = 0;
  line->has_id = get_hex(line, "commId", &line->comm_id);
  line->has_parent = get_hex(line, "parent", &line->parent);
  line->child = get_decimal(line, "splitCount", &child) || get_decimal(line, "childCount", &child)
                    ? (int64_t)(child & INT32_MAX)
                    : -1;
  bool whole = get_hex(line, "comm", &line->comm) && get_int(line, "rank", &line->rank) &&
               (get_int(line, "nranks", &line->nranks) || get_int(line, "nRanks", &line->nranks)) &&
               get_int(line, "cudaDev", &line->device) && get_hex(line, "busId", &line->pci);
  bool creation = start || complete;
  whole &=
      line->nranks > 0 && line->nranks <= RANKS_MAX && line->rank >= 0 && line->rank < line->nranks;
  whole &= !creation || line->has_id || (line->has_parent && get_int(line, "color", &line->color));
  line->kind = !whole     ? NT_LOG_DAMAGED
               : start    ? NT_LOG_INIT_START
               : complete ? NT_LOG_INIT_COMPLETE
               : aborted  ? NT_LOG_ABORTED
                          : NT_LOG_DESTROYED;
  const char *comm = memmem(line->text, line->text_length, " comm ", 6), *name = comm;
  while (name && name > line->text && name[-1] != ' ')
    name--;
  if (name && comm - name > 4 && !memcmp(name, "nccl", 4))
    line->fn = function_named(name + 4, (size_t)(comm - name) - 4);
  return true;
}

static void classify(struct nt_log_line *line, bool warns) {
  static const char version[] = "NCCL version ";
  if (warns) {
    line->kind = NT_LOG_WARNING;
  } else if (begins(line, version)) {
    line->kind = NT_LOG_VERSION;
    line->text += sizeof version - 1;
    line->text_length -= sizeof version - 1;
  } else if (!parse_call(line) && !parse_comm(line)) {
    line->kind = has(line, " -> 6") && memchr(line->text, ':', line->text_length)
                     ? NT_LOG_REMOTE_ERROR
                     : NT_LOG_OTHER;
  }
}

bool nt_log_line_next(const char *line, size_t length, size_t *at, struct nt_log_line *out) {
  struct nt_log_line next;
  size_t text, following;
  bool warns, ignored;
  memset(out, 0, sizeof *out);
  if (!find_head(line, length, *at, &text, out, &warns))
    return false;
  out->glued = *at != 0;
  out->label = *at ? -1 : label_of(line, (size_t)(out->host - line));
  size_t end = length;
  if (find_head(line, length, text, &following, &next, &ignored))
    end = (size_t)(next.host - line);
  out->text = line + text;
  out->text_length = end - text;
  while (out->text_length &&
         (out->text[out->text_length - 1] == '\r' || out->text[out->text_length - 1] == ' '))
    out->text_length--;
  out->root = out->rank = out->device = -1;
  out->child = -1;
  classify(out, warns);
  *at = end;
  return true;
}
