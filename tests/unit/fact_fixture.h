/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of a section, as a reader finds them. */
#ifndef FACT_FIXTURE_H
#define FACT_FIXTURE_H

#include "trace/dump_frames.h"

/* The value of a key, NULL if it is not there; it lasts until the next call. Fails the test if a key is there twice. */
const char *fact(const struct nt_buffer *facts, const char *key);
unsigned fact_count(const struct nt_buffer *facts);
void assert_fact(const struct nt_buffer *facts, const char *key, const char *value);
void assert_no_fact(const struct nt_buffer *facts, const char *key);
void fact_clear(struct nt_buffer *facts);

#endif
