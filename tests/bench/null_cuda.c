/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver whose calls do nothing and whose events have always happened: what is left of following the GPU is
 * the tracer's own part. Only for benchmarks.
 */
#include <stddef.h>

#define NULL_CUDA(name, params)                                                                    \
  __attribute__((visibility("default"))) int name params;                                          \
  __attribute__((noinline)) int name params

static int context, event;

NULL_CUDA(cuCtxGetDevice, (int *device)) {
  *device = 0;
  return 0;
}

NULL_CUDA(cuCtxGetCurrent, (void **out)) {
  *out = &context;
  return 0;
}

NULL_CUDA(cuCtxSetCurrent, (void *unused)) {
  (void)unused;
  return 0;
}

NULL_CUDA(cuEventCreate, (void **out, unsigned flags)) {
  (void)flags;
  *out = &event;
  return 0;
}

NULL_CUDA(cuEventRecord, (void *recorded, void *stream)) {
  (void)recorded, (void)stream;
  return 0;
}

NULL_CUDA(cuEventQuery, (void *asked)) {
  (void)asked;
  return 0;
}

NULL_CUDA(cuStreamIsCapturing, (void *stream, int *out)) {
  (void)stream;
  *out = 0;
  return 0;
}

NULL_CUDA(cuThreadExchangeStreamCaptureMode, (int *mode)) {
  (void)mode;
  return 0;
}
