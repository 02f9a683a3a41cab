/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc tells of a process in a word or two: its program, its parent, why it cannot be asked. */
#ifndef NT_PROCESS_WORDS_H
#define NT_PROCESS_WORDS_H

#include <stddef.h>
#include <stdint.h>

#define NT_COMMAND_TEXT 32
#define NT_ABSENCE_TEXT 400

/* "train.py" for an interpreter with a script, "torch.distributed.run" for one with a module, else the program's own
 * name, cut to fit. Empty if the process is gone. Not escaped. Returns `out`. */
char *nt_command_of_process(char out[NT_COMMAND_TEXT], uint32_t pid);

/* 0 if it is not known. */
uint32_t nt_parent_of_process(uint32_t pid);

/* Why a process of this number has no area that can be read, and what can be done. Escaped. Returns `out`. */
char *nt_absence_of_process(char out[NT_ABSENCE_TEXT], uint32_t pid);

#endif
