#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Processes that fork, exec, spawn and end: what of them is traced, and that the library changes none of it. The programs
# are the cases of tests/preload/process_cases.c, on the simulator.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
cases=$build/preload/process_cases
work=$(mktemp -d)
shm=/dev/shm/nt-processes-$$
passed=0 failed=0
cleanup() { rm -rf "$work" "$shm"; }
trap cleanup EXIT
export LD_LIBRARY_PATH=$build/sim NCCLTRACE_SHM=$shm NTSIM_DIR=$work/sim

. tests/cli/checks.bash

# run CASE [VARIABLE=VALUE...]: exit status in $status, traces in $traces, output in $work/out; $with is its argument
also="" with=""
run() {
  local case=$1
  shift
  traces=$work/$case
  mkdir -p "$work/cwd"
  (cd "$work/cwd" && ulimit -c 0 && exec env LD_PRELOAD="$build/libnccltrace.so${also:+:$also}" NCCLTRACE_DIR="$traces" "$@" \
    timeout 60 "$cases" "$case" ${with:+"$with"}) >"$work/out" 2>"$work/err" &
  wait $! 2>/dev/null
  status=$?
}
# calls FILE: sequence number and count of its all-reduces that count, joined
calls() { timeout 20 "$build/nccltrace" show "$traces/$1.trace" | awk '$3 == "AllReduce" && !/void/ {printf "%s%s/%s", s, $6, $7; s = " "}'; }
# The same of all files, in brackets; which of two processes makes its file first is theirs.
all_calls() { (cd "$traces" && for file in *.trace; do echo "[$(calls "${file%.trace}")]"; done | LC_ALL=C sort | tr -d '\n'); }
header() { timeout 20 "$build/nccltrace" show --header "$traces/$1.trace"; }
files() { ls "$traces" 2>/dev/null | tr '\n' ' '; }
areas() { find "$shm" -name '*.area' 2>/dev/null | wc -l; }

# ---- children ------------------------------------------------------------------------------------------

run children
[ "$status" = 0 ] && [ "$(files)" = "rank0.trace " ] && [ ! -s "$work/err" ]
check "children that exit, _exit, quick_exit, abort, are killed, exec or are spawned leave no file and say nothing" $? \
  "status $status, $(files), $(cat "$work/out" "$work/err")"
[ "$(calls rank0)" = "1/1 2/2 3/2 4/2 5/2 6/2 7/2 8/2 9/3" ] && header rank0 | grep -q 'exited with code 0'
check "their parent's numbers go on, and their ends are not its end" $? "$(calls rank0), $(header rank0 | grep ^state)"
[ "$(areas)" = 1 ]
check "and they leave no area" $? "$(ls "$shm")"

run no-wiping
[ "$status" = 0 ] && [ "$(files)" = "rank0.trace " ] && [ "$(calls rank0)" = "1/1 2/2 3/2 4/2 5/2 6/2 7/2 8/2 9/3" ]
check "the same where the kernel does not wipe pages at fork" $? "status $status, $(files), $(calls rank0), $(cat "$work/out" "$work/err")"

run fork-storm
[ "$status" = 0 ] && [ "$(files)" = "rank0.trace " ] && [ "$(calls rank0 | wc -w)" = 300 ]
check "300 forked workers leave nothing" $? "status $status, $(files), $(calls rank0 | wc -w) calls, $(cat "$work/out")"

with=$build/preload/native_throws.so
run workers-load
with=""
[ "$status" = 0 ]
check "workers that are forked while communicators are made may load libraries" $? "status $status, $(cat "$work/out" "$work/err")"

run fork-in-group
[ "$status" = 0 ] && [ "$(calls rank0)" = "1/4" ] && [ "$(files)" = "rank0.trace " ]
check "a child that ends its parent's group does not give back its parent's numbers" $? "status $status, $(calls rank0), $(cat "$work/out")"

run init-in-parents-group
[ "$status" = 0 ] && grep -qx 'child ended with 0' "$work/out" && header rank0 | grep -q ' init ' && header rank0.1 | grep -q ' init '
check "a child may make its own communicator in its parent's group" $? "status $status, $(files), $(cat "$work/out")"
[ "$(files)" = "rank0.1.trace rank0.trace " ] && [ "$(all_calls)" = "[1/3 2/4][]" ]
check "and its trace has that, and nothing of the parent's group" $? "$(files), $(all_calls)"

also=$build/preload/libjumping.so
run fork-in-call
[ "$status" = 0 ] && [ "$(calls rank0)" = "1/1 2/777 3/2" ]
check "a child that was forked inside a call does not complete its parent's record" $? "status $status, $(calls rank0), $(cat "$work/out")"

run fork-without-room NCCLTRACE_SIZE=256K
# Which of the threads' calls have found room is their luck; the last one's place tells of them all.
last=$(calls rank0)
[ "$status" = 0 ] && [ "${last##* }" = 1502/2 ] && ! grep -q '777' <<<"$last"
check "nor does it give back the place of a call that found no room" $? "status $status, ${last##* }, $(cat "$work/out")"

run thread-ends-inside
[ "$status" = 0 ] && [ "$(calls rank0)" = "1/555 2/1" ] &&
  "$build/nccltrace" show "$traces/rank0.trace" | grep -q '555.*never returned'
check "a thread that ends inside a call leaves it as never returned" $? "status $status, $("$build/nccltrace" show "$traces/rank0.trace")"
also=""

run cancelled
[ "$status" = 0 ] && grep -qx cancelled "$work/out"
check "a thread that is cancelled while it makes a communicator keeps no lock" $? "status $status, $(cat "$work/out")"

run daemon
for ((i = 0; i < 200; i++)); do
  [ -e "$traces/rank0.1.trace" ] && [ "$(for f in rank0 rank0.1; do header $f; done | grep -c 'exited with code 0')" = 2 ] && break
  sleep 0.05
done
[ "$status" = 0 ] && [ "$(all_calls)" = "[1/1][1/2]" ]
check "a daemon that makes its first communicator after its parents have gone has a trace of its own" $? \
  "status $status, $(files), $(calls rank0), $(calls rank0.1)"

if unshare --pid true 2>/dev/null; then
  run same-number
  [ "$status" = 0 ] && [ "$(all_calls)" = "[1/1 2/3][1/2]" ]
  check "a child that has its parent's number, in a pid namespace of its own, is told from it" $? \
    "status $status, $(files), $(all_calls), $(cat "$work/out")"
else
  echo "skip a child that has its parent's number: no pid namespace can be made here"
fi

# ---- exec ----------------------------------------------------------------------------------------------

rm -rf "$shm"
run execs
new=rank0
[ ! -e "$traces/rank0.1.trace" ] || new=rank0.1
[ "$status" = 0 ] && [ "$(calls $new)" = "1/6 2/7" ] && header $new | grep -q 'exited with code 0'
check "the program behind an exec has a trace of its own" $? "status $status, $(files), $(cat "$work/out" "$work/err")"

rm -rf "$shm"
mkfifo "$work/in"
traces=$work/replaced
env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$traces" timeout 60 "$cases" execs wait <"$work/in" >/dev/null 2>&1 &
exec 4>"$work/in"
for ((i = 0; i < 200; i++)); do
  [ -e "$traces/rank0.trace" ] && break
  sleep 0.05
done
echo go >&4
wait $!
exec 4>&-
[ "$(calls rank0)" = "1/5" ] && [ "$(calls rank0.1)" = "1/6 2/7" ]
check "the program before it loses none of its calls" $? "$(files), $(calls rank0), $(calls rank0.1)"

rm -rf "$shm"
with=5
run execs-again
with=""
[ "$status" = 0 ] && [ "$(areas)" -le 3 ] && [ "$(find "$traces" -name '*.trace' | wc -l)" -ge 5 ]
check "programs that follow one another in one process leave the areas of the last ones alone" $? \
  "status $status, $(files), $(ls "$shm"), $(cat "$work/out")"

# ---- ends ----------------------------------------------------------------------------------------------

run thread-exits
[ "$status" = 5 ] && [ "$(calls rank0)" = "1/1 2/2" ] && header rank0 | grep -q 'exited with code 5'
check "an exit of another thread than main is seen" $? "status $status, $(calls rank0)"

run returns-while-called
[ "$status" = 6 ] && header rank0 | grep -q 'exited with code 6' && [ "$(calls rank0 | wc -w)" -ge 100 ]
check "main may return while other threads call" $? "status $status, $(header rank0 | grep ^state)"

run handler-calls
[ "$status" = 0 ] && [ "$(calls rank0)" = "1/1 2/8" ]
check "what exit handlers call after the library has taken leave is in the trace" $? "status $status, $(calls rank0)"

run quick-handler-calls
[ "$status" = 0 ] && [ "$(calls rank0)" = "1/1 2/8" ]
check "and what handlers of quick_exit call" $? "status $status, $(calls rank0)"

with=$build/preload/native_throws.so
run throws
with=""
left=$traces/rank0.trace
[ -e "$left" ] || left=$(ls -t "$shm"/*.area | head -1)
[ "$status" = 134 ] && "$build/nccltrace" show "$left" | grep -q AllReduce && grep -q "terminate called" "$work/err"
check "an exception that nobody catches ends the program as ever, and loses nothing" $? "status $status, $(cat "$work/err")"

run crashes
left=$traces/rank0.trace
[ -e "$left" ] || left=$(ls -t "$shm"/*.area | head -1)
[ "$status" = 139 ] && "$build/nccltrace" show "$left" | grep -q AllReduce && ! grep -q nccltrace "$work/err"
check "so does a crash" $? "status $status, $(cat "$work/err")"

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
