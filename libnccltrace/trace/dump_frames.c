/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/dump_frames.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FACT_BYTES = 4000 };

const char *nt_dump_section_name(unsigned section) {
  static const char *const names[NT_DUMP_SECTIONS] = {
      "?", "threads", "memory", "Python stacks", "native stacks", "hardware", "NCCL RAS"};
  return names[section < NT_DUMP_SECTIONS ? section : 0];
}

void nt_dump_add_head(struct nt_buffer *out, const struct nt_dump_head *head) {
  unsigned char *at = nt_entry_add(out, NT_ENTRY_DUMP, NT_ENTRY_DUMP_SIZE);
  if (!at)
    return;
  nt_put_u32(at + NT_DUMP_NUMBER, head->number);
  nt_put_u32(at + NT_DUMP_REASON, head->reason);
  nt_put_u32(at + NT_DUMP_SECTION, head->section);
  nt_put_u32(at + NT_DUMP_ASKED, head->asked);
  nt_put_u64(at + NT_DUMP_BEGAN, head->began_ns);
  nt_put_u64(at + NT_DUMP_TAKEN, head->taken_ns);
}

void nt_dump_add_thread(struct nt_buffer *out, const struct nt_dump_thread_facts *thread) {
  unsigned char *at = nt_entry_add(out, NT_ENTRY_DUMP_THREAD, NT_ENTRY_DUMP_THREAD_SIZE);
  if (!at)
    return;
  nt_put_u32(at + NT_DUMP_THREAD_TID, thread->tid);
  at[NT_DUMP_THREAD_STATE] = (unsigned char)thread->state;
  at[NT_DUMP_THREAD_FLAGS] = thread->flags;
  nt_put_u64(at + NT_DUMP_THREAD_CPU, thread->cpu_ns);
  nt_put_u64(at + NT_DUMP_THREAD_SYSCALL, (uint64_t)thread->syscall);
  for (unsigned i = 0; i < 6; i++)
    nt_put_u64(at + NT_DUMP_THREAD_ARGS + 8 * i, thread->args[i]);
  memcpy(at + NT_DUMP_THREAD_NAME, thread->name, sizeof thread->name);
  memcpy(at + NT_DUMP_THREAD_WAIT, thread->wait, sizeof thread->wait);
}

static uint32_t frame_size(const struct nt_dump_frame *frame) {
  return (uint32_t)nt_round_up(
      NT_DUMP_FRAME_HEAD + (uint64_t)frame->file_length + frame->name_length, 8);
}

void nt_dump_add_stack(struct nt_buffer *out, uint32_t tid, enum nt_dump_stack_kind kind,
                       uint16_t flags, const struct nt_dump_frame *frames, uint32_t count) {
  uint32_t size = NT_DUMP_STACK_HEAD;
  for (uint32_t i = 0; i < count; i++)
    size += frame_size(&frames[i]);
  unsigned char *at = nt_entry_add(out, NT_ENTRY_DUMP_STACK, size);
  if (!at)
    return;
  nt_put_u32(at + NT_DUMP_STACK_TID, tid);
  nt_put_u16(at + NT_DUMP_STACK_KIND, (uint16_t)kind);
  nt_put_u16(at + NT_DUMP_STACK_FLAGS, flags);
  nt_put_u32(at + NT_DUMP_STACK_COUNT, count);
  at += NT_DUMP_STACK_HEAD;
  for (uint32_t i = 0; i < count; i++) {
    const struct nt_dump_frame *frame = &frames[i];
    nt_put_u64(at + NT_DUMP_FRAME_AT, frame->at);
    nt_put_u16(at + NT_DUMP_FRAME_FILE, frame->file_length);
    nt_put_u16(at + NT_DUMP_FRAME_NAME, frame->name_length);
    if (frame->file_length)
      memcpy(at + NT_DUMP_FRAME_HEAD, frame->file, frame->file_length);
    if (frame->name_length)
      memcpy(at + NT_DUMP_FRAME_HEAD + frame->file_length, frame->name, frame->name_length);
    at += frame_size(frame);
  }
}

void nt_dump_add_fact(struct nt_buffer *out, const char *key, const char *format, ...) {
  char text[FACT_BYTES + 1];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length < 0)
    return;
  if (length > FACT_BYTES)
    length = FACT_BYTES;
  for (int i = 0; i < length; i++)
    if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
      text[i] = ' ';
  const size_t key_length = strlen(key);
  unsigned char *at =
      nt_entry_add(out, NT_ENTRY_DUMP_FACT, (uint32_t)(key_length + 1 + (size_t)length));
  if (!at)
    return;
  memcpy(at, key, key_length);
  at[key_length] = '=';
  memcpy(at + key_length + 1, text, (size_t)length);
}
