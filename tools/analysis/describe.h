/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, communicators and processes in words, as they stand in findings. */
#ifndef NT_DESCRIBE_H
#define NT_DESCRIBE_H

#include "analysis/identify.h"

#define NT_DESCRIBE 320

/* "rank 3 (gpu-07, pid 8123, GPU 3 = cuda:0, 0000:4e:00.0)". Escaped. */
char *nt_describe_rank(char *out, size_t size, const struct nt_model_rank *rank);
/* "A", or "the communicator of ranks 0-3", "the 2nd communicator of ranks 0-3". Escaped. */
char *nt_describe_joint(char *out, size_t size, const struct nt_job *job, uint32_t joint);
/* "AllReduce #7 on A". */
char *nt_describe_place(char *out, size_t size, const struct nt_job *job, uint8_t fn, uint32_t seq,
                        uint32_t joint);
/* "AllReduce #7 on A (1024 x f32 sum)", with destination or source for messages. */
char *nt_describe_call(char *out, size_t size, const struct nt_job *job, uint32_t rank,
                       uint32_t call);
/* "1024 x f32 sum, root 0". */
char *nt_describe_arguments(char *out, size_t size, const struct nt_model_call *call);
/* The rank's last call on a communicator up to the cut; NT_NONE if it made none. */
uint32_t nt_last_call(const struct nt_job *job, uint32_t rank);
/* The same of one of its threads, 0: of any. */
uint32_t nt_last_call_in(const struct nt_job *job, uint32_t rank, uint32_t thread);
/* "in cudaStreamSynchronize at train.py:91 step", "in AllReduce #7 on A at …", "host code since
 * 02:41:17.120 UTC, last call at …", or what a dump says instead (dump_words.h): what the rank's host does at the
 * cut. "" if that cannot be told. */
char *nt_describe_now(char *out, size_t size, const struct nt_job *job, uint32_t rank);
/* The same of one of its threads, 0: of that which did something last. */
char *nt_describe_now_in(char *out, size_t size, const struct nt_job *job, uint32_t rank,
                         uint32_t thread);
/* The thread of a dump that this is said of, NULL if it comes from calls. */
const struct nt_model_dump_thread *nt_describe_thread(const struct nt_job *job, uint32_t rank,
                                                      uint32_t thread);
/* That thread also where it is in a call or a host wait, if the dump is of after the rank's last record. */
const struct nt_model_dump_thread *nt_describe_dumped(const struct nt_job *job, uint32_t rank,
                                                      uint32_t thread);
/* "ranks 0-1,3" or "rank 2"; "nobody" for the empty set. */
char *nt_describe_ranks(char *out, size_t size, const struct nt_rank_set *ranks);
/* "running", "exited with code 1", "vanished" …: nt_fate_text, at most NT_FATE_TEXT bytes. */
char *nt_describe_state(char *out, size_t size, const struct nt_model_rank *rank);
/* The same of one that is gone, to stand behind "rank 2 ". */
char *nt_describe_end(char *out, size_t size, const struct nt_model_rank *rank);
/* "the GPU's progress on rank 3 has not been seen since …"; false if that is not so. */
bool nt_describe_blocked(char *out, size_t size, const struct nt_model_rank *rank);

#endif
