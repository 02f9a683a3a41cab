/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dumps of a digest: the newest, and of older ones whom the kernel killed. Which section a thing came with is not told
 * apart any more: the first that was finished has it all, and the others are there to have been finished.
 */
#include <stdlib.h>

#include "trace/digest_parts.h"

enum { FRAMES_KEPT = 24 };

static bool called_nccl(const struct nt_trace *trace, uint32_t tid) {
  for (size_t i = 0; i < trace->facts.thread_count; i++)
    if (trace->facts.threads[i].tid == tid)
      return true;
  return false;
}

static void add_stack(struct nt_buffer *out, uint32_t tid, enum nt_dump_stack_kind kind, bool cut,
                      const struct nt_stack_frame *frames, uint32_t count) {
  struct nt_dump_frame list[NT_DUMP_FRAMES_MAX];
  if (count > NT_DUMP_FRAMES_MAX)
    count = NT_DUMP_FRAMES_MAX;
  for (uint32_t i = 0; i < count; i++) {
    const bool native = kind == NT_DUMP_STACK_NATIVE;
    const char *name = native ? frames[i].build_id : frames[i].function;
    list[i] = (struct nt_dump_frame){.at = native ? frames[i].offset : (uint64_t)frames[i].line,
                                     .file = frames[i].file,
                                     .name = name,
                                     .file_length = (uint16_t)strlen(frames[i].file),
                                     .name_length = (uint16_t)strlen(name)};
  }
  if (count)
    nt_dump_add_stack(out, tid, kind, cut ? NT_DUMP_STACK_CUT : 0, list, count);
}

static void add_thread(struct nt_buffer *out, const struct nt_dump_thread *thread, uint32_t most) {
  struct nt_dump_thread_facts facts = {.tid = thread->tid,
                                       .state = thread->state,
                                       .flags = thread->flags,
                                       .cpu_ns = thread->cpu_ns,
                                       .syscall = thread->syscall};
  memcpy(facts.args, thread->args, sizeof facts.args);
  memcpy(facts.name, thread->name, sizeof facts.name);
  memcpy(facts.wait, thread->wait, sizeof facts.wait);
  if (thread->kernel)
    nt_dump_add_thread(out, &facts);
  const uint32_t python = thread->python_count < most ? thread->python_count : most,
                 native = thread->native_count < most ? thread->native_count : most;
  add_stack(out, thread->tid, NT_DUMP_STACK_PYTHON,
            thread->python_cut || python < thread->python_count, thread->python, python);
  add_stack(out, thread->tid, NT_DUMP_STACK_NATIVE,
            thread->native_cut || native < thread->native_count, thread->native, native);
}

static bool tells_of_faults(const char *key) {
  static const char *const kinds[] = {
      "kernel.", "gpu.", "missing.", "ib.", "net.", "ras.", "cgroup.memory.oom_kill", "python."};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strncmp(key, kinds[i], strlen(kinds[i])))
      return true;
  return false;
}

static bool is_kill(const char *key, const char *value) {
  return !strncmp(key, "kernel.", 7) && strstr(value, "Killed process ");
}

static int write_section(const struct nt_digest *digest, const struct nt_dump_view *view,
                         uint32_t section, const struct nt_buffer *rest, struct nt_buffer *out) {
  const struct nt_dump_head head = {.number = view->number,
                                    .reason = view->reason,
                                    .section = section,
                                    .asked = view->asked,
                                    .began_ns = (uint64_t)view->began_ns,
                                    .taken_ns = (uint64_t)view->taken_ns};
  struct nt_buffer payload = {0};
  nt_dump_add_head(&payload, &head);
  if (rest && rest->length)
    nt_add_bytes(&payload, rest->data, rest->length);
  const int rc = nt_digest_frame(digest, NT_FRAME_DUMP, 1, &payload, out);
  free(payload.data);
  return rc;
}

static int write_dump(const struct nt_digest *digest, size_t index, bool newest, uint32_t lacks,
                      struct nt_buffer *out) {
  const struct nt_trace *trace = digest->trace;
  const struct nt_dump_view *view = nt_trace_dump_at(trace, index);
  const bool all = !(lacks & NT_DIGEST_NO_DUMP_REST);
  struct nt_buffer rest = {0};
  const char *key, *value;
  int rc = 0;
  for (size_t i = 0; newest && i < view->thread_count; i++) {
    const struct nt_dump_thread *thread = &view->threads[i];
    if (all || thread->flags & NT_DUMP_THREAD_MAIN || called_nccl(trace, thread->tid))
      add_thread(&rest, thread, all ? NT_DUMP_FRAMES_MAX : FRAMES_KEPT);
  }
  for (size_t k = 0; nt_trace_dump_fact_at(trace, index, k, &key, &value); k++)
    if (newest ? all || tells_of_faults(key) : is_kill(key, value))
      nt_dump_add_fact(&rest, key, "%s", value);
  const struct nt_buffer *first = &rest;
  for (uint32_t section = 1; section < 32 && !rc && (newest || rest.length); section++) {
    if (!(view->taken >> section & 1))
      continue;
    rc = write_section(digest, view, section, first, out);
    first = NULL;
  }
  if (rest.failed)
    rc = -NT_ERR_MEMORY;
  free(rest.data);
  return rc;
}

int nt_digest_dumps(const struct nt_digest *digest, uint32_t lacks, struct nt_buffer *out) {
  const size_t count = nt_trace_dump_count(digest->trace);
  int rc = 0;
  for (size_t i = 0; i < count && !rc; i++)
    rc = write_dump(digest, i, i + 1 == count, lacks, out);
  return rc;
}
