/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver that this process has loaded, if it has. Never linked, never loaded by us.
 *
 * Driver entry points only: they leave the runtime's last error alone. Types and values are those of
 * cuda.h, which have not changed since CUDA 11.
 */
#ifndef NT_CUDA_DRIVER_H
#define NT_CUDA_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct CUctx_st *nt_cu_context;
typedef struct CUevent_st *nt_cu_event;
typedef struct CUstream_st *nt_cu_stream;
typedef struct {
  unsigned char bytes[16];
} nt_cu_uuid;

enum { NT_CU_SUCCESS = 0, NT_CU_DEINITIALIZED = 4, NT_CU_NOT_READY = 600 };
enum { NT_CU_EVENT_DEFAULT = 0, NT_CU_EVENT_DISABLE_TIMING = 2 };
enum { NT_CU_CAPTURE_MODE_RELAXED = 2 };

struct nt_cuda_driver {
  int (*ctx_get_device)(int *device);
  int (*ctx_get_current)(nt_cu_context *context);
  int (*ctx_set_current)(nt_cu_context context);
  int (*event_create)(nt_cu_event *event, unsigned flags);
  int (*event_record)(nt_cu_event event, nt_cu_stream stream);
  int (*event_query)(nt_cu_event event);
  int (*event_elapsed)(float *milliseconds, nt_cu_event start, nt_cu_event end);
  int (*stream_is_capturing)(nt_cu_stream stream, int *status);
  /* The second version's arguments; the first ignores the last three, which are NULL here. */
  int (*stream_get_capture_info)(nt_cu_stream stream, int *status, unsigned long long *id,
                                 void **graph, void **dependencies, unsigned long *count);
  int (*exchange_capture_mode)(int *mode);
  int (*device_get_uuid)(nt_cu_uuid *uuid, int device);
  int (*device_get_pci)(char *text, int size, int device);
  int (*device_get_name)(char *text, int size, int device);
  int (*driver_get_version)(int *version);
  bool has_events; /* all that GPU progress needs is there */
};

/* NULL while no driver is loaded. Takes the loader's lock until the first success: not for the call
 * path. Any thread. */
const struct nt_cuda_driver *nt_cuda_driver(void);

extern const struct nt_cuda_driver
    *nt_cuda_driver_found; /* read it through nt_cuda_driver_known() */

/* The same without looking: NULL until nt_cuda_driver has succeeded once. */
static inline const struct nt_cuda_driver *nt_cuda_driver_known(void) {
  return __atomic_load_n(&nt_cuda_driver_found, __ATOMIC_ACQUIRE);
}

/* Whether a stream is being captured. CUDA numbers captures within a process; 0 if it does not tell. */
struct nt_cuda_capture {
  enum { NT_CU_NOT_CAPTURING, NT_CU_CAPTURING, NT_CU_CAPTURE_UNKNOWN } state;
  uint32_t number;
};
/* Asks the known driver; costs 70 ns. Changes nothing, and no capture minds. */
struct nt_cuda_capture nt_cuda_capture_of(nt_cu_stream stream);

#endif
