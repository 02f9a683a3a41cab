#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Calls that come faster than any trace can take them: each is in the trace or counted, and none is both.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
shm=/dev/shm/nt-losses-$$
passed=0 failed=0
trap 'rm -rf "$work" "$shm"' EXIT
export NCCLTRACE_SHM=$shm
traces=$work/traces

. tests/cli/checks.bash

count() { awk -v key="$1" '$0 ~ "^" key " +[0-9]+$" { print $NF }' "$work/header"; }

# collect AREA: by the next that is traced, should the last drain have come too late
collect() {
  for _ in {1..50}; do
    [ -e "$1" ] || return
    NCCLTRACE_DIR=$work/next LD_PRELOAD=$build/libnccltrace.so timeout 20 "$build/preload/flood" 1 1 >"$work/next.out"
  done
}

# flood THREADS COUNT [VARIABLE=VALUE...]: $sent, $recorded, $calls, $lost and $overwritten are numbers of calls
flood() {
  local threads=$1 each=$2
  shift 2
  rm -rf "$traces" "$shm"
  sent=$(env "$@" NCCLTRACE_DIR="$traces" LD_PRELOAD="$build/libnccltrace.so" timeout 60 "$build/preload/flood" "$threads" "$each")
  collect "$shm"/*.area
  recorded=$(timeout 60 "$build/nccltrace" show "$traces/rank0.trace" 2>"$work/err" | grep -cE ' (AllReduce|CommInitRank) ')
  timeout 20 "$build/nccltrace" show --header "$traces/rank0.trace" >"$work/header"
  calls=$(count calls) lost=$(count 'calls lost') overwritten=$(count 'calls overwritten')
}
is_exact() { [ "$calls" = "$sent" ] && [ "$sent" = $((recorded + lost + overwritten)) ]; }
numbers() { echo "sent $sent, calls $calls, recorded $recorded, lost $lost, overwritten $overwritten, $(cat "$work/err")"; }

flood 1 5000000 NCCLTRACE_SIZE=64M
[ "$lost" -gt 0 ] && [ "$overwritten" = 0 ] && is_exact
check "above the pace that the helper keeps, what is sent is what is recorded and what is lost" $? "$(numbers)"

flood 8 2000000 NCCLTRACE_SIZE=64M
[ "$lost" -gt 0 ] && is_exact
check "by threads that start their chunks over while these are drained, too" $? "$(numbers)"

# The file has room for some 600,000; how many of what is sent get there depends on what else runs.
for count in 8000000 32000000 128000000; do
  flood 1 "$count" NCCLTRACE_SIZE=2M
  [ "$overwritten" = 0 ] || break
done
[ "$overwritten" -gt 0 ] && is_exact
check "and in a file that is too small, with what was overwritten there" $? "$(numbers)"

flood 20 100000 NCCLTRACE_AREA=512K
[ "$lost" -gt 0 ] && is_exact
check "and where there is not a chunk for each thread" $? "$(numbers)"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
