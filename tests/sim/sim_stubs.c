/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of the interface. A row of nccl_api.def that the simulator lacks does not link into the self test. */
#include "sim_nccl.h"

/* What ncclGetVersion says; a variant of the library is built with another number. */
#ifndef SIM_VERSION_CODE
#define SIM_VERSION_CODE NCCL_VERSION_CODE
#endif

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
