/* SPDX-License-Identifier: Apache-2.0 */
/* Rank sets as bitmaps and as text. Not thread-safe for one set. */
#include "cli/rank_set.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/error.h"

int nt_rank_set_add(struct nt_rank_set *set, uint32_t rank) {
  uint32_t word = rank / 64;
  if (rank >= NT_RANK_MAX)
    return -NT_ERR_CORRUPT;
  if (word >= set->word_count) {
    uint32_t count = word < 8 ? 8 : 2 * word;
    uint64_t *words = realloc(set->words, count * sizeof *words);
    if (words == NULL)
      return -NT_ERR_MEMORY;
    memset(words + set->word_count, 0, (count - set->word_count) * sizeof *words);
    set->words = words;
    set->word_count = count;
  }
  set->words[word] |= UINT64_C(1) << rank % 64;
  return 0;
}

bool nt_rank_set_has(const struct nt_rank_set *set, uint32_t rank) {
  return rank / 64 < set->word_count && (set->words[rank / 64] >> rank % 64 & 1) != 0;
}

uint32_t nt_rank_set_count(const struct nt_rank_set *set) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < set->word_count; i++)
    count += (uint32_t)__builtin_popcountll(set->words[i]);
  return count;
}

uint32_t nt_rank_set_next(const struct nt_rank_set *set, uint32_t from) {
  for (uint32_t word = from / 64; word < set->word_count; word++) {
    uint64_t bits = set->words[word];
    if (word == from / 64)
      bits &= ~UINT64_C(0) << from % 64;
    if (bits != 0)
      return word * 64 + (uint32_t)__builtin_ctzll(bits);
  }
  return NT_RANK_MAX;
}

void nt_rank_set_free(struct nt_rank_set *set) {
  free(set->words);
  *set = (struct nt_rank_set){0};
}

static bool read_rank(const char **text, uint32_t *out) {
  uint32_t value = 0;
  if (!isdigit((unsigned char)**text))
    return false;
  for (; isdigit((unsigned char)**text); ++*text) {
    value = value * 10 + (uint32_t)(**text - '0');
    if (value >= NT_RANK_MAX)
      return false;
  }
  *out = value;
  return true;
}

int nt_rank_set_parse(const char *text, struct nt_rank_set *set) {
  for (;;) {
    uint32_t first, last;
    if (!read_rank(&text, &first))
      return -NT_ERR_CORRUPT;
    last = first;
    if (*text == '-') {
      text++;
      if (!read_rank(&text, &last) || last < first)
        return -NT_ERR_CORRUPT;
    }
    for (uint32_t rank = first; rank <= last; rank++) {
      int rc = nt_rank_set_add(set, rank);
      if (rc != 0)
        return rc;
    }
    if (*text == '\0')
      return 0;
    if (*text++ != ',')
      return -NT_ERR_CORRUPT;
  }
}

/* Appends one range; returns false, with "..." appended, when it does not fit. */
static bool append_range(char *out, size_t size, size_t *used, int64_t first, int64_t last) {
  char range[64];
  const char *comma = *used > 0 ? "," : "";
  if (first == last)
    snprintf(range, sizeof range, "%s%" PRId64, comma, first);
  else
    snprintf(range, sizeof range, "%s%" PRId64 "-%" PRId64, comma, first, last);
  size_t length = strlen(range);
  bool fits = *used + length + sizeof ",..." <= size;
  if (!fits)
    length = (size_t)snprintf(range, sizeof range, "%s...", comma);
  if (*used + length >= size)
    return false;
  memcpy(out + *used, range, length + 1);
  *used += length;
  return fits;
}

char *nt_rank_set_text(char *out, size_t size, const struct nt_rank_set *set) {
  size_t used = 0;
  snprintf(out, size, "none");
  for (uint32_t first = nt_rank_set_next(set, 0); first < NT_RANK_MAX;) {
    uint32_t last = first;
    while (nt_rank_set_has(set, last + 1))
      last++;
    if (!append_range(out, size, &used, first, last))
      break;
    first = nt_rank_set_next(set, last + 1);
  }
  return out;
}

char *nt_rank_list_text(char *out, size_t size, const int32_t *ranks, size_t count) {
  size_t used = 0;
  snprintf(out, size, "none");
  for (size_t i = 0; i < count;) {
    size_t j = i;
    while (j + 1 < count && ranks[j + 1] - ranks[j] <= 1)
      j++;
    if (!append_range(out, size, &used, ranks[i], ranks[j]))
      break;
    i = j + 1;
  }
  return out;
}
