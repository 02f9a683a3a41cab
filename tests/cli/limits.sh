#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Programs that have little or lose what they had: descriptors, threads, memory, room, /proc, directories. The job goes on
# as without the library, and what can be traced is. The programs are the cases of tests/preload/process_cases.c.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
cases=$build/preload/process_cases
work=$(mktemp -d)
shm=/dev/shm/nt-limits-$$
passed=0 failed=0 job=""
cleanup() {
  [ -z "$job" ] || kill -KILL "$job" 2>/dev/null
  ! mountpoint -q "$work/small" || umount "$work/small"
  rm -rf "$work" "$shm"
}
trap cleanup EXIT
export LD_LIBRARY_PATH=$build/sim NCCLTRACE_SHM=$shm NTSIM_DIR=$work/sim

. tests/cli/checks.bash

# run CASE [VARIABLE=VALUE...]: exit status in $status, traces in $traces, output in $work/out; $limit is evaluated before,
# $with its argument, $around a command in front
limit=: with="" around=()
run() {
  local case=$1
  shift
  traces=$work/$case
  mkdir -p "$work/cwd"
  (cd "$work/cwd" && ulimit -c 0 && eval "$limit" && exec "${around[@]}" env LD_PRELOAD="$build/libnccltrace.so" \
    NCCLTRACE_DIR="$traces" "$@" timeout 30 "$cases" "$case" ${with:+"$with"}) >"$work/out" 2>"$work/err" &
  wait $! 2>/dev/null
  status=$?
}
show() { timeout 20 "$build/nccltrace" show "$@"; }
calls() { show "$traces/rank0.trace" 2>/dev/null | awk '$3 == "AllReduce" && !/void/' | wc -l; }
header() { show --header "$traces/rank0.trace"; }
complaints() { grep -c '^nccltrace:' "$work/err"; }

# start CASE: in the background as $job, answered by `answer`, heard by `hear`
start() {
  traces=$work/$1
  rm -f "$work/in" "$work/lines"
  mkfifo "$work/in" "$work/lines"
  env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="${2:-$traces}" timeout 30 "$cases" "$1" \
    <"$work/in" >"$work/lines" 2>"$work/err" &
  job=$!
  exec 4>"$work/in" 3<"$work/lines"
}
hear() { IFS= read -r -t 60 _ <&3; }
answer() { echo go >&4; }
end() {
  exec 4>&- 3<&-
  wait "$job"
  status=$?
  job=""
}
# until_true COMMAND...: polls
until_true() {
  local i
  for ((i = 0; i < 200; i++)); do
    "$@" && return 0
    sleep 0.05
  done
  return 1
}

# ---- descriptors ---------------------------------------------------------------------------------------

run no-descriptors
[ "$status" = 0 ] && [ "$(complaints)" -le 1 ]
check "a program without a free descriptor runs as ever" $? "status $status, $(cat "$work/out" "$work/err")"
with=3
run no-descriptors
with=""
[ "$status" = 0 ] && [ "$(complaints)" -le 1 ]
check "and one with three left" $? "status $status, $(cat "$work/out" "$work/err")"

run replaces-descriptors
rm -rf "$shm" # the file alone must have everything
[ "$status" = 0 ] && [ "$(calls)" = 1001 ] && header | grep -q 'exited with code 0'
check "a program that puts a file in the place of every descriptor keeps its file, and its trace is whole" $? \
  "status $status, $(calls) calls, $(cat "$work/out" "$work/err")"

run shared-descriptors
[ "$status" = 0 ] && grep -qx 'own files only' "$work/out"
check "where the helper may not have descriptors of its own, nothing is written into another's file" $? \
  "status $status, $(cat "$work/out" "$work/err")"
[ "$(calls)" = 2600 ] && header | grep -q 'exited with code 0'
check "and with what the live area has nothing is lost, though the file was closed" $? "$(calls) calls, $(header | sed -n '/^calls/,/^$/p')"

# ---- threads, memory, sizes ----------------------------------------------------------------------------

rm -rf "$shm"
run no-threads
[ "$status" = 0 ] && grep -qx created "$work/out" && [ "$(complaints)" = 1 ] && grep -q 'no thread could be started' "$work/err"
check "where no thread can be made there is no trace, which is said" $? "status $status, $(cat "$work/out" "$work/err")"
[ -z "$(find "$shm" -name '*.area')" ] && [ ! -e "$traces" ]
check "and no area is left" $? "$(find "$shm")"

for with in 0 1 64 600 1500 2600 5000; do
  run small-files
  [ "$status" = 0 ] || break
done
[ "$status" = 0 ]
check "no limit of file sizes ends the program" $? "status $status at $with KiB, $(cat "$work/out" "$work/err")"
with=""

# Our words would be what goes beyond the limit.
truncate -s 1G "$work/large"
(ulimit -f 1048576 && exec env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/said" NCCLTRACE_LOG=1 \
  timeout 20 "$cases" late) 2>>"$work/large"
check "nor does one that the log would exceed" $? "status $?"

# With little room NCCL itself may be refused.
for size in 30 50 70 400; do
  limit="ulimit -v $((size * 1024))"
  run late
  [ "$status" = 0 ] || { [ "$status" = 99 ] && [ $size != 400 ]; } || break
done
limit=:
[ "$status" = 0 ]
check "little address space ends no program" $? "status $status with $size MiB, $(cat "$work/out" "$work/err")"

run all-signals
[ "$status" = 0 ] && grep -qx 'taken 0 caught 60' "$work/out" && [ "$(calls)" = 2 ]
check "a program with handlers on all signals keeps them all" $? "status $status, $(cat "$work/out")"

# ---- directories ---------------------------------------------------------------------------------------

run late NCCLTRACE_DIR=relative
[ "$status" = 0 ] && [ -e "$work/cwd/relative/rank0.trace" ] &&
  [ "$(show "$work/cwd/relative/rank0.trace" | grep -c ' AllReduce ')" = 101 ]
check "a relative directory is that of the program's start, and a change of directory, mask and user loses nothing" $? \
  "status $status, $(find "$work/cwd" /relative -name '*.trace' 2>/dev/null), $(cat "$work/out" "$work/err")"

start watched
hear
until_true test -e "$traces/rank0.trace"
rm -rf "$traces"
answer
hear
until_true test -e "$traces/rank0.trace"
check "a trace whose directory has been removed comes back" $? "$(cat "$work/err")"
answer
hear
answer
end
[ "$status" = 0 ] && [ "$(calls)" -ge 100 ] && header | grep -q 'exited with code 0' &&
  show "$traces/rank0.trace" | grep ' AllReduce ' | tail -n 1 | grep -q '#\? *300 '
check "with all calls from there on, in their places" $? "status $status, $(show "$traces/rank0.trace" | tail -n 2)"

# A disk that fills up while the job runs, and is emptied again.
if mkdir "$work/small" && mount -t tmpfs -o size=3m none "$work/small" 2>/dev/null; then
  start watched "$work/small/traces"
  hear
  until_true test -e "$work/small/traces/rank0.trace"
  head -c 4M /dev/zero >"$work/small/filler" 2>/dev/null
  answer
  hear
  writes_fail() { show --header "$work/small/traces/rank0.trace" 2>/dev/null | grep -q '^write errors *[1-9]'; }
  until_true writes_fail
  check "a job goes on while its disk is full, and what could not be written is counted" $? \
    "$(show --header "$work/small/traces/rank0.trace" | sed -n '/^calls/,/^$/p')"
  rm "$work/small/filler"
  answer
  hear
  answer
  end
  [ "$status" = 0 ] && [ "$(show "$work/small/traces/rank0.trace" | grep -c ' AllReduce ')" = 300 ]
  check "once there is room nothing is missing" $? "status $status, $(show "$work/small/traces/rank0.trace" | grep -c ' AllReduce ')"
  umount "$work/small"
else
  echo "skip a disk that fills up: nothing can be mounted here"
fi

# ---- /proc ---------------------------------------------------------------------------------------------

# The slow thread's calls, each in its place.
seldom() { show "$traces/rank0.trace" 2>/dev/null | awk '$3 == "AllReduce" && $7 == 2 && $6 == ++n {ok++} END {print ok + 0}'; }
if unshare -m mount -t tmpfs none /proc 2>/dev/null; then
  around=(unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh)
  run goes-on NCCLTRACE_AREA=512K
  [ "$status" = 0 ] && [ "$(seldom)" = 130 ]
  check "without /proc threads that live are not taken for dead" $? \
    "status $status, $(seldom) calls, $(header | sed -n '/^calls/,/^$/p'), $(cat "$work/out" "$work/err")"
  around=(unshare --pid --fork --kill-child)
  run goes-on NCCLTRACE_AREA=512K
  [ "$status" = 0 ] && [ "$(seldom)" = 130 ]
  check "nor where /proc counts otherwise than the process" $? "status $status, $(seldom) calls, $(cat "$work/out" "$work/err")"
  around=()
else
  echo "skip a system without /proc: no namespace can be made here"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
