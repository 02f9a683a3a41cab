/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader against hostile files.
 *
 * The input's first byte says how the rest is used: 0 - as the file itself; else - as a small file whose
 * superblock and frame checksums this target puts right first, so that the code behind them is reached.
 * NT_FUZZ_SEEDS=DIR makes the libFuzzer program write a few inputs to start from.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "nccl/nccl_api.h"
#include "trace/codec.h"
#include "trace/reader.h"
#include "trace/state_slot.h"
#include "trace/trace_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define SLOT 1024
#define SEGMENT 4096
#define SEGMENTS 4

static void small_superblock(unsigned char *out) {
  const struct nt_super super = {
      .layout = {.evidence_offset = NT_SUPER_SIZE,
                 .evidence_size = SLOT,
                 .evidence_count = 2,
                 .state_offset = NT_SUPER_SIZE + 2 * SLOT,
                 .state_size = 2 * SLOT,
                 .state_count = 2,
                 .segment_offset = NT_SUPER_SIZE + 6 * SLOT,
                 .segment_size = SEGMENT,
                 .segment_count = SEGMENTS},
      .major = NT_FILE_MAJOR,
      .clock_kind = 1,
      .clock_first = {1, 1, 1},
  };
  nt_super_write(&super, out);
}

/* Makes every frame that looks like one right. */
static void mend(unsigned char *bytes, size_t length) {
  for (size_t at = 0; at + NT_FRAME_HEADER <= length; at += NT_FRAME_ALIGN) {
    if (nt_get_u32(bytes + at) != NT_FRAME_MAGIC)
      continue;
    const uint32_t stored = nt_get_u32(bytes + at + NT_FRAME_STORED);
    if (stored <= length - at - NT_FRAME_HEADER)
      nt_put_u64(bytes + at + NT_FRAME_CHECKSUM, XXH64(bytes + at + NT_FRAME_HEADER, stored, 0));
    nt_put_u64(bytes + at + NT_FRAME_HEADER_CHECKSUM,
               XXH64(bytes + at, NT_FRAME_HEADER_CHECKSUM, 0));
  }
}

static size_t read_frames(const struct nt_stack_frame *frames, uint32_t count) {
  size_t text = 0;
  for (uint32_t i = 0; i < count; i++)
    text += strlen(frames[i].file) + strlen(frames[i].function) +
            (frames[i].build_id ? strlen(frames[i].build_id) : 0);
  return text;
}

static size_t read_dump(const struct nt_trace *trace, size_t i) {
  const struct nt_dump_view *dump = nt_trace_dump_at(trace, i);
  const char *key, *value;
  size_t text = 0;
  if (i && dump->number <= nt_trace_dump_at(trace, i - 1)->number)
    abort();
  for (size_t t = 0; t < dump->thread_count; t++) {
    const struct nt_dump_thread *thread = &dump->threads[t];
    text += strlen(thread->name) + strlen(thread->wait) +
            read_frames(thread->python, thread->python_count) +
            read_frames(thread->native, thread->native_count);
    if (t > 1 && thread->tid <= dump->threads[t - 1].tid)
      abort();
  }
  for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++)
    text += strlen(key) + strlen(value);
  return text;
}

static void read_all(const char *path) {
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  const char *key, *value;
  size_t text = 0;
  if (nt_trace_open(path, NT_OPEN_NO_AREA, &trace, &err)) {
    if (err.code >= 0 || !err.reason[0] || !memchr(err.reason, 0, sizeof err.reason))
      abort();
    return;
  }
  const int64_t count = nt_trace_calls(trace, &calls, &err);
  for (int64_t i = 1; i < count; i++)
    if (calls[i].thread == calls[i - 1].thread ? calls[i].order <= calls[i - 1].order
                                               : calls[i].thread < calls[i - 1].thread)
      abort();
  for (size_t i = 0; nt_trace_evidence_at(trace, i, &key, &value); i++)
    text += strlen(key) + strlen(value);
  for (size_t i = 0; i < nt_trace_comm_count(trace); i++)
    text += strlen(nt_trace_comm_at(trace, i)->def.name);
  for (size_t i = 0; i < nt_trace_warning_count(trace); i++)
    text += strlen(nt_trace_warning_at(trace, i));
  for (size_t i = 0; i < nt_trace_dump_count(trace); i++)
    text += read_dump(trace, i);
  if (text == SIZE_MAX)
    abort();
  nt_trace_close(trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int fd = -1;
  char path[64];
  if (fd < 0)
    fd = memfd_create("fuzz", 0);
  if (fd < 0 || size > 1 << 20)
    return 0;
  const bool raw = size == 0 || data[0] == 0;
  const size_t rest = size ? size - 1 : 0, head = raw ? 0 : NT_SUPER_SIZE;
  unsigned char *bytes = malloc(head + rest + 1);
  if (!bytes)
    return 0;
  if (rest)
    memcpy(bytes + head, data + 1, rest);
  if (!raw) {
    small_superblock(bytes);
    mend(bytes + head, rest);
  }
  if (ftruncate(fd, 0) == 0 && pwrite(fd, bytes, head + rest, 0) == (ssize_t)(head + rest)) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_all(path);
  }
  free(bytes);
  return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

static void add_frame(struct nt_packer *packer, unsigned char *at, uint16_t type, uint64_t epoch,
                      uint32_t records, const struct nt_buffer *index,
                      const struct nt_buffer *payload) {
  struct nt_buffer out = {0};
  struct nt_frame frame = {.type = type, .version = 1, .epoch = epoch, .records = records};
  nt_frame_write(packer, &frame, index->data, index->length, payload->data, payload->length, &out);
  memcpy(at, out.data, out.length);
  free(out.data);
}

static void make_calls(struct nt_buffer *payload, struct nt_buffer *index) {
  struct nt_batch_call calls[20] = {0};
  struct nt_run runs[2] = {{1, 0, 12, 1}, {2, 0, 8, 2}};
  const struct nt_batch batch = {calls, runs, 20, 2};
  struct nt_codec *codec = nt_codec_new();
  for (uint32_t i = 0; i < 20; i++) {
    calls[i].comm = 1;
    calls[i].record.fn = i % 5 == 4 ? NT_FN_GroupEnd : NT_FN_AllReduce;
    calls[i].record.enter = 1000 + i * 100;
    calls[i].record.seq = i + 1;
    calls[i].record.group = (uint16_t)(i / 5);
    calls[i].record.result = i == 19 ? NT_RESULT_OPEN : 0;
  }
  if (codec)
    nt_codec_encode(codec, &batch, 2, payload, index);
  nt_codec_free(codec);
}

/* Two dumps of two sections each. */
static void add_dumps(struct nt_packer *packer, unsigned char *at, uint64_t epoch) {
  const struct nt_dump_frame frames[] = {
      {.at = 41, .file = "data.py", .file_length = 7, .name = "load", .name_length = 4},
      {.at = 0x1234, .file = "lib.so", .file_length = 6, .name = "abcd", .name_length = 4}};
  struct nt_buffer none = {0};
  for (uint32_t i = 0; i < 4; i++) {
    struct nt_buffer section = {0};
    const struct nt_dump_head head = {
        i / 2 + 1, NT_DUMP_REQUESTED, i % 2 ? NT_DUMP_PYTHON : NT_DUMP_THREADS, 10, 1, 2};
    nt_dump_add_head(&section, &head);
    for (uint32_t tid = 5; tid < 8; tid++) {
      const struct nt_dump_thread_facts thread = {
          .tid = tid, .state = 'S', .syscall = 202, .name = "worker", .wait = "futex_wait"};
      if (i % 2 == 0)
        nt_dump_add_thread(&section, &thread);
      else
        nt_dump_add_stack(&section, tid, tid % 2 ? NT_DUMP_STACK_PYTHON : NT_DUMP_STACK_NATIVE, 0,
                          frames, 2);
    }
    nt_dump_add_fact(&section, "memory.rss", "%u kB", i);
    add_frame(packer, at, NT_FRAME_DUMP, epoch, 0, &none, &section);
    struct nt_frame frame;
    if (nt_frame_parse(at, SEGMENT, &frame))
      exit(2);
    at += nt_frame_span(&frame);
    free(section.data);
  }
}

static void write_seed(const char *directory, const char *name, const unsigned char *bytes,
                       size_t length) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, length, file) != length || fclose(file))
    exit(2);
}

static void write_seeds(const char *directory) {
  static unsigned char file[1 + 6 * SLOT + 2 * SEGMENT];
  struct nt_packer *packer = nt_packer_new();
  struct nt_buffer none = {0}, text = {0}, entries = {0}, calls = {0}, index = {0};
  struct nt_comm_facts comm;
  const struct nt_thread_facts thread = {.index = 1, .tid = 5, .name = "main"};
  const struct nt_clock_sync sync = {1000, 2000, 3000};
  memset((void *)&comm, 0, sizeof comm);
  comm.def.number = 1;
  nt_add_bytes(&text, "host=a\nkey=value\n", 17);
  nt_entry_comm(&entries, &comm);
  nt_entry_thread(&entries, &thread);
  nt_entry_clock(&entries, &sync, &sync);
  nt_entry_add(&entries, NT_ENTRY_PROCESS, NT_ENTRY_PROCESS_SIZE);
  nt_entry_add(&entries, NT_ENTRY_PEER, NT_ENTRY_PEER_SIZE);
  unsigned char *open = nt_entry_add(&entries, NT_ENTRY_OPEN, NT_ENTRY_OPEN_SIZE);
  if (!packer || !open)
    exit(2);
  nt_put_u64(open + NT_OPEN_SERIAL, 2);
  nt_put_u32(open + NT_OPEN_INDEX, 9);
  nt_put_u32(open + NT_OPEN_THREAD, 2);
  make_calls(&calls, &index);
  file[0] = 1;
  unsigned char *at = file + 1;
  add_frame(packer, at, NT_FRAME_EVIDENCE, 2, 0, &none, &text);
  add_frame(packer, at + 2 * SLOT, NT_FRAME_STATE, 2, 6, &none, &entries);
  for (uint64_t i = 0; i < 2; i++) {
    unsigned char *segment = at + 6 * SLOT + i * SEGMENT;
    add_frame(packer, segment, NT_FRAME_SEGMENT, i + 1, 0, &none, &none);
    add_frame(packer, segment + NT_FRAME_HEADER, NT_FRAME_CALLS, i + 1, 20, &index, &calls);
  }
  write_seed(directory, "small", file, sizeof file);
  write_seed(directory, "one-segment", file, sizeof file - SEGMENT);
  write_seed(directory, "no-segment", file, 1 + 6 * SLOT);
  memset(at + 6 * SLOT + NT_FRAME_HEADER, 0, SEGMENT - NT_FRAME_HEADER);
  add_dumps(packer, at + 6 * SLOT + NT_FRAME_HEADER, 1);
  write_seed(directory, "dumps", file, sizeof file - SEGMENT);
  unsigned char raw[1 + NT_SUPER_SIZE] = {0};
  small_superblock(raw + 1);
  write_seed(directory, "superblock", raw, sizeof raw);
  free(text.data);
  free(entries.data);
  free(calls.data);
  free(index.data);
  nt_packer_free(packer);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  const char *directory = getenv("NT_FUZZ_SEEDS");
  if (directory)
    write_seeds(directory);
  return 0;
}
