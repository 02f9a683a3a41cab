/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of ranks, and their text as ranges: "0-1,3". */
#ifndef NT_CLI_RANK_SET_H
#define NT_CLI_RANK_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A bitmap that grows. All zero is the empty set. */
struct nt_rank_set {
  uint64_t *words;
  uint32_t word_count;
};

#define NT_RANK_MAX (1u << 24) /* ranks are below this */

/* 0, or a negative enum nt_err: NT_ERR_MEMORY, NT_ERR_CORRUPT for a rank out of range. */
int nt_rank_set_add(struct nt_rank_set *set, uint32_t rank);
bool nt_rank_set_has(const struct nt_rank_set *set, uint32_t rank);
uint32_t nt_rank_set_count(const struct nt_rank_set *set);
/* The smallest member that is at least `from`; NT_RANK_MAX if there is none. */
uint32_t nt_rank_set_next(const struct nt_rank_set *set, uint32_t from);
void nt_rank_set_free(struct nt_rank_set *set);

/* Adds the ranks of "0-1,3" to the set. Returns 0, or a negative enum nt_err with nothing said about the
 * set: NT_ERR_CORRUPT if the text is not a list of ranges. */
int nt_rank_set_parse(const char *text, struct nt_rank_set *set);

/* "0-1,3", "none" for an empty set. What does not fit is cut at a comma and ends with "...". */
char *nt_rank_set_text(char *out, size_t size, const struct nt_rank_set *set);
/* The same for a sorted list of ranks. */
char *nt_rank_list_text(char *out, size_t size, const int32_t *ranks, size_t count);

#endif
