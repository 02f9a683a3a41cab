/* SPDX-License-Identifier: Apache-2.0 */
/* What encoder and decoder share. Included by codec*.c only. */
#ifndef NT_CODEC_PARTS_H
#define NT_CODEC_PARTS_H

#include "trace/codec.h"
#include "trace/codec_model.h"
#include "trace/columns.h"
#include "trace/error.h"
#include "trace/format.h"

struct nt_codec {
  struct nt_model model;
  struct nt_template *templates; /* of the frame at hand, at most one per call */
  uint32_t template_count;
  uint32_t template_room; /* calls for which there is room */
  /* Encoder: */
  struct nt_finder *finder;
  uint64_t *values; /* its columns: NT_COLUMN_RECORD_LIMIT × value_room */
  uint32_t entries[NT_COLUMN_RECORD_LIMIT];
  uint32_t value_room;
};

/* Room for that many templates. -NT_ERR_MEMORY. */
int nt_codec_room(struct nt_codec *codec, uint32_t templates);

/* codec_templates.c: the template of each call of a batch, numbered in the order in which they first appear. Fills
 * codec->templates; *index has one number per call and belongs to the finder. -NT_ERR_MEMORY. */
int nt_codec_find_templates(struct nt_codec *codec, const struct nt_batch *batch,
                            const uint32_t **index);
void nt_codec_free_finder(struct nt_finder *finder);

#endif
