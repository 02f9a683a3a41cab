/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For those who look functions up by name: the same as the wrappers, for each of the first libraries.
 *
 * Compiled to be small: there are eight of each, and they are mostly called from Python.
 */
#include "preload/entries.h"

#include "preload/wrap.h"

/* Whoever has an entry was given it together with its answer. */
#define BEGIN_ENTRY(call, id, comm, caller, frame)                                                 \
  (nt_call_begin_entered(call, id, comm, caller, frame, library), library->answer[id])

#define ENTRY(index, id, symbol, as, shape, params, arguments, fields, nothing)                    \
  static int entry_##index##_##symbol params {                                                     \
    const struct nt_library *library = &nt_libraries[index];                                       \
    BODY(id, as, shape, params, arguments, fields, nothing, BEGIN_ENTRY, ENTER, EXIT)              \
    nt_call_entered_end(&call);                                                                    \
    return result;                                                                                 \
  }

#define ENTRIES(...)                                                                               \
  ENTRY(0, __VA_ARGS__)                                                                            \
  ENTRY(1, __VA_ARGS__)                                                                            \
  ENTRY(2, __VA_ARGS__)                                                                            \
  ENTRY(3, __VA_ARGS__)                                                                            \
  ENTRY(4, __VA_ARGS__)                                                                            \
  ENTRY(5, __VA_ARGS__)                                                                            \
  ENTRY(6, __VA_ARGS__)                                                                            \
  ENTRY(7, __VA_ARGS__)
_Static_assert(NT_ENTRY_LIBRARIES == 8, "one ENTRY for each");

#define NT_FN(id, name, shape, params, arguments, fields)                                          \
  ENTRIES(id, nccl##name, name, shape, params, arguments, fields, ncclInvalidUsage)
#include "nccl/nccl_api.def"
#define NT_CUDA_FN(id, symbol, as, shape, params, arguments, fields)                               \
  ENTRIES(id, symbol, as, shape, params, arguments, fields, CUDA_ERROR_UNKNOWN)
#include "nccl/cuda_api.def"

#define ENTRY_ROW(id, symbol)                                                                      \
  [id] = {                                                                                         \
      (void *)entry_0_##symbol, (void *)entry_1_##symbol, (void *)entry_2_##symbol,                \
      (void *)entry_3_##symbol, (void *)entry_4_##symbol, (void *)entry_5_##symbol,                \
      (void *)entry_6_##symbol, (void *)entry_7_##symbol,                                          \
  },

static void *const entries[NT_FN_LIMIT][NT_ENTRY_LIBRARIES] = {
#define NT_FN(id, name, shape, params, arguments, fields) ENTRY_ROW(id, nccl##name)
#include "nccl/nccl_api.def"
#define NT_CUDA_FN(id, symbol, as, shape, params, arguments, fields) ENTRY_ROW(id, symbol)
#include "nccl/cuda_api.def"
};

void *nt_entry(const struct nt_library *library, unsigned fn) {
  return fn < NT_FN_LIMIT && library->index < NT_ENTRY_LIBRARIES ? entries[fn][library->index]
                                                                 : NULL;
}
