/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/read_dumps.h"

#include <inttypes.h>
#include <stdlib.h>

#include "trace/read_parts.h"

/* What the entries of a section, or of all sections of a dump, need when they are put together. */
struct needs {
  size_t entries, facts, frames, text;
};

static void free_sections(struct nt_known_dump *dump) {
  for (struct nt_known_section *section = dump->sections, *next; section; section = next) {
    next = section->next;
    free(section->payload);
    free(section);
  }
  dump->sections = NULL;
}

static void free_dump(struct nt_known_dump *dump) {
  free_sections(dump);
  free(dump->threads);
  free(dump->frames);
  free(dump->facts);
  free(dump->text);
  free(dump);
}

void nt_known_dumps_free(struct nt_known_dumps *dumps) {
  for (size_t i = 0; i < dumps->count; i++)
    free_dump(dumps->list[i]);
  memset(dumps, 0, sizeof *dumps);
}

/* ---- checking ----------------------------------------------------------------------------------- */

/* Frames of a stack that are delivered. */
static uint32_t kept_frames(uint32_t count) {
  return count < NT_DUMP_FRAMES_MAX ? count : NT_DUMP_FRAMES_MAX;
}

static int check_stack(const unsigned char *at, uint32_t length, struct needs *needs) {
  struct nt_cursor cursor = {.at = at, .left = length};
  const unsigned char *head = nt_take(&cursor, NT_DUMP_STACK_HEAD);
  const uint32_t count = head ? nt_get_u32(head + NT_DUMP_STACK_COUNT) : 0;
  for (uint32_t i = 0; i < count && !cursor.failed; i++) {
    const unsigned char *frame = nt_take(&cursor, NT_DUMP_FRAME_HEAD);
    if (!frame)
      break;
    const uint32_t file = nt_get_u16(frame + NT_DUMP_FRAME_FILE),
                   name = nt_get_u16(frame + NT_DUMP_FRAME_NAME);
    nt_take(&cursor, (size_t)nt_round_up((uint64_t)file + name, 8));
    needs->text += file + name + 2;
  }
  needs->frames += kept_frames(count);
  return cursor.failed ? -NT_ERR_CORRUPT : 0;
}

static int check_entries(const unsigned char *at, size_t length, struct needs *needs) {
  struct nt_cursor cursor = {.at = at, .left = length};
  uint16_t kind;
  uint32_t size;
  int rc = 0;
  while (!rc && nt_entry_next(&cursor, &kind, &at, &size)) {
    if (kind == NT_ENTRY_DUMP_THREAD && size < NT_ENTRY_DUMP_THREAD_SIZE)
      rc = -NT_ERR_CORRUPT;
    else if (kind == NT_ENTRY_DUMP_STACK)
      rc = check_stack(at, size, needs);
    needs->entries += kind == NT_ENTRY_DUMP_THREAD || kind == NT_ENTRY_DUMP_STACK;
    if (kind == NT_ENTRY_DUMP_FACT) {
      needs->facts++;
      needs->text += size + 1;
    }
  }
  return rc || cursor.failed ? -NT_ERR_CORRUPT : 0;
}

/* ---- collecting --------------------------------------------------------------------------------- */

static bool is_known(const struct nt_known_dump *dump, uint32_t section) {
  return dump->view.taken >> section & 1;
}

static void drop_oldest(struct nt_known_dumps *dumps) {
  dumps->bytes -= dumps->list[0]->bytes;
  free_dump(dumps->list[0]);
  dumps->count--;
  dumps->left_out = true;
  memmove(dumps->list, dumps->list + 1, dumps->count * sizeof *dumps->list);
}

/* The dump with this number, made if it is not there. -NT_ERR_SPACE: older than all that there is room for. */
static int find_dump(struct nt_known_dumps *dumps, uint32_t number, struct nt_known_dump **out) {
  size_t at = dumps->count;
  while (at > 0 && dumps->list[at - 1]->view.number > number)
    at--;
  if (at > 0 && dumps->list[at - 1]->view.number == number) {
    *out = dumps->list[at - 1];
    return 0;
  }
  if (dumps->count == NT_DUMPS_MAX) {
    if (at == 0) {
      dumps->left_out = true;
      return -NT_ERR_SPACE;
    }
    drop_oldest(dumps);
    at--;
  }
  struct nt_known_dump *dump = calloc(1, sizeof *dump);
  if (!dump)
    return -NT_ERR_MEMORY;
  dump->view.number = number;
  memmove(dumps->list + at + 1, dumps->list + at, (dumps->count - at) * sizeof *dumps->list);
  dumps->list[at] = *out = dump;
  dumps->count++;
  return 0;
}

static int64_t time_of(const unsigned char *at) {
  const uint64_t ns = nt_get_u64(at);
  return ns <= INT64_MAX ? (int64_t)ns : 0;
}

static void tell_head(struct nt_dump_view *view, const unsigned char *head, uint32_t section) {
  const int64_t taken = time_of(head + NT_DUMP_TAKEN);
  view->reason = nt_get_u32(head + NT_DUMP_REASON);
  view->asked |= nt_get_u32(head + NT_DUMP_ASKED);
  view->began_ns = time_of(head + NT_DUMP_BEGAN);
  view->taken |= UINT32_C(1) << section;
  if (taken > view->taken_ns)
    view->taken_ns = taken;
}

int nt_known_dumps_take(struct nt_known_dumps *dumps, unsigned char *payload, uint32_t length,
                        uint32_t *number, uint32_t *section) {
  struct nt_cursor cursor = {.at = payload, .left = length};
  const unsigned char *head;
  uint16_t kind;
  uint32_t size;
  struct needs needs = {0};
  struct nt_known_dump *dump;
  struct nt_known_section *known = NULL;
  int rc = -NT_ERR_CORRUPT;
  *number = *section = 0;
  if (!nt_entry_next(&cursor, &kind, &head, &size) || kind != NT_ENTRY_DUMP ||
      size < NT_ENTRY_DUMP_SIZE)
    goto out;
  *number = nt_get_u32(head + NT_DUMP_NUMBER);
  *section = nt_get_u32(head + NT_DUMP_SECTION);
  if (!*number || !*section || *section > 31 || check_entries(cursor.at, cursor.left, &needs))
    goto out;
  if ((rc = find_dump(dumps, *number, &dump)) != 0 || is_known(dump, *section))
    goto out;
  rc = -NT_ERR_SPACE;
  while (dumps->bytes + length > NT_DUMPS_BYTES && dumps->list[0] != dump)
    drop_oldest(dumps);
  if (dumps->bytes + length > NT_DUMPS_BYTES) {
    dumps->left_out = true;
    goto out;
  }
  rc = -NT_ERR_MEMORY;
  known = calloc(1, sizeof *known);
  if (!known)
    goto out;
  *known = (struct nt_known_section){.section = *section,
                                     .length = (uint32_t)cursor.left,
                                     .payload = payload,
                                     .entries = payload + (length - cursor.left)};
  /* In the order of the sections' numbers, which is that in which they are taken. */
  struct nt_known_section **link = &dump->sections;
  while (*link && (*link)->section < *section)
    link = &(*link)->next;
  known->next = *link;
  *link = known;
  tell_head(&dump->view, head, *section);
  dump->bytes += length;
  dumps->bytes += length;
  return 0;
out:
  free(payload);
  return rc;
}

/* ---- putting together --------------------------------------------------------------------------- */

/* An entry of a thread, to be sorted. */
struct found {
  const unsigned char *at;
  uint32_t tid, order;
  uint16_t kind;
  bool main;
};

static int by_thread(const void *a, const void *b) {
  const struct found *x = a, *y = b;
  if (x->main != y->main)
    return x->main ? -1 : 1;
  if (x->tid != y->tid)
    return x->tid < y->tid ? -1 : 1;
  return x->order < y->order ? -1 : x->order > y->order;
}

/* Texts and frames that are handed out one after the other. */
struct pool {
  struct nt_stack_frame *frame;
  char *text;
};

static const char *copy_text(struct pool *pool, const unsigned char *at, size_t length) {
  char *text = pool->text;
  memcpy(text, at, length);
  text[length] = 0;
  pool->text += length + 1;
  return text;
}

static void add_facts(struct nt_known_dump *dump, const struct nt_known_section *section,
                      struct pool *pool) {
  struct nt_cursor cursor = {.at = section->entries, .left = section->length};
  const unsigned char *at;
  uint16_t kind;
  uint32_t size;
  while (nt_entry_next(&cursor, &kind, &at, &size)) {
    const unsigned char *equals = size ? memchr(at, '=', size) : NULL;
    if (kind != NT_ENTRY_DUMP_FACT || !equals || equals == at ||
        dump->view.fact_count == NT_DUMP_FACTS_MAX)
      continue;
    const size_t key = (size_t)(equals - at);
    struct nt_known_fact *fact = &dump->facts[dump->view.fact_count++];
    fact->key = copy_text(pool, at, key);
    fact->value = copy_text(pool, equals + 1, size - key - 1);
  }
}

static void add_stack(struct nt_dump_thread *thread, const unsigned char *at, struct pool *pool) {
  const bool native = nt_get_u16(at + NT_DUMP_STACK_KIND) == NT_DUMP_STACK_NATIVE;
  const uint32_t count = nt_get_u32(at + NT_DUMP_STACK_COUNT), kept = kept_frames(count);
  const bool cut = kept < count || nt_get_u16(at + NT_DUMP_STACK_FLAGS) & NT_DUMP_STACK_CUT;
  if (native ? thread->native != NULL : thread->python != NULL)
    return;
  struct nt_stack_frame *frames = pool->frame;
  at += NT_DUMP_STACK_HEAD;
  for (uint32_t i = 0; i < kept; i++) {
    const uint64_t where = nt_get_u64(at + NT_DUMP_FRAME_AT);
    const uint32_t file = nt_get_u16(at + NT_DUMP_FRAME_FILE),
                   name = nt_get_u16(at + NT_DUMP_FRAME_NAME);
    at += NT_DUMP_FRAME_HEAD;
    struct nt_stack_frame *frame = pool->frame++;
    *frame = (struct nt_stack_frame){.file = copy_text(pool, at, file), .function = ""};
    if (native) {
      frame->build_id = copy_text(pool, at + file, name);
      frame->offset = where;
    } else {
      frame->function = copy_text(pool, at + file, name);
      frame->line = where <= INT32_MAX ? (int)where : 0;
    }
    at += nt_round_up((uint64_t)file + name, 8);
  }
  if (native) {
    thread->native = frames;
    thread->native_count = kept;
    thread->native_cut = cut;
  } else {
    thread->python = frames;
    thread->python_count = kept;
    thread->python_cut = cut;
  }
}

static void add_kernel(struct nt_dump_thread *thread, const unsigned char *at) {
  if (thread->kernel)
    return;
  thread->kernel = true;
  thread->state = (char)at[NT_DUMP_THREAD_STATE];
  thread->flags |= at[NT_DUMP_THREAD_FLAGS];
  thread->cpu_ns = nt_get_u64(at + NT_DUMP_THREAD_CPU);
  thread->syscall = (int64_t)nt_get_u64(at + NT_DUMP_THREAD_SYSCALL);
  for (unsigned i = 0; i < 6; i++)
    thread->args[i] = nt_get_u64(at + NT_DUMP_THREAD_ARGS + 8 * i);
  memcpy(thread->name, at + NT_DUMP_THREAD_NAME, sizeof thread->name - 1);
  memcpy(thread->wait, at + NT_DUMP_THREAD_WAIT, sizeof thread->wait - 1);
}

/* All entries of threads, the main thread's first. Returns their number; the stacks of kinds that are not known are
 * left out. */
static size_t find_threads(const struct nt_known_dump *dump, uint32_t pid, struct found *out) {
  size_t count = 0;
  const unsigned char *at;
  uint16_t kind;
  uint32_t size, leader = pid;
  for (const struct nt_known_section *s = dump->sections; s; s = s->next) {
    struct nt_cursor cursor = {.at = s->entries, .left = s->length};
    while (nt_entry_next(&cursor, &kind, &at, &size)) {
      uint16_t stack = kind == NT_ENTRY_DUMP_STACK ? nt_get_u16(at + NT_DUMP_STACK_KIND) : 0;
      if (kind != NT_ENTRY_DUMP_THREAD && stack != NT_DUMP_STACK_PYTHON &&
          stack != NT_DUMP_STACK_NATIVE)
        continue;
      out[count] = (struct found){.at = at,
                                  .tid = nt_get_u32(at + NT_DUMP_THREAD_TID),
                                  .order = (uint32_t)count,
                                  .kind = kind};
      if (kind == NT_ENTRY_DUMP_THREAD && at[NT_DUMP_THREAD_FLAGS] & NT_DUMP_THREAD_MAIN)
        leader = out[count].tid;
      count++;
    }
  }
  for (size_t i = 0; i < count; i++)
    out[i].main = out[i].tid == leader;
  qsort(out, count, sizeof *out, by_thread);
  return count;
}
_Static_assert(NT_DUMP_THREAD_TID == 0 && NT_DUMP_STACK_TID == 0, "both begin with the thread");

static void add_threads(struct nt_known_dump *dump, const struct found *found, size_t count,
                        struct pool *pool) {
  struct nt_dump_thread *thread = NULL;
  for (size_t i = 0; i < count; i++) {
    if (!thread || thread->tid != found[i].tid) {
      if (dump->view.thread_count == NT_DUMP_THREADS_MAX)
        return;
      thread = &dump->threads[dump->view.thread_count++];
      *thread = (struct nt_dump_thread){.tid = found[i].tid,
                                        .syscall = NT_SYSCALL_UNKNOWN,
                                        .flags = found[i].main ? NT_DUMP_THREAD_MAIN : 0};
    }
    if (found[i].kind == NT_ENTRY_DUMP_THREAD)
      add_kernel(thread, found[i].at);
    else
      add_stack(thread, found[i].at, pool);
  }
}

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

static int put_together(struct nt_known_dump *dump, uint32_t pid) {
  struct needs needs = {0};
  for (const struct nt_known_section *s = dump->sections; s; s = s->next)
    check_entries(s->entries, s->length, &needs);
  struct found *found = calloc(needs.entries + 1, sizeof *found);
  dump->threads = calloc(least(needs.entries, NT_DUMP_THREADS_MAX) + 1, sizeof *dump->threads);
  dump->frames = calloc(needs.frames + 1, sizeof *dump->frames);
  dump->facts = calloc(least(needs.facts, NT_DUMP_FACTS_MAX) + 1, sizeof *dump->facts);
  dump->text = malloc(needs.text + 1);
  if (!found || !dump->threads || !dump->frames || !dump->facts || !dump->text) {
    free(found);
    return -NT_ERR_MEMORY;
  }
  struct pool pool = {dump->frames, dump->text};
  add_threads(dump, found, find_threads(dump, pid, found), &pool);
  for (const struct nt_known_section *s = dump->sections; s; s = s->next)
    add_facts(dump, s, &pool);
  dump->view.threads = dump->threads;
  free(found);
  free_sections(dump);
  return 0;
}

int nt_known_dumps_finish(struct nt_known_dumps *dumps, uint32_t pid) {
  int rc = 0;
  for (size_t i = 0; i < dumps->count && !rc; i++)
    rc = put_together(dumps->list[i], pid);
  return rc;
}

/* ---- the reader's face -------------------------------------------------------------------------- */

int nt_take_dump(const struct nt_frame *frame, const unsigned char *stored, uint64_t offset,
                 void *ctx) {
  struct nt_trace *trace = ctx;
  unsigned char *payload;
  uint32_t number = 0, section = 0;
  if (frame->type != NT_FRAME_DUMP)
    return 0;
  int rc = nt_frame_unpack_with(trace->room->unpacker, frame, stored, &payload);
  if (!rc)
    rc = nt_known_dumps_take(&trace->dumps, payload, frame->raw, &number, &section);
  if (rc == -NT_ERR_CORRUPT && number && section)
    nt_warn(trace,
            "byte %" PRIu64 " of segment %" PRIu64 ": section %" PRIu32 " of dump %" PRIu32
            " damaged",
            offset, frame->epoch, section, number);
  else if (rc == -NT_ERR_CORRUPT)
    nt_warn(trace, "byte %" PRIu64 " of segment %" PRIu64 ": a section of a dump damaged", offset,
            frame->epoch);
  return rc == -NT_ERR_MEMORY ? rc : 0;
}

int nt_finish_dumps(struct nt_trace *trace) {
  int rc = trace->area.present ? nt_walk_spool(&trace->area, nt_take_dump, trace) : 0;
  if (trace->dumps.left_out)
    nt_warn(trace, "older dumps are left out: %d are kept", NT_DUMPS_MAX);
  return rc ? rc : nt_known_dumps_finish(&trace->dumps, trace->identity.pid);
}

size_t nt_trace_dump_count(const struct nt_trace *trace) {
  return trace->dumps.count;
}

const struct nt_dump_view *nt_trace_dump_at(const struct nt_trace *trace, size_t i) {
  return i < trace->dumps.count ? &trace->dumps.list[i]->view : NULL;
}

bool nt_trace_dump_fact_at(const struct nt_trace *trace, size_t i, size_t k, const char **key,
                           const char **value) {
  if (i >= trace->dumps.count || k >= trace->dumps.list[i]->view.fact_count)
    return false;
  *key = trace->dumps.list[i]->facts[k].key;
  *value = trace->dumps.list[i]->facts[k].value;
  return true;
}
