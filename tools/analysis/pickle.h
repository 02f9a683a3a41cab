/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a pickle that holds plain data, and executes nothing.
 *
 * A pickle is a program for a stack machine, and Python's own reader calls whatever the file names. This one knows
 * the operations of protocols 2 to 5 that make None, booleans, numbers, text, bytes, lists, tuples and dictionaries;
 * any that would import, call or build an object is refused by name. Lengths are checked against the input, and memory
 * is proportional to it.
 */
#ifndef NT_PICKLE_H
#define NT_PICKLE_H

#include "analysis/value_tree.h"

/* The value refers to `bytes` and lives in `store`. On failure (a negative enum nt_err) err says where and why. */
int nt_pickle_read(const uint8_t *bytes, size_t size, struct nt_value_store *store,
                   const struct nt_value **out, struct nt_error *err);

#endif
