/* SPDX-License-Identifier: Apache-2.0 */
/* What the evidence is made of. `root` stands before /proc and /sys: "" but in tests. */
#ifndef NT_EVIDENCE_PARTS_H
#define NT_EVIDENCE_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Text that grows from `at` to `end`. */
struct nt_evidence_text {
  char *at, *end;
};

/* Appends "key=value\n" with control characters replaced; what does not fit is left out whole. */
void nt_evidence_put(struct nt_evidence_text *out, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "started": when a process began whose start is `ticks` after that of the machine. */
void nt_evidence_start(struct nt_evidence_text *out, uint64_t ticks);
/* "script": what a Python program runs, from its arguments, each ended by 0; nothing for others. */
void nt_evidence_script(struct nt_evidence_text *out, const char *arguments, size_t length);
/* "ib.DEVICE": state and rate of its first port. */
void nt_evidence_infiniband(struct nt_evidence_text *out, const char *root);
/* Position of a PCI id among those of the driver, in the order in which nvidia-smi counts; -1: not known. */
int nt_evidence_gpu_index(const char *root, const char *pci);

#endif
