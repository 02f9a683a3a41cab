/* SPDX-License-Identifier: Apache-2.0 */
/* Of what size the messages of a queue are, where they were not all read. */
#ifndef NT_QUEUES_H
#define NT_QUEUES_H

#include "analysis/identify.h"

/* A list that grows, in order of view, peer and direction. */
struct nt_queues {
  struct nt_model_queue *list;
  uint32_t count, room;
};

/* Adds a message. Returns 0 or -NT_ERR_MEMORY. */
int nt_queues_add(struct nt_queues *queues, const struct nt_model_queue *message);

/* Are all messages of each queue, those in front of what was read included, of one size on both sides? That sends and receives
 * are as many is not looked at. NULL, or why that is not known. */
const char *nt_queues_compare(const struct nt_job *job);

#endif
