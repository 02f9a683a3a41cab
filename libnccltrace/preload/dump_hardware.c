/* SPDX-License-Identifier: Apache-2.0 */
/* From what cannot block to what may. */
#include <time.h>

#include "preload/dump_thread.h"
#include "preload/dump_parts.h"
#include "preload/gpu_identity.h"
#include "preload/gpu_progress.h"
#include "trace/clock.h"

/* A dump is answered after 1.5 s, and RAS comes after this. */
enum { NVML_MS = 700 };

void nt_dump_hardware(struct nt_buffer *out) {
  nt_dump_kernel_log(out, "/dev/kmsg", nt_clock_ns(CLOCK_MONOTONIC) / 1000);
  nt_dump_network(out, "");
  unsigned count = 0;
  while (nt_gpu_at(count))
    count++;
  nt_dump_nvml(out, "libnvidia-ml.so.1", nt_gpu_at(0), count, NVML_MS, nt_gpu_start_thread);
}
