/* SPDX-License-Identifier: Apache-2.0 */
/* The exported functions: one wrapper for each row of nccl_api.def and cuda_api.def, all from the same few lines (wrap.h). */
#include "preload/call_data.h"
#include "preload/call_dependency.h"
#include "preload/call_transfer.h"
#include "preload/wrap.h"

/* The wrappers of operations and of dependencies are one piece each: what nobody else has the address of lies in registers then. */
#define IN_LINE_ENTER(shape)                                                                       \
  if (nt_shape_is_operation(NT_SHAPE_##shape))                                                     \
    nt_operation_enter(&call, &args);                                                              \
  else if (nt_shape_is_dependency(NT_SHAPE_##shape))                                               \
    nt_dependency_enter(&call, &args);                                                             \
  else                                                                                             \
    ENTER(shape)
#define IN_LINE_EXIT(shape)                                                                        \
  if (nt_shape_is_operation(NT_SHAPE_##shape))                                                     \
    nt_operation_exit(&call, &args, result);                                                       \
  else if (nt_shape_is_dependency(NT_SHAPE_##shape))                                               \
    nt_cuda_exit(&call, result);                                                                   \
  else                                                                                             \
    EXIT(shape)

#define WRAPPER(id, symbol, as, shape, params, arguments, fields, nothing)                         \
  __attribute__((visibility("default"))) NT_CALL_CODE int symbol params;                           \
  int symbol params {                                                                              \
    BODY(id, as, shape, params, arguments, fields, nothing, nt_call_begin, IN_LINE_ENTER,          \
         IN_LINE_EXIT)                                                                             \
    return result;                                                                                 \
  }

#define NT_FN(id, name, shape, params, arguments, fields)                                          \
  WRAPPER(id, nccl##name, name, shape, params, arguments, fields, ncclInvalidUsage)
#include "nccl/nccl_api.def"
#define NT_CUDA_FN(id, symbol, as, shape, params, arguments, fields)                               \
  WRAPPER(id, symbol, as, shape, params, arguments, fields, CUDA_ERROR_UNKNOWN)
#include "nccl/cuda_api.def"
