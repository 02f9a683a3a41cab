/* SPDX-License-Identifier: Apache-2.0 */
/* What other recorders write for a call: their bytes, to compare sizes. */
#ifndef NT_OTHER_FORMATS_H
#define NT_OTHER_FORMATS_H

#include <stddef.h>
#include <stdint.h>

#include "trace/codec.h"

enum { OTHER_FORMATS_MOST = 512 };

/* The line that NCCL 2.28 logs for a collective, a send or a receive with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=COLL, its
 * end included; for other calls there is none. Returns its length. */
size_t nccl_log_line(const struct nt_batch_call *call, char out[OTHER_FORMATS_MOST]);

/* The entry that PyTorch 2.11's flight recorder has in its dump for the same calls, and for a group, with a stack of
 * `frames` frames; `number` counts entries. Texts are written once in a dump and are references here, as are the frames. The
 * state is that of a completed operation. Returns its length. */
size_t flight_recorder_entry(const struct nt_batch_call *call, uint64_t number, int frames,
                             unsigned char out[OTHER_FORMATS_MOST]);

#endif
