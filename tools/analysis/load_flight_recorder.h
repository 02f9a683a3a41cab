/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps of PyTorch's flight recorder, pickled or JSON, into the model. One file is one process. */
#ifndef NT_LOAD_FLIGHT_RECORDER_H
#define NT_LOAD_FLIGHT_RECORDER_H

#include "analysis/load_trace.h"

/* By the first bytes of a file: does it begin as a dump does? Unless `named`, it must also hold a key of one. */
bool nt_is_flight_recorder(const uint8_t *bytes, size_t size, bool named);

/* Adds the process that dumped to the loader. `source` is the path: older dumps say nowhere whose they are, and
 * the number that ends the file's name does. On failure (a negative enum nt_err, err filled) the loader is as
 * before. */
int nt_load_flight_recorder(struct nt_trace_loader *loader, const char *source,
                            const uint8_t *bytes, size_t size, struct nt_error *err);

#endif
