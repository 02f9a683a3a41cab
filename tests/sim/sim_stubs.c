/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rest of the interface. Functions of nccl_api.def that the simulator does not implement are
 * listed here by name, exist as symbols, and answer ncclInvalidUsage; a row that is neither here nor
 * implemented does not link into the self test.
 */
#include "sim_nccl.h"

/* What ncclGetVersion says; a variant of the library is built with another number. */
#ifndef SIM_VERSION_CODE
#define SIM_VERSION_CODE NCCL_VERSION_CODE
#endif

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define SIM_ABSENT_CommGetUniqueId ~, 1
#define SIM_ABSENT_CommGrow ~, 1
#define SIM_ABSENT_CommSuspend ~, 1
#define SIM_ABSENT_CommResume ~, 1

#define SECOND_OF(a, b, ...) b
#define SECOND(...) SECOND_OF(__VA_ARGS__, 0, 0)
#define IS_ABSENT(name) SECOND(SIM_ABSENT_##name)
#define EMIT_0(name, params)
#define EMIT_1(name, params)                                                                       \
  __attribute__((weak, alias("pnccl" #name))) ncclResult_t nccl##name params;                      \
  ncclResult_t pnccl##name params {                                                                \
    return ncclInvalidUsage;                                                                       \
  }
#define EMIT_N(n, name, params) EMIT_##n(name, params)
#define EMIT(n, name, params) EMIT_N(n, name, params)

#define NT_FN(id, name, shape, params, args, fields) EMIT(IS_ABSENT(name), name, params)
#include "nccl/nccl_api.def"

SIM_NCCL_API(ncclResult_t, GetVersion, int *version) {
  if (!version)
    return ncclInvalidArgument;
  *version = SIM_VERSION_CODE;
  return ncclSuccess;
}

SIM_NCCL_API(const char *, GetErrorString, ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  case ncclSystemError:
    return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclInternalError:
    return "internal error - please report this issue to the NCCL developers";
  case ncclInvalidArgument:
    return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  case ncclInvalidUsage:
    return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  case ncclInProgress:
    return "NCCL operation in progress";
  default:
    return "unknown result code";
  }
}

SIM_NCCL_API(const char *, GetLastError, ncclComm_t comm) {
  (void)comm;
  return sim_nccl_last_warning();
}
