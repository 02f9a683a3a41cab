#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Benchmarks are never said to have met their targets where nothing, or not all, was measured.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
. tests/cli/checks.bash

# program NAME LINE STATUS
program() {
  printf '#!/bin/sh\necho "%s"\nexit %s\n' "$2" "$3" >"$work/$1"
  chmod 755 "$work/$1"
}
program meets "a 1 s target 2 ok" 0
program misses "b 3 s target 2 MISS" 1
program breaks "c 1 s target 2 ok" 139

# run PROGRAM...: output in $work/out, status in $status
run() {
  (cd "$work" && exec "$OLDPWD/tests/bench/run" "$@") >"$work/out" 2>"$work/err"
  status=$?
}

run ./meets ./meets
[ "$status" = 0 ] && [ "$(tail -n 1 "$work/out")" = "all 2 targets are met" ] && [ ! -s "$work/err" ]
check "targets that are met are counted" $? "$(cat "$work/out" "$work/err")"
run ./misses ./meets
[ "$status" = 1 ] && grep -q '^1 of 2 targets are missed:$' "$work/out" && [ ! -s "$work/err" ]
check "a missed target is no failed program" $? "$(cat "$work/out" "$work/err")"
run ./misses ./meets ./breaks ./none
[ "$status" = 1 ] && grep -q '^2 of 4 programs failed' "$work/out" && ! grep -q 'are met' "$work/out" &&
  grep -q '^  ./breaks (status 139)$' "$work/out" && grep -q '^  ./none (status 127)$' "$work/out"
check "a program that crashed, or is not there, stands in the summary, whatever others missed" $? "$(cat "$work/out" "$work/err")"

for name in bench_call bench_call_cold bench_call_threads bench_dlsym bench_library; do
  for library in "" "$work/none.so"; do
    env -u NCCLTRACE_LIBRARY ${library:+NCCLTRACE_LIBRARY=$library} timeout 60 "$build/bench/$name" >"$work/out" 2>"$work/err"
    [ $? = 1 ] && [ ! -s "$work/out" ] && [ "$(cat "$work/err")" = "$name: NCCLTRACE_LIBRARY=$library is no library: NCCLTRACE_LIBRARY=build/libnccltrace.so" ]
    check "$name measures nothing without the library (${library:-not given})" $? "$(cat "$work/out" "$work/err")"
  done
done
timeout 60 "$build/bench/bench_tracediff" larg >"$work/out" 2>"$work/err"
[ $? = 2 ] && [ ! -s "$work/out" ] && grep -q "unknown argument 'larg'" "$work/err"
check "bench_tracediff refuses an argument that it does not know" $? "$(cat "$work/out" "$work/err")"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
