#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program that is written for NCCL and CUDA builds against tests/sim/include and nothing else.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
. tests/cli/checks.bash

cat >"$dir/program.c" <<'END'
#include <nccl.h>
#include <stdio.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 10, 3) || NCCL_MAJOR != 2 || NCCL_MINOR < 10 || NCCL_PATCH < 0
#error version
#endif

static const ncclDataType_t types[] = {
    ncclInt8,     ncclChar,    ncclUint8,   ncclInt32,      ncclInt,         ncclUint32,
    ncclInt64,    ncclUint64,  ncclFloat16, ncclHalf,       ncclFloat32,     ncclFloat,
    ncclFloat64,  ncclDouble,  ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2,
};

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  float *data;
  int version = 0;
  config.blocking = 1;
  if (ncclChar != ncclInt8 || ncclInt != ncclInt32 || ncclHalf != ncclFloat16 ||
      ncclFloat != ncclFloat32 || ncclDouble != ncclFloat64 || sizeof(types) / sizeof(*types) != 17)
    return 1;
  if (ncclGetVersion(&version) != ncclSuccess || version != NCCL_VERSION_CODE)
    return 2;
  if (cudaSetDevice(0) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess ||
      cudaMalloc((void **)&data, 4096) != cudaSuccess)
    return 3;
  if (ncclGetUniqueId(&id) != ncclSuccess ||
      ncclCommInitRankConfig(&comm, 1, id, 0, &config) != ncclSuccess ||
      ncclAllReduce(data, data, 1024, ncclFloat, ncclSum, comm, stream) != ncclSuccess ||
      cudaStreamSynchronize(stream) != cudaSuccess || ncclCommDestroy(comm) != ncclSuccess)
    return 4;
  puts(ncclGetErrorString(ncclSuccess));
  return 0;
}
END
link=("$build/sim/libnccl.so.2" "$(compgen -G "$build/sim/libcudart.so.1*" | head -n 1)"
  "-Wl,--allow-shlib-undefined" "-Wl,-rpath,$build/sim")

"${CC:-gcc}" -std=c11 -Wall -Werror -Itests/sim/include -o "$dir/program" "$dir/program.c" "${link[@]}" \
  >"$dir/out" 2>&1
check "a C program compiles" $? "$(head -n 5 "$dir/out")"
timeout 30 "$dir/program" >"$dir/out" 2>&1
check "and runs" $? "$(head -n 5 "$dir/out")"
if command -v g++ >/dev/null; then
  g++ -std=c++17 -Wall -Werror -Itests/sim/include -x c++ -fsyntax-only "$dir/program.c" >"$dir/out" 2>&1
  check "a C++ program compiles" $? "$(head -n 5 "$dir/out")"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
