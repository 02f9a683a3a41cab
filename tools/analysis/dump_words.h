/* SPDX-License-Identifier: Apache-2.0 */
/* What dumps add to findings: where a thread is, and facts about hardware. They never decide. */
#ifndef NT_DUMP_WORDS_H
#define NT_DUMP_WORDS_H

#include "analysis/inquiry.h"

/* The thread of the rank's dump that says where the rank is: the one that called NCCL last, else the main thread. NULL
 * unless the dump is of after the rank's last record and not of after the cut. */
const struct nt_model_dump_thread *nt_dump_thread_now(const struct nt_job *job, uint32_t rank,
                                                      uint32_t last_record);

/* "in host code in load_batch() at data.py:41 (host code since 02:41:17.120 UTC: main thread sleeping in read(fd 7); from
 * the dump of 02:41:47.003 UTC)", "in host code since 02:41:17.120 UTC: main thread sleeping in read(fd 7) (from the dump of
 * …)". since_ns is when it left its last call, 0: not known. Returns `out`. */
char *nt_dump_words(char *out, size_t size, const struct nt_model_rank *rank,
                    const struct nt_model_dump_thread *thread, int64_t since_ns);

/* Facts of the dumps since the finding began as its evidence, and which sources could not be asked. */
void nt_say_dumps(struct nt_inquiry *inquiry, struct nt_finding *finding);

#endif
