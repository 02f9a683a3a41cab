/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sections on memory, hardware and job are made of. Each adds its facts, or a "missing." fact for what
 * could not be asked. `root` stands before all paths: "" but in tests. Dump thread.
 */
#ifndef NT_DUMP_PARTS_H
#define NT_DUMP_PARTS_H

#include <stdint.h>

#include "preload/gpu_identity.h"
#include "trace/dump_frames.h"

/* The process, its control groups, the machine. */
void nt_dump_process_memory(struct nt_buffer *out, const char *root);
void nt_dump_cgroups(struct nt_buffer *out, const char *root);
void nt_dump_machine(struct nt_buffer *out, const char *root);

/* InfiniBand ports, network interfaces, TCP. */
void nt_dump_network(struct nt_buffer *out, const char *root);

/* The newest lines of the kernel's log that tell of a fault; `path` in place of /dev/kmsg, of which every read is one
 * record; now in microseconds of its clock. */
void nt_dump_kernel_log(struct nt_buffer *out, const char *path, uint64_t now_us);

/* These GPUs, by NVML in a thread of its own, which may never come back: waits for it at most `milliseconds`.
 * `library` in place of libnvidia-ml.so.1; both must stay. `start` starts the thread, -1 if it cannot. */
void nt_dump_nvml(struct nt_buffer *out, const char *library, const struct nt_gpu *gpus,
                  unsigned count, int milliseconds, int (*start)(void *(*body)(void *)));

/* NCCL's RAS at `address` ("host:port", NULL: the default), in at most `milliseconds`. */
void nt_dump_ras(struct nt_buffer *out, const char *address, int milliseconds);

#endif
