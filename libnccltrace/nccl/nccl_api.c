/* SPDX-License-Identifier: Apache-2.0 */
/* The tables behind nccl_api.h, expanded from nccl_api.def. No state. */
#include "nccl/nccl_api.h"

#include "nccl/nccl_types.h"

struct fn_row {
  const char *symbol;
  const char *name;
};

static const struct fn_row fn_rows[NT_FN_LIMIT] = {
#define NT_FN(id, name, shape, params, args, fields) [id] = {"nccl" #name, #name},
#include "nccl/nccl_api.def"
#define NT_CUDA_FN(id, symbol, as, shape, params, args, fields) [id] = {#symbol, #as},
#include "nccl/cuda_api.def"
};

const uint8_t nt_fn_shapes[NT_FN_LIMIT] = {
#define NT_FN(id, name, shape, params, args, fields) [id] = NT_SHAPE_##shape,
#include "nccl/nccl_api.def"
#define NT_CUDA_FN(id, symbol, as, shape, params, args, fields) [id] = NT_SHAPE_##shape,
#include "nccl/cuda_api.def"
};

static const char *const dtype_names[] = {
    [ncclInt8] = "i8",       [ncclUint8] = "u8",          [ncclInt32] = "i32",
    [ncclUint32] = "u32",    [ncclInt64] = "i64",         [ncclUint64] = "u64",
    [ncclFloat16] = "f16",   [ncclFloat32] = "f32",       [ncclFloat64] = "f64",
    [ncclBfloat16] = "bf16", [ncclFloat8e4m3] = "f8e4m3", [ncclFloat8e5m2] = "f8e5m2",
};

const uint8_t nt_dtype_sizes[NT_DTYPES] = {
    [ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,      [ncclUint32] = 4,
    [ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2,    [ncclFloat32] = 4,
    [ncclFloat64] = 8, [ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1,
};

static const char *const redop_names[] = {
    [ncclSum] = "sum", [ncclProd] = "prod", [ncclMax] = "max", [ncclMin] = "min", [ncclAvg] = "avg",
};

static const char *const result_names[] = {
    [ncclSuccess] = "ncclSuccess",
    [ncclUnhandledCudaError] = "ncclUnhandledCudaError",
    [ncclSystemError] = "ncclSystemError",
    [ncclInternalError] = "ncclInternalError",
    [ncclInvalidArgument] = "ncclInvalidArgument",
    [ncclInvalidUsage] = "ncclInvalidUsage",
    [ncclRemoteError] = "ncclRemoteError",
    [ncclInProgress] = "ncclInProgress",
    [ncclTimeout] = "ncclTimeout",
};

#define LOOK_UP(table, value)                                                                      \
  ((value) >= 0 && (size_t)(value) < sizeof(table) / sizeof(table)[0] ? (table)[value] : 0)

const char *nt_fn_name(unsigned fn) {
  return fn < NT_FN_LIMIT ? fn_rows[fn].name : NULL;
}

const char *nt_fn_symbol(unsigned fn) {
  return fn < NT_FN_LIMIT ? fn_rows[fn].symbol : NULL;
}

const char *nt_dtype_name(int dtype) {
  return LOOK_UP(dtype_names, dtype);
}

const char *nt_redop_name(int op) {
  return LOOK_UP(redop_names, op);
}

const char *nt_result_name(int result) {
  return LOOK_UP(result_names, result);
}
