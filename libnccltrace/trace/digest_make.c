/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A digest is made whole in memory, so that its size is known before anything is written. Of what is not calls as much
 * is kept as leaves a quarter for them; then the window is made as long as it fits.
 */
#include "trace/digest.h"

#include <stdio.h>
#include <stdlib.h>

#include "trace/clock.h"
#include "trace/digest_parts.h"

#ifndef NT_VERSION
#define NT_VERSION "0"
#endif

enum { PACKING = 19, TRIES = 10, FIRST = 8192, EACH = 8, ALL = 1 << 20 };

/* What goes first stands first. */
static const struct nt_digest_level levels[] = {
    {0, ALL, ALL},
    {NT_DIGEST_NO_DUMP_REST, ALL, ALL},
    {NT_DIGEST_NO_DUMP_REST | NT_DIGEST_NO_EVIDENCE_REST, ALL, ALL},
    {NT_DIGEST_NO_DUMP_REST | NT_DIGEST_NO_EVIDENCE_REST | NT_DIGEST_NO_OLD_SUMS, 64, ALL},
    {NT_DIGEST_NO_DUMP_REST | NT_DIGEST_NO_EVIDENCE_REST | NT_DIGEST_NO_OLD_SUMS |
         NT_DIGEST_NO_OLD_COMMS,
     32, 64},
    {NT_DIGEST_NO_DUMP_REST | NT_DIGEST_NO_EVIDENCE_REST | NT_DIGEST_NO_OLD_SUMS |
         NT_DIGEST_NO_OLD_COMMS | NT_DIGEST_NO_DUMP,
     16, 16},
    {NT_DIGEST_NO_DUMP_REST | NT_DIGEST_NO_EVIDENCE_REST | NT_DIGEST_NO_OLD_SUMS |
         NT_DIGEST_NO_OLD_COMMS | NT_DIGEST_NO_DUMP | NT_DIGEST_NO_SUMS,
     0, 4},
    {NT_DIGEST_NO_DUMP_REST | NT_DIGEST_NO_EVIDENCE_REST | NT_DIGEST_NO_OLD_SUMS |
         NT_DIGEST_NO_OLD_COMMS | NT_DIGEST_NO_DUMP | NT_DIGEST_NO_SUMS | NT_DIGEST_NO_STACKS,
     0, 0},
};
enum { LEVELS = sizeof levels / sizeof *levels };

/* The parts of a file. */
struct parts {
  struct nt_buffer evidence, state, dumps, window;
};

static void free_parts(struct parts *parts) {
  free(parts->evidence.data);
  free(parts->state.data);
  free(parts->dumps.data);
  free(parts->window.data);
  memset(parts, 0, sizeof *parts);
}

static uint64_t size_of(const struct parts *parts) {
  return NT_SUPER_SIZE + parts->evidence.length + parts->state.length + parts->dumps.length +
         parts->window.length;
}

int nt_digest_frame(const struct nt_digest *digest, uint16_t type, uint32_t records,
                    const struct nt_buffer *payload, struct nt_buffer *out) {
  struct nt_frame frame = {.type = type, .epoch = 1, .records = records};
  if (payload->failed)
    return -NT_ERR_MEMORY;
  return nt_frame_write(digest->packer, &frame, NULL, 0, payload->data, payload->length, out);
}

/* The segment's first frame, and the dumps, which need no calls. */
static int make_dumps(const struct nt_digest *digest, uint32_t lacks, struct nt_buffer *out) {
  const struct nt_buffer nothing = {0};
  const int rc = nt_digest_frame(digest, NT_FRAME_SEGMENT, 0, &nothing, out);
  return rc || lacks & NT_DIGEST_NO_DUMP ? rc : nt_digest_dumps(digest, lacks, out);
}

static int make_state(const struct nt_digest *digest, const struct nt_digest_level *level,
                      uint64_t left_out, struct parts *parts) {
  parts->state.length = 0;
  return nt_digest_state(digest, level, parts->dumps.length + parts->window.length, left_out,
                         &parts->state);
}

/* All but the window. */
static int make_rest(const struct nt_digest *digest, const struct nt_digest_level *level,
                     struct parts *parts) {
  free_parts(parts);
  int rc = nt_digest_evidence(digest, level->lacks, &parts->evidence);
  if (!rc)
    rc = make_dumps(digest, level->lacks, &parts->dumps);
  /* The numbers that are still to come take no more room than these. */
  return rc ? rc : make_state(digest, level, UINT64_MAX / 3, parts);
}

static int make_window(struct nt_digest *digest, const struct nt_digest_level *level, size_t wanted,
                       size_t each, size_t *kept, struct parts *parts) {
  parts->window.length = 0;
  *kept = nt_digest_pick(digest, wanted, each);
  return nt_digest_window(digest, level->lacks, &parts->window);
}

/* Of `wanted` calls the window took what it takes: how many might fill the room. The size is about proportional. */
static size_t guess(const struct parts *parts, uint64_t limit, size_t wanted, size_t low,
                    size_t high, int tries) {
  const uint64_t rest = size_of(parts) - parts->window.length;
  const double room = limit > rest ? (double)(limit - rest) * 0.98 : 0;
  const double near =
      parts->window.length ? (double)wanted * room / (double)parts->window.length : 0;
  if (near >= (double)high)
    return high;
  if (tries < 4 && near > (double)low && near < (double)high)
    return (size_t)near;
  return low + (high - low + 1) / 2;
}

/* As many calls as fit, or nearly; *fits is false if not even those that are to be there do. */
static int fit_window(struct nt_digest *digest, const struct nt_digest_level *level, uint64_t limit,
                      size_t each, struct parts *parts, bool *fits, size_t *kept) {
  size_t low = 0, high = digest->call_count < digest->most ? digest->call_count : digest->most;
  size_t wanted = high < FIRST ? high : FIRST, made = 0;
  *fits = false;
  for (int tries = 0; tries < TRIES; tries++) {
    const int rc = make_window(digest, level, made = wanted, each, kept, parts);
    if (rc && rc != -NT_ERR_SPACE)
      return rc;
    if (!rc && size_of(parts) <= limit) {
      *fits = true;
      low = wanted;
      if (size_of(parts) > limit - limit / 16)
        break;
    } else {
      high = wanted ? wanted - 1 : 0;
    }
    if (low >= high)
      break;
    wanted = !*fits && tries == TRIES - 2 ? 0 : guess(parts, limit, wanted, low, high, tries);
  }
  return *fits && made != low ? make_window(digest, level, low, each, kept, parts) : 0;
}

static void describe(const struct nt_digest *digest, const struct parts *parts, uint64_t left_out,
                     bool moved, unsigned char out[NT_SUPER_SIZE]) {
  const struct nt_trace *trace = digest->trace;
  const struct nt_process_info *info = &trace->info;
  struct nt_super super = trace->identity;
  const uint64_t now = nt_clock_ns(CLOCK_REALTIME), began = (uint64_t)info->started_ns;
  const bool again = super.digest_ns != 0;
  super.layout = (struct nt_layout){
      .evidence_offset = NT_SUPER_SIZE,
      .evidence_size = (uint32_t)parts->evidence.length,
      .evidence_count = 1,
      .state_offset = NT_SUPER_SIZE + parts->evidence.length,
      .state_size = (uint32_t)parts->state.length,
      .state_count = 1,
      .segment_offset = NT_SUPER_SIZE + parts->evidence.length + parts->state.length,
      .segment_size = parts->dumps.length + parts->window.length,
      .segment_count = 1,
  };
  super.major = NT_FILE_MAJOR;
  super.minor = NT_FILE_MINOR;
  super.clock_kind = NT_CLOCK_MONOTONIC;
  super.clock_first = (struct nt_clock_sync){began, began, began};
  snprintf(super.writer, sizeof super.writer, "nccltrace digest " NT_VERSION);
  super.left_out = left_out;
  super.oom_now = info->oom_now;
  super.digest_state = info->state;
  if (!again) {
    super.digest_ns = info->live ? (uint64_t)info->seen_ns : now;
    super.digest_flags = (info->live ? NT_DIGEST_LIVE : 0u) | (moved ? NT_DIGEST_MOVED : 0u) |
                         (trace->warning_count ? NT_DIGEST_DAMAGED : 0u) |
                         (info->outlived ? NT_DIGEST_OUTLIVED : 0u) |
                         (info->aged ? NT_DIGEST_AGED : 0u);
  }
  nt_super_write(&super, out);
}

/* The window, and the state that fits to it: which threads and ended communicators that names depends on the calls. */
static int fit_both(struct nt_digest *digest, const struct nt_digest_level *level, uint64_t limit,
                    size_t each, struct parts *parts, bool *fits, size_t *kept) {
  uint64_t slack = 0;
  int rc = 0;
  for (int tries = 0; !rc && tries < 4; tries++) {
    rc = fit_window(digest, level, limit - slack, each, parts, fits, kept);
    if (rc || !*fits)
      break;
    const uint64_t left_out = digest->trace->info.left_out + digest->call_count - *kept;
    rc = make_state(digest, level, left_out, parts);
    *fits = size_of(parts) <= limit;
    if (rc || *fits)
      break;
    slack += size_of(parts) - limit + 64;
    if (slack >= limit)
      break;
  }
  return rc;
}

/* The first level that leaves a quarter to the window, and then the first with which what must be there fits. */
static int fit(struct nt_digest *digest, uint64_t limit, struct parts *parts,
               struct nt_digest_tally *tally) {
  size_t i = 0, kept = 0;
  bool fits = false;
  int rc;
  nt_digest_pick(digest, 0, EACH);
  while ((rc = make_rest(digest, &levels[i], parts)) == 0 && i + 1 < LEVELS &&
         size_of(parts) > limit / 4 * 3)
    i++;
  while (!rc) {
    for (size_t each = digest->most < EACH ? 0 : EACH; !rc && !fits; each /= 8) {
      rc = fit_both(digest, &levels[i], limit, each, parts, &fits, &kept);
      if (!each)
        break;
    }
    if (rc || fits)
      break;
    if (++i == LEVELS)
      return -NT_ERR_SPACE;
    rc = make_rest(digest, &levels[i], parts);
  }
  tally->calls = kept;
  tally->left_out = digest->call_count - kept;
  tally->lacks = levels[i].lacks;
  return rc;
}

int nt_digest_make(struct nt_trace *trace, const struct nt_digest_order *order,
                   struct nt_buffer *out, struct nt_digest_tally *tally, struct nt_error *err) {
  struct nt_digest digest = {.trace = trace, .most = NT_CODEC_MAX_CALLS};
  struct parts parts = {0};
  memset(tally, 0, sizeof *tally);
  if (order->calls && order->calls < digest.most)
    digest.most = (size_t)order->calls;
  int rc = nt_digest_open(&digest, err);
  if (!rc) {
    nt_packer_level(digest.packer, PACKING);
    rc = fit(&digest, order->size, &parts, tally);
  }
  unsigned char *super = rc ? NULL : nt_buffer_add(out, NT_SUPER_SIZE);
  if (super) {
    describe(&digest, &parts, trace->info.left_out + tally->left_out, order->moved, super);
    nt_add_bytes(out, parts.evidence.data, parts.evidence.length);
    nt_add_bytes(out, parts.state.data, parts.state.length);
    nt_add_bytes(out, parts.dumps.data, parts.dumps.length);
    nt_add_bytes(out, parts.window.data, parts.window.length);
  }
  if (!rc && (out->failed || !super))
    rc = -NT_ERR_MEMORY;
  if (rc && !err->code)
    nt_refuse(err, -rc, 0,
              rc == -NT_ERR_SPACE ? "what every digest needs is larger than the limit"
                                  : "out of memory");
  free_parts(&parts);
  nt_digest_close(&digest);
  return rc;
}
