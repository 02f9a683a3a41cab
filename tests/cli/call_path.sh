#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The path of one call: instructions and cache lines as tests/cli/call_path.tsv has them, no lock, no system call, no
# allocation, no CUDA call, and no cache line that two threads write.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build}
# The table is for this compiler's code.
if [ -n "${SAN:-}" ] || [ "${build##*/}" != build ] || [ "$(uname -m)" != x86_64 ] || ! command -v valgrind >/dev/null; then
  echo "skip the path of one call: needs valgrind and the default build on x86-64"
  exit 0
fi
NCCLTRACE_SHM=/dev/shm/nt-path-$$
export NCCLTRACE_SHM
trap 'rm -rf "$NCCLTRACE_SHM"' EXIT
timeout 250 python3 tests/cli/call_path.py "$build" | grep -v ' target '
exit "${PIPESTATUS[0]}"
