/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of captured graphs become calls of the model, once for each launch.
 *
 * A captured send moves nothing; what meets a receive is each replay of it, be that captured, too, or not. So a launch
 * stands for a group of the messages that its graph holds, which have the launch's times and progress, and all messages
 * of their queues are counted anew, in the order in which they were called and launched. That needs traces with all
 * calls; without, captured messages remain what they are and nothing is matched with them. Signals of one-sided
 * operations are counted here as well.
 */
#ifndef NT_REPLAYED_H
#define NT_REPLAYED_H

#include "analysis/model.h"

/* Once, when the model is complete and settled. Returns 0 or -NT_ERR_MEMORY. */
int nt_model_replay(struct nt_model *model);

#endif
