/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and time per call of the frames with calls, on the pattern of call_pattern.h. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "call_pattern.h"
#include "measure.h"
#include "trace/codec.h"
#include "trace/frame.h"

#define FRAME_CALLS 4096
#define FRAMES 32

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now); /* a shared machine must not decide */
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(void) {
  struct call_pattern p = {.room = FRAME_CALLS * FRAMES};
  p.calls = calloc(p.room, sizeof *p.calls);
  struct nt_codec *codec = nt_codec_new();
  struct nt_packer *packer = nt_packer_new();
  if (!p.calls || !codec || !packer)
    return 1;
  p.now = 1234567890123u;
  call_pattern_fill(&p);

  struct nt_buffer file = {0};
  const double begin = seconds();
  for (uint32_t f = 0; f < FRAMES; f++) {
    struct nt_buffer payload = {0}, index = {0};
    struct nt_run runs[17];
    uint32_t run_count = 0;
    for (uint32_t at = 0; at < FRAME_CALLS; at += 255)
      runs[run_count++] = (struct nt_run){.serial = f * 17 + run_count,
                                          .count = FRAME_CALLS - at < 255 ? FRAME_CALLS - at : 255};
    struct nt_batch batch = {p.calls + (size_t)f * FRAME_CALLS, runs, FRAME_CALLS, run_count};
    struct nt_frame frame = {.type = NT_FRAME_CALLS, .records = FRAME_CALLS};
    if (nt_codec_encode(codec, &batch, 11, &payload, &index) ||
        nt_frame_write(packer, &frame, index.data, index.length, payload.data, payload.length,
                       &file))
      return 1;
    free(payload.data);
    free(index.data);
  }
  const double middle = seconds();
  size_t at = 0;
  uint64_t calls = 0;
  while (at < file.length) {
    struct nt_frame frame;
    struct nt_batch batch;
    unsigned char *payload;
    const char *reason;
    const unsigned char *stored = file.data + at + NT_FRAME_HEADER;
    if (nt_frame_parse(file.data + at, file.length - at, &frame) ||
        nt_frame_unpack(&frame, stored, &payload) ||
        nt_codec_decode(codec, payload, frame.raw, stored, frame.index, frame.records, &batch,
                        &reason))
      return 1;
    calls += batch.call_count;
    nt_batch_free(&batch);
    free(payload);
    at += (size_t)nt_frame_span(&frame);
  }
  const double end = seconds();
  const double bytes = (double)file.length / (double)calls;
  int missed = report("codec_bytes_per_call", bytes, "bytes", 5);
  missed |= report_least("codec_calls_in_8_mib", 8 * 1048576 / bytes, "calls", 1500000);
  missed |= report("codec_encode_per_call", (middle - begin) * 1e9 / (double)calls, "ns", 500);
  missed |= report("codec_decode_per_call", (end - middle) * 1e9 / (double)calls, "ns", 300);
  free(file.data);
  free(p.calls);
  nt_codec_free(codec);
  nt_packer_free(packer);
  return missed;
}
