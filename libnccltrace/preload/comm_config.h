/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration that an application passes when it makes a communicator: what belongs to the communicator's
 * definition, and the other settings in words, for the evidence.
 *
 * The memory is the application's, and NCCL may yet refuse the call for its pointers: it is read through the kernel,
 * which answers with an error where a load would fault, and never beyond the size that the structure gives.
 */
#ifndef NT_COMM_CONFIG_H
#define NT_COMM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/area.h"

enum { NT_COMM_CONFIG_TEXT = 240 };

/* Fills in name and blocking of def, whose number is set, and notes all that is not left to NCCL. `config` may be
 * NULL, or anything. Application threads. */
void nt_comm_config_read(const void *config, struct nt_comm_def *def);

/* The i-th note of those that are kept, the most recent ones: false past the end. Any thread. */
bool nt_comm_config_at(unsigned i, uint32_t *comm, char out[NT_COMM_CONFIG_TEXT]);

/* How many notes were ever made. */
uint32_t nt_comm_config_count(void);

/* Forgets all: a forked child's communicators are others. */
void nt_comm_config_reset(void);

#endif
