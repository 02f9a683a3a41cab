/* SPDX-License-Identifier: Apache-2.0 */
/* The superblock: the first page of a trace file, written once. */
#include <inttypes.h>
#include <stdio.h>

#include "trace/trace_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void put_sync(unsigned char *at, const struct nt_clock_sync *sync) {
  nt_put_u64(at, sync->ticks);
  nt_put_u64(at + 8, sync->monotonic_ns);
  nt_put_u64(at + 16, sync->realtime_ns);
}

static void get_sync(const unsigned char *at, struct nt_clock_sync *out) {
  out->ticks = nt_get_u64(at);
  out->monotonic_ns = nt_get_u64(at + 8);
  out->realtime_ns = nt_get_u64(at + 16);
}

void nt_super_write(const struct nt_super *super, unsigned char out[NT_SUPER_SIZE]) {
  const struct nt_layout *layout = &super->layout;
  memset(out, 0, NT_SUPER_SIZE);
  memcpy(out + NT_SUPER_MAGIC, NT_FILE_MAGIC, 8);
  nt_put_u16(out + NT_SUPER_MAJOR, super->major);
  nt_put_u16(out + NT_SUPER_MINOR, super->minor);
  nt_put_u32(out + NT_SUPER_HEADER_SIZE, NT_SUPER_SIZE);
  nt_put_u64(out + NT_SUPER_EVIDENCE_OFFSET, layout->evidence_offset);
  nt_put_u32(out + NT_SUPER_EVIDENCE_SIZE, layout->evidence_size);
  nt_put_u32(out + NT_SUPER_EVIDENCE_COUNT, layout->evidence_count);
  nt_put_u64(out + NT_SUPER_STATE_OFFSET, layout->state_offset);
  nt_put_u32(out + NT_SUPER_STATE_SIZE, layout->state_size);
  nt_put_u32(out + NT_SUPER_STATE_COUNT, layout->state_count);
  nt_put_u64(out + NT_SUPER_SEGMENT_OFFSET, layout->segment_offset);
  nt_put_u64(out + NT_SUPER_SEGMENT_SIZE, layout->segment_size);
  nt_put_u32(out + NT_SUPER_SEGMENT_COUNT, layout->segment_count);
  nt_put_u32(out + NT_SUPER_CLOCK_KIND, super->clock_kind);
  nt_put_u32(out + NT_SUPER_PID, super->pid);
  nt_put_u32(out + NT_SUPER_UID, super->uid);
  nt_put_u64(out + NT_SUPER_START_TIME, super->start_time);
  nt_put_u64(out + NT_SUPER_PID_NS, super->pid_ns);
  nt_put_u64(out + NT_SUPER_NONCE, super->nonce);
  put_sync(out + NT_SUPER_CLOCK_FIRST, &super->clock_first);
  nt_put_u32(out + NT_SUPER_WORLD_RANK, (uint32_t)super->world_rank);
  nt_put_u32(out + NT_SUPER_WORLD_SIZE, (uint32_t)super->world_size);
  nt_put_u32(out + NT_SUPER_LOCAL_RANK, (uint32_t)super->local_rank);
  nt_put_u32(out + NT_SUPER_RESTART, super->restart);
  memcpy(out + NT_SUPER_BOOT_ID, super->boot_id, sizeof super->boot_id);
  memcpy(out + NT_SUPER_HOST, super->host, sizeof super->host);
  memcpy(out + NT_SUPER_RUN_ID, super->run_id, sizeof super->run_id);
  memcpy(out + NT_SUPER_WRITER, super->writer, sizeof super->writer);
  nt_put_u64(out + NT_SUPER_DIGEST, super->digest_ns);
  nt_put_u64(out + NT_SUPER_DIGEST_LEFT_OUT, super->left_out);
  nt_put_u64(out + NT_SUPER_DIGEST_OOM, super->oom_now);
  nt_put_u32(out + NT_SUPER_DIGEST_STATE, super->digest_state);
  nt_put_u32(out + NT_SUPER_DIGEST_FLAGS, super->digest_flags);
  nt_put_u64(out + NT_SUPER_CHECKSUM, XXH64(out, NT_SUPER_CHECKSUM, 0));
}

static int refuse(struct nt_error *err, int code, uint64_t offset, const char *reason) {
  err->code = -code;
  err->offset = offset;
  snprintf(err->reason, sizeof err->reason, "%s", reason);
  return -code;
}

static bool region_fits(uint64_t offset, uint64_t size, uint64_t count, uint64_t max_count) {
  return offset >= NT_SUPER_SIZE && offset < UINT64_C(1) << 48 && count >= 1 &&
         count <= max_count && size >= NT_FRAME_HEADER && size <= UINT64_C(1) << 40 &&
         size % NT_FRAME_ALIGN == 0;
}

static bool layout_is_sane(const struct nt_layout *layout) {
  return region_fits(layout->evidence_offset, layout->evidence_size, layout->evidence_count, 8) &&
         region_fits(layout->state_offset, layout->state_size, layout->state_count, 8) &&
         region_fits(layout->segment_offset, layout->segment_size, layout->segment_count, 1024);
}

static void get_text(char *out, const unsigned char *at, size_t size) {
  memcpy(out, at, size);
  out[size - 1] = 0;
}

int nt_super_parse(const unsigned char *at, uint64_t length, struct nt_super *out,
                   struct nt_error *err) {
  memset(out, 0, sizeof *out);
  if (length == 0)
    return refuse(err, NT_ERR_TRUNCATED, 0, "the file is empty");
  if (length < 8 || memcmp(at, NT_FILE_MAGIC, 8) != 0)
    return refuse(err, NT_ERR_FOREIGN, 0, "not an NCCL trace");
  if (length >= NT_SUPER_HEADER_SIZE) {
    out->major = nt_get_u16(at + NT_SUPER_MAJOR);
    out->minor = nt_get_u16(at + NT_SUPER_MINOR);
    if (out->major != NT_FILE_MAJOR) {
      char reason[128];
      snprintf(reason, sizeof reason,
               "format version %u.%u, this program reads version %d: use a newer nccltrace",
               (unsigned)out->major, (unsigned)out->minor, NT_FILE_MAJOR);
      return refuse(err, NT_ERR_VERSION, NT_SUPER_MAJOR, reason);
    }
  }
  if (length < NT_SUPER_SIZE) {
    char reason[96];
    snprintf(reason, sizeof reason, "the file ends after %" PRIu64 " bytes, inside its header",
             length);
    return refuse(err, NT_ERR_TRUNCATED, length, reason);
  }
  if (nt_get_u64(at + NT_SUPER_CHECKSUM) != XXH64(at, NT_SUPER_CHECKSUM, 0))
    return refuse(err, NT_ERR_CORRUPT, NT_SUPER_CHECKSUM, "the header's checksum is wrong");
  struct nt_layout *layout = &out->layout;
  layout->evidence_offset = nt_get_u64(at + NT_SUPER_EVIDENCE_OFFSET);
  layout->evidence_size = nt_get_u32(at + NT_SUPER_EVIDENCE_SIZE);
  layout->evidence_count = nt_get_u32(at + NT_SUPER_EVIDENCE_COUNT);
  layout->state_offset = nt_get_u64(at + NT_SUPER_STATE_OFFSET);
  layout->state_size = nt_get_u32(at + NT_SUPER_STATE_SIZE);
  layout->state_count = nt_get_u32(at + NT_SUPER_STATE_COUNT);
  layout->segment_offset = nt_get_u64(at + NT_SUPER_SEGMENT_OFFSET);
  layout->segment_size = nt_get_u64(at + NT_SUPER_SEGMENT_SIZE);
  layout->segment_count = nt_get_u32(at + NT_SUPER_SEGMENT_COUNT);
  if (!layout_is_sane(layout))
    return refuse(err, NT_ERR_CORRUPT, NT_SUPER_EVIDENCE_OFFSET,
                  "the header's layout is impossible");
  out->clock_kind = nt_get_u32(at + NT_SUPER_CLOCK_KIND);
  out->pid = nt_get_u32(at + NT_SUPER_PID);
  out->uid = nt_get_u32(at + NT_SUPER_UID);
  out->start_time = nt_get_u64(at + NT_SUPER_START_TIME);
  out->pid_ns = nt_get_u64(at + NT_SUPER_PID_NS);
  out->nonce = nt_get_u64(at + NT_SUPER_NONCE);
  get_sync(at + NT_SUPER_CLOCK_FIRST, &out->clock_first);
  out->world_rank = (int32_t)nt_get_u32(at + NT_SUPER_WORLD_RANK);
  out->world_size = (int32_t)nt_get_u32(at + NT_SUPER_WORLD_SIZE);
  out->local_rank = (int32_t)nt_get_u32(at + NT_SUPER_LOCAL_RANK);
  out->restart = nt_get_u32(at + NT_SUPER_RESTART);
  out->digest_ns = nt_get_u64(at + NT_SUPER_DIGEST);
  out->left_out = nt_get_u64(at + NT_SUPER_DIGEST_LEFT_OUT);
  out->oom_now = nt_get_u64(at + NT_SUPER_DIGEST_OOM);
  out->digest_state = nt_get_u32(at + NT_SUPER_DIGEST_STATE);
  out->digest_flags = nt_get_u32(at + NT_SUPER_DIGEST_FLAGS);
  get_text(out->boot_id, at + NT_SUPER_BOOT_ID, sizeof out->boot_id);
  get_text(out->host, at + NT_SUPER_HOST, sizeof out->host);
  get_text(out->run_id, at + NT_SUPER_RUN_ID, sizeof out->run_id);
  get_text(out->writer, at + NT_SUPER_WRITER, sizeof out->writer);
  return 0;
}
