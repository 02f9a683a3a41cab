/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks and code objects in a trace file; docs/FORMAT.md has the same in words.
 *
 * CODES frames hold entries (frame.h) of one kind. STACKS frames are nothing but nodes: a payload that zstd
 * packs to a few bytes a node. Both stand in a segment in front of the calls that need them; a node
 * stands behind its parent.
 */
#ifndef NT_STACK_FRAMES_H
#define NT_STACK_FRAMES_H

/* An entry of a CODES frame: these fields, then file, function and line table without terminators. */
#define NT_ENTRY_CODE 1
#define NT_CODE_ID 0
#define NT_CODE_FIRST_LINE 4
#define NT_CODE_LINES 8
#define NT_CODE_FLAGS 10
#define NT_CODE_FILE_LENGTH 12
#define NT_CODE_NAME_LENGTH 16
#define NT_CODE_TABLE_LENGTH 20
#define NT_CODE_HEAD 24

/* A node of a STACKS frame. */
#define NT_NODE_ID 0
#define NT_NODE_PARENT 4
#define NT_NODE_CODE 8
#define NT_NODE_OFFSET 12
#define NT_NODE_DEPTH 16
#define NT_NODE_SIZE 20

#endif
