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
  struct nt_template *templates; /* room for NT_CODEC_MAX_CALLS */
  uint32_t template_count;
  uint32_t *lookup; /* open addressing, index + 1 */
  uint64_t *values; /* columns of the frame at hand: NT_COLUMN_RECORD_LIMIT × calls */
  size_t values_room;
};

/* Room for the columns of `calls` calls in codec->values. -NT_ERR_MEMORY. */
int nt_codec_room(struct nt_codec *codec, uint32_t calls);

#endif
