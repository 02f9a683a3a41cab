/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of NCCL_DEBUG=INFO into the model. */
#ifndef NT_LOAD_NCCL_LOG_H
#define NT_LOAD_NCCL_LOG_H

#include "analysis/load_trace.h"

/* By the first bytes of a file. */
bool nt_is_nccl_log(const uint8_t *bytes, size_t size);

/* Ranks that no launcher put in front of lines are those of the largest communicator. Where the processes of a
 * job share none that spans them, numbers them by host and process and notes that. Call once all logs are
 * loaded. Returns 0 or -NT_ERR_MEMORY. */
int nt_number_log_ranks(struct nt_model *model);

/* Adds the processes that the log tells of to the loader. On failure (a negative enum nt_err, err filled) the
 * loader is as before. */
int nt_load_nccl_log(struct nt_trace_loader *loader, const char *source, const uint8_t *bytes,
                     size_t size, struct nt_error *err);

#endif
