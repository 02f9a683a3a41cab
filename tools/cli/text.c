/* SPDX-License-Identifier: Apache-2.0 */
/* Colours, escaping, times, durations and sizes. Pure functions; tables are in table.c. */
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool nt_color_parse(const char *text, enum nt_color_when *out) {
  static const char *const words[] = {"auto", "always", "never"};
  for (size_t i = 0; text != NULL && i < sizeof words / sizeof words[0]; i++)
    if (strcmp(text, words[i]) == 0) {
      *out = (enum nt_color_when)i;
      return true;
    }
  return false;
}

bool nt_color_wanted(enum nt_color_when when, FILE *file) {
  if (when != NT_COLOR_AUTO)
    return when == NT_COLOR_ALWAYS;
  const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
  if (no_color != NULL && no_color[0] != '\0')
    return false;
  return term != NULL && strcmp(term, "dumb") != 0 && isatty(fileno(file)) == 1;
}

const char *nt_style_text(bool color, enum nt_style style) {
  static const char *const sequences[] = {
      [NT_STYLE_PLAIN] = "\033[0m", [NT_STYLE_BOLD] = "\033[1m",  [NT_STYLE_DIM] = "\033[2m",
      [NT_STYLE_GOOD] = "\033[32m", [NT_STYLE_WARN] = "\033[33m", [NT_STYLE_BAD] = "\033[1;31m",
  };
  return color ? sequences[style] : "";
}

size_t nt_text_utf8(const char *in, uint32_t *character) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char *s = (const unsigned char *)in;
  size_t length = s[0] < 0x80             ? 1
                  : (s[0] & 0xe0) == 0xc0 ? 2
                  : (s[0] & 0xf0) == 0xe0 ? 3
                  : (s[0] & 0xf8) == 0xf0 ? 4
                                          : 0;
  if (length == 0 || s[0] == '\0')
    return 0;
  uint32_t value = length == 1 ? s[0] : s[0] & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) {
    if ((s[i] & 0xc0) != 0x80) /* the terminating zero too */
      return 0;
    value = value << 6 | (s[i] & 0x3f);
  }
  if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
    return 0;
  *character = value;
  return length;
}

bool nt_text_is_unsafe(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
         (c >= 0xfff0 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

/* One character of `in`, made harmless; returns the bytes of `in` that it took. */
static size_t escape_one(char out[16], const char *in) {
  uint32_t c = 0;
  size_t length = nt_text_utf8(in, &c);
  if (length == 0 || (length == 1 && nt_text_is_unsafe(c))) {
    const char *names = in[0] == '\n'   ? "\\n"
                        : in[0] == '\t' ? "\\t"
                        : in[0] == '\r' ? "\\r"
                                        : NULL;
    if (names != NULL)
      snprintf(out, 16, "%s", names);
    else
      snprintf(out, 16, "\\x%02x", (unsigned char)in[0]);
    return 1;
  }
  if (nt_text_is_unsafe(c)) {
    snprintf(out, 16, "\\u{%" PRIx32 "}", c);
  } else {
    memcpy(out, in, length);
    out[length] = '\0';
  }
  return length;
}

/* Of one byte, and shown as it is. */
static bool is_plain(char c) {
  return c >= 0x20 && c < 0x7f;
}

char *nt_text_escape(char *out, size_t size, const char *in) {
  size_t used = 0;
  char one[16];
  if (size == 0)
    return out;
  while (in != NULL && *in != '\0') {
    if (is_plain(*in)) {
      if (used + 1 >= size)
        break;
      out[used++] = *in++;
      continue;
    }
    in += escape_one(one, in);
    size_t length = strlen(one);
    if (used + length >= size)
      break;
    memcpy(out + used, one, length);
    used += length;
  }
  out[used] = '\0';
  return out;
}

char *nt_text_escape_new(const char *in) {
  size_t size = 1;
  char one[16];
  for (const char *s = in; s != NULL && *s != '\0';) {
    if (is_plain(*s)) {
      s++;
      size++;
      continue;
    }
    s += escape_one(one, s);
    size += strlen(one);
  }
  char *out = malloc(size);
  return out != NULL ? nt_text_escape(out, size, in) : NULL;
}

void nt_text_escape_print(FILE *file, const char *in) {
  char one[16];
  while (in != NULL && *in != '\0') {
    in += escape_one(one, in);
    fputs(one, file);
  }
}

size_t nt_text_width(const char *text) {
  size_t width = 0;
  for (; *text != '\0'; text++)
    width += ((unsigned char)*text & 0xc0) != 0x80;
  return width;
}

static char *format_time(char out[NT_TIME_TEXT], int64_t ns, bool with_date) {
  int64_t ms = ns / 1000000 - (ns % 1000000 < 0);
  time_t seconds = (time_t)(ms / 1000 - (ms % 1000 < 0));
  unsigned rest = (unsigned)(ms - (int64_t)seconds * 1000) % 1000;
  struct tm tm;
  char date[16] = "?", clock[16] = "?";
  if (gmtime_r(&seconds, &tm) != NULL) {
    strftime(date, sizeof date, "%Y-%m-%d", &tm);
    strftime(clock, sizeof clock, "%H:%M:%S", &tm);
  }
  if (with_date)
    snprintf(out, NT_TIME_TEXT, "%sT%s.%03uZ", date, clock, rest);
  else
    snprintf(out, NT_TIME_TEXT, "%s.%03u UTC", clock, rest);
  return out;
}

char *nt_time_text(char out[NT_TIME_TEXT], int64_t realtime_ns) {
  return format_time(out, realtime_ns, true);
}

char *nt_time_short(char out[NT_TIME_TEXT], int64_t realtime_ns) {
  return format_time(out, realtime_ns, false);
}

/* Three significant digits of value / unit, without trailing zeros. */
static char *scaled(char *out, size_t size, double value, const char *unit) {
  snprintf(out, size, "%.*f", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value);
  if (strchr(out, '.') != NULL) {
    char *end = out + strlen(out);
    while (end[-1] == '0')
      *--end = '\0';
    if (end[-1] == '.')
      end[-1] = '\0';
  }
  size_t used = strlen(out);
  snprintf(out + used, size - used, " %s", unit);
  return out;
}

char *nt_duration_text(char out[NT_DURATION_TEXT], int64_t ns) {
  static const struct {
    int64_t large, small;
    const char *large_name, *small_name;
  } pairs[] = {{86400, 3600, "d", "h"}, {3600, 60, "h", "min"}, {60, 1, "min", "s"}};
  const char *sign = ns < 0 ? "-" : "";
  uint64_t n = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
  int64_t seconds = (int64_t)(n / 1000000000 + (n % 1000000000 >= 500000000));
  char body[NT_DURATION_TEXT];
  if (n < 1000)
    snprintf(body, sizeof body, "%" PRIu64 " ns", n);
  else if (n < 999500)
    scaled(body, sizeof body, (double)n / 1e3, "us");
  else if (n < 999500000)
    scaled(body, sizeof body, (double)n / 1e6, "ms");
  else if (seconds < 60)
    scaled(body, sizeof body, (double)n / 1e9, "s");
  else
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
      if (seconds >= pairs[i].large) {
        int64_t rest = seconds % pairs[i].large / pairs[i].small;
        int used = snprintf(body, sizeof body, "%" PRId64 " %s", seconds / pairs[i].large,
                            pairs[i].large_name);
        if (rest != 0)
          snprintf(body + used, sizeof body - (size_t)used, " %" PRId64 " %s", rest,
                   pairs[i].small_name);
        break;
      }
  snprintf(out, NT_DURATION_TEXT, "%s%.30s", sign, body);
  return out;
}

static const char *const binary_prefixes[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};

char *nt_bytes_text(char out[NT_SIZE_TEXT], uint64_t bytes) {
  size_t i = 0;
  double value = (double)bytes;
  char unit[4];
  for (; value >= 1023.5 && i < 6; i++)
    value /= 1024;
  snprintf(unit, sizeof unit, "%sB", binary_prefixes[i]);
  return scaled(out, NT_SIZE_TEXT, value, unit);
}

char *nt_count_text(char out[NT_SIZE_TEXT], uint64_t count) {
  size_t i = 0;
  for (; i < 6 && count != 0 && count % 1024 == 0; i++)
    count /= 1024;
  snprintf(out, NT_SIZE_TEXT, "%" PRIu64 "%s%s", count, i > 0 ? " " : "", binary_prefixes[i]);
  return out;
}

const char *nt_base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}
