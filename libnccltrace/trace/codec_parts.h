/* SPDX-License-Identifier: Apache-2.0 */
/* What encoder and decoder share. Included by codec.c and codec_decode.c only. */
#ifndef NT_CODEC_PARTS_H
#define NT_CODEC_PARTS_H

#include "trace/codec.h"
#include "trace/codec_model.h"
#include "trace/error.h"
#include "trace/format.h"

#define COLUMN_HEAD 8 /* u8 column, u8 planes, u16 0, u32 entries */

struct nt_codec {
  struct nt_model model;
  struct nt_template *templates; /* of the frame at hand, at most one per call */
  uint64_t *values;              /* its columns: NT_COLUMN_RECORD_LIMIT × calls */
  uint32_t *lookup;              /* encoder: open addressing, index + 1 */
  uint32_t template_count;
  uint32_t room; /* calls for which templates and values have room */
};

/* Room for templates and columns of `calls` calls. -NT_ERR_MEMORY. */
int nt_codec_room(struct nt_codec *codec, uint32_t calls);

#endif
