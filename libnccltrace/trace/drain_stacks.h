/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which stacks and code objects a segment already has, and frames with those that it lacks.
 *
 * Belongs to one drain and its thread. Ids are never reused in an area, so one bit for each says it all.
 */
#ifndef NT_DRAIN_STACKS_H
#define NT_DRAIN_STACKS_H

#include "trace/area.h"
#include "trace/frame.h"

struct nt_stack_definer;

struct nt_stack_definer *nt_stack_definer_new(const struct nt_area *area);
void nt_stack_definer_free(struct nt_stack_definer *definer);

/* The stack `id` of a record is about to be written to segment `epoch`. Cheap when it is defined there. */
void nt_stack_definer_want(struct nt_stack_definer *definer, uint64_t epoch, uint32_t id);

/*
 * Appends a CODES and a STACKS frame with all that is wanted and not defined; nothing when there is
 * none. More than `limit` bytes are never written: line tables are left out first, then everything, so
 * that stacks cannot cost a call its place. 0 or -NT_ERR_MEMORY; then `frames` is as before. When the
 * frames do not reach the segment nt_stack_definer_forget must be called.
 */
int nt_stack_definer_write(struct nt_stack_definer *definer, struct nt_packer *packer,
                           uint64_t limit, struct nt_buffer *frames);

/* Nothing counts as defined any more. */
void nt_stack_definer_forget(struct nt_stack_definer *definer);

#endif
