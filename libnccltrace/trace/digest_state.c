/* SPDX-License-Identifier: Apache-2.0 */
/* Evidence and state of a digest: what is known of the process besides its calls. */
#include <stdio.h>
#include <stdlib.h>

#include "trace/digest_parts.h"

enum { VALUE_MAX = 200 };

/* ---- evidence ----------------------------------------------------------------------------------- */

static bool begins(const char *text, const char *with) {
  return !strncmp(text, with, strlen(with));
}

/* Of the environment only what concerns NCCL and CUDA; of all else what is short. */
static bool is_needed(const struct nt_evidence_line *line) {
  if (begins(line->key, "env."))
    return begins(line->key, "env.NCCL") || begins(line->key, "env.CUDA");
  return !begins(line->key, "cmdline") && !begins(line->key, "comm.") &&
         strlen(line->value) <= VALUE_MAX;
}

int nt_digest_evidence(const struct nt_digest *digest, uint32_t lacks, struct nt_buffer *out) {
  const struct nt_trace *trace = digest->trace;
  struct nt_buffer text = {0};
  for (size_t i = 0; i < trace->line_count; i++) {
    const struct nt_evidence_line *line = &trace->lines[i];
    if (lacks & NT_DIGEST_NO_EVIDENCE_REST && !is_needed(line))
      continue;
    nt_add_bytes(&text, line->key, strlen(line->key));
    nt_add_bytes(&text, "=", 1);
    nt_add_bytes(&text, line->value, strlen(line->value));
    nt_add_bytes(&text, "\n", 1);
  }
  const int rc = nt_digest_frame(digest, NT_FRAME_EVIDENCE, 0, &text, out);
  free(text.data);
  return rc;
}

/* ---- state -------------------------------------------------------------------------------------- */

static bool has_ended(const struct nt_comm_facts *comm) {
  return comm->live.state >= NT_COMM_DESTROYED;
}

static int latest_first(const void *a, const void *b) {
  const struct nt_comm_facts *const *x = a, *const *y = b;
  const uint64_t at_x = (*x)->live.last_enter, at_y = (*y)->live.last_enter;
  if (at_x != at_y)
    return at_x > at_y ? -1 : 1;
  return (*x)->def.number > (*y)->def.number ? -1 : 1;
}

static bool is_called(const struct nt_digest *digest, uint32_t number) {
  for (size_t i = 0; i < digest->kept_count; i++)
    for (size_t k = digest->kept[i].from; k < digest->kept[i].to; k++)
      if (digest->calls[k].comm == number)
        return true;
  return false;
}

static void add_comm(const struct nt_digest *digest, const struct nt_comm_facts *from, bool sums,
                     struct nt_buffer *out) {
  struct nt_comm_facts comm;
  memcpy((void *)&comm, from, sizeof comm);
  comm.def.enter = nt_digest_time(digest, from->def.enter);
  comm.live.last_enter = nt_digest_time(digest, from->live.last_enter);
  if (!sums)
    memset((void *)comm.live.sums, 0, sizeof comm.live.sums);
  nt_entry_comm(out, &comm);
}

/* Those that live are there in any case, and those that the window names. */
static int add_comms(const struct nt_digest *digest, const struct nt_digest_level *level,
                     struct nt_buffer *out, uint32_t *entries) {
  const struct nt_facts *facts = &digest->trace->facts;
  const struct nt_comm_facts **sorted = malloc((facts->comm_count + 1) * sizeof *sorted);
  uint32_t sums = 0, ended = 0;
  if (!sorted)
    return -NT_ERR_MEMORY;
  for (size_t i = 0; i < facts->comm_count; i++)
    sorted[i] = &facts->comms[i];
  if (facts->comm_count)
    qsort(sorted, facts->comm_count, sizeof *sorted, latest_first);
  for (size_t i = 0; i < facts->comm_count; i++) {
    if (has_ended(sorted[i]) && ended >= level->ended && !is_called(digest, sorted[i]->def.number))
      continue;
    ended += has_ended(sorted[i]);
    add_comm(digest, sorted[i], sums++ < level->sums, out);
    ++*entries;
  }
  free(sorted);
  return 0;
}

static uint32_t add_streams(const struct nt_digest *digest, struct nt_buffer *out) {
  const struct nt_facts *facts = &digest->trace->facts;
  for (size_t i = 0; i < facts->stream_count; i++) {
    struct nt_stream_facts stream = facts->streams[i];
    stream.gpu.polled = nt_digest_time(digest, stream.gpu.polled);
    nt_entry_stream(out, &stream);
    nt_entry_gpu(out, &stream);
  }
  return 2 * (uint32_t)facts->stream_count;
}

static bool is_kept(const struct nt_digest *digest, uint32_t thread) {
  for (size_t i = 0; i < digest->kept_count; i++)
    if (digest->kept[i].from < digest->kept[i].to &&
        digest->calls[digest->kept[i].from].thread == thread)
      return true;
  return false;
}

static uint32_t add_threads(const struct nt_digest *digest, uint32_t lacks, struct nt_buffer *out) {
  const struct nt_facts *facts = &digest->trace->facts;
  uint32_t count = 0;
  for (size_t i = 0; i < facts->thread_count; i++) {
    struct nt_thread_facts thread = facts->threads[i];
    if (lacks & NT_DIGEST_NO_OLD_COMMS && !is_kept(digest, thread.index))
      continue;
    thread.last_enter = nt_digest_time(digest, thread.last_enter);
    nt_entry_thread(out, &thread);
    count++;
  }
  return count;
}

int nt_digest_state(const struct nt_digest *digest, const struct nt_digest_level *level,
                    uint64_t segment, uint64_t left_out, struct nt_buffer *out) {
  const struct nt_trace *trace = digest->trace;
  const struct nt_facts *facts = &trace->facts;
  const uint64_t at = (uint64_t)trace->info.started_ns, to = (uint64_t)trace->info.seen_ns;
  const struct nt_clock_sync first = {at, at, at}, last = {to, to, to};
  struct nt_process_facts process = facts->process;
  struct nt_buffer payload = {0};
  uint32_t entries = 2;
  process.overwritten += left_out - trace->info.left_out;
  if (facts->has_process) {
    nt_entry_process(&payload, &process);
    entries++;
  }
  nt_entry_clock(&payload, &first, &last);
  unsigned char *position = nt_entry_add(&payload, NT_ENTRY_POSITION, NT_ENTRY_POSITION_SIZE);
  if (position) {
    nt_put_u64(position, 1);
    nt_put_u64(position + 8, segment);
  }
  for (size_t i = 0; i < facts->peer_count; i++, entries++) {
    unsigned char *note = nt_entry_add(&payload, NT_ENTRY_PEER, NT_ENTRY_PEER_SIZE);
    if (note)
      memcpy(note, &facts->peers[i], NT_ENTRY_PEER_SIZE);
  }
  int rc = add_comms(digest, level, &payload, &entries);
  entries += add_streams(digest, &payload) + add_threads(digest, level->lacks, &payload);
  if (!rc)
    rc = nt_digest_frame(digest, NT_FRAME_STATE, entries, &payload, out);
  free(payload.data);
  return rc;
}
