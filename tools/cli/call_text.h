/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call in words: "AllReduce #7 on A, 4 Mi x f32 sum". The same words in every tool. The label of
 * the communicator is given by the caller (it may know a better name than one process does) and
 * must already be escaped; NULL leaves "on ..." out.
 */
#ifndef NT_CLI_CALL_TEXT_H
#define NT_CLI_CALL_TEXT_H

#include <stddef.h>

#include "trace/reader.h"

#define NT_CALL_TEXT 256
#define NT_LABEL_TEXT 256
#define NT_RESULT_TEXT 32

/* "AllReduce", or "function 99" for one that this build does not know. */
char *nt_call_function(char *out, size_t size, unsigned fn);

/* Which call: "AllReduce #7 on A", "Send #3 to rank 1 on A", "CommSplit #1 on A", "GroupEnd". */
char *nt_call_name(char *out, size_t size, const struct nt_call *call, const char *comm);

/* What it asks for: "4 Mi x f32 sum", "1000 x u8, root 0", "colour 1, key 0", "rank 0 of 2", or "". */
char *nt_call_arguments(char *out, size_t size, const struct nt_call *call);

/* Both, with a comma between. */
char *nt_call_text(char *out, size_t size, const struct nt_call *call, const char *comm);

/* The number of the capture that a captured call belongs to, or that the graph of a launch came from; 0 if none. A graph
 * that holds others has a number, too. */
uint32_t nt_call_capture(const struct nt_call *call);
/* The number of the graph that the call launches or puts into another one, 0 if it does neither; and of what that other
 * held already. */
uint32_t nt_call_graph(const struct nt_call *call);
uint32_t nt_call_held(const struct nt_call *call);

/* "ncclInvalidUsage", or "result 9" for one that this build does not know. */
char *nt_result_text(char *out, size_t size, int64_t result);

/* How it stands: "in call", "ok", "ncclInvalidUsage", "discarded", "never returned", "in progress". */
char *nt_call_result(char *out, size_t size, const struct nt_call *call);

/* Type and operator by name, "dtype 14" / "op 9" for those of a newer NCCL, "" where there is none
 * (255); user-defined operators are "user operator 1" …. */
char *nt_dtype_text(char *out, size_t size, unsigned dtype);
char *nt_redop_text(char *out, size_t size, unsigned op);

/* A communicator for people, escaped: its name, else "comm 3". */
char *nt_comm_label(char *out, size_t size, const struct nt_trace_comm *comm);
/* The 32 hexadecimal digits of an id. */
char *nt_comm_id_text(char out[33], const uint8_t id[16]);
/* "live", "destroyed" …; "split", "init" …. */
const char *nt_comm_state_text(unsigned state);
const char *nt_comm_origin_text(unsigned origin);

#endif
