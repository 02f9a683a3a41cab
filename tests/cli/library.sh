#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the library promises to the process it lives in: it never harms the job, and counts calls as NCCL does.
# Each case is a sub-command of tests/preload/library_cases.c, run bare and traced on the simulator.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
shm=/dev/shm/nt-library-$$
passed=0 failed=0
cleanup() { rm -rf "$work" "$shm" "$shm-open"; }
trap cleanup EXIT

export LD_LIBRARY_PATH=$build/sim NCCLTRACE_SHM=$shm

. tests/cli/checks.bash

# run CASE [VARIABLE=VALUE...]: exit status in $status, traces in $traces, output in $work/out
run() {
  local case=$1
  shift
  traces=$work/$case
  mkdir -p "$work/cwd"
  # In a background job of its own, so that the shell does not report how it died.
  (cd "$work/cwd" && exec env LD_PRELOAD="$build/libnccltrace.so${also:+:$also}" NCCLTRACE_DIR="$traces" "$@" \
    timeout 30 "$build/preload/${program:-library_cases}" "$case") >"$work/out" 2>"$work/err" &
  wait $! 2>/dev/null
  status=$?
}

# calls FUNCTION: sequence number and count of its calls that count, one line a call
calls() { "$build/nccltrace" show "$traces/rank0.trace" | awk -v f="$1" '$3 == f && !/void/ {print $6, $7}'; }
header() { "$build/nccltrace" show --header "$traces/rank0.trace"; }

run inert
[ "$status" = 0 ] && grep -qx 'threads 1' "$work/out" && [ ! -e "$traces" ] && [ ! -e "$shm" ]
check "a process without a communicator has no thread, file or area of ours" $? "$(cat "$work/out")"

run refused
[ "$status" = 0 ] && grep -qx 'refused with 4 errno 77' "$work/out"
check "a refused call keeps NCCL's answer and errno" $? "$(cat "$work/out")"
[ "$(calls AllReduce)" = "$(printf '1 1\n2 2')" ]
check "a refused call takes no number" $? "$(calls AllReduce)"

run discarded-group
[ "$status" = 0 ] && [ "$(calls AllReduce)" = "1 4" ]
check "a discarded group takes no numbers" $? "$(calls AllReduce)"

run simulated-group
[ "$status" = 0 ] && [ "$(calls AllReduce)" = "$(printf '1 1\n2 4')" ]
check "a simulated group takes no numbers" $? "$(calls AllReduce)"

run nested-groups
[ "$status" = 0 ] && "$build/nccltrace" show --json "$traces/rank0.trace" | python3 -c "
import json, sys
calls = json.load(sys.stdin)[0]['calls']
grouped = [(c['count'], c['group'] != 0) for c in calls if c['function'] == 'AllReduce']
sys.exit(sorted(grouped) != [(1, True), (2, True), (3, True), (5, False)] or
         [c['count'] for c in calls if c['function'] == 'GroupEnd'] != [3])"
check "only the outermost end of a group launches, and other threads' calls are in none" $? \
  "$("$build/nccltrace" show "$traces/rank0.trace")"

run nested
[ "$(calls Bcast)" = "1 16" ] && [ -z "$(calls Broadcast)" ]
check "calls that NCCL makes itself are not recorded" $? "$(calls Broadcast)"

run closes-descriptors
[ "$status" = 0 ] && [ "$(cat "$work"/cwd/checkpoint* | tr -d '\n' | sed 's/model//g')" = "" ] &&
  [ "$(calls AllReduce | wc -l)" = 1001 ]
check "an application that closes and reuses all descriptors finds only its own bytes" $? "status $status"

run forks
[ "$status" = 0 ] && [ "$(calls AllReduce)" = "$(printf '1 1\n2 2')" ] && [ "$(ls "$traces")" = rank0.trace ] &&
  header | grep -q 'exited with code 0'
check "forked and vforked children are silent" $? "$(ls "$traces")"

run fork-then-init
[ "$status" = 0 ] && [ "$(calls AllReduce)" = "1 1" ]
check "a forked child that makes a communicator is traced" $? "status $status"

run threads
[ "$status" = 0 ] && [ "$(calls AllReduce | wc -l)" = 31 ]
check "calls of ended threads are kept" $? "$(calls AllReduce | wc -l) calls"

run init-all
[ "$status" = 0 ] && [ "$(header | awk '/ init-all /{print $NF}' | sort | uniq -c | awk '{print $1}')" = 2 ] &&
  [ "$(calls AllReduce | sort | uniq -c | awk '{print $1, $2}')" = "$(printf '2 1\n2 2\n2 3')" ]
check "a process that is all ranks has one communicator with several ranks" $? "$(header | sed -n '/^comm/,/^$/p'; calls AllReduce)"

run split-in-group
[ "$status" = 0 ] && header | grep -q ' split .* live ' && [ "$(calls AllReduce)" = "$(printf '1 3\n1 1')" ] &&
  ! header | grep -q ' unknown '
check "a handle that NCCL stores late is recognised" $? "$(header | sed -n '/^comm/,/^$/p'; calls AllReduce)"
LD_PRELOAD=$build/preload/libasked.so timeout 30 "$build/preload/library_cases" split-in-group >"$work/bare"
also=$build/preload/libasked.so
run split-in-group
also=""
[ "$status" = 0 ] && grep -q '^asked ' "$work/out" && cmp -s "$work/bare" "$work/out" &&
  [ "$(calls AllReduce)" = "$(printf '1 3\n1 1')" ]
check "NCCL is not asked about a communicator but by the application and itself" $? "$(cat "$work/bare" "$work/out")"

run many-comms
[ "$status" = 0 ] && [ "$(calls AllReduce | wc -l)" = 600 ] && header | grep -q '^calls lost  *0$'
check "600 communicators one after another fit" $? "$(header | head -20)"

also=$build/preload/libjumping.so
run jumps
[ "$status" = 0 ] && "$build/nccltrace" show "$traces/rank0.trace" | grep -q '666.*never returned' &&
  calls AllReduce | grep -q ' 5$'
check "a call left by longjmp is noted, later calls are recorded" $? "$("$build/nccltrace" show "$traces/rank0.trace")"
run jumps-from-above
[ "$status" = 0 ] && [ "$(calls AllReduce | grep -c ' 5$')" = 100 ]
check "calls from deeper than one left by longjmp are recorded too" $? "$(calls AllReduce | wc -l) calls"
run jumps-from-group
[ "$status" = 0 ] && "$build/nccltrace" show --json "$traces/rank0.trace" | python3 -c '
import json, sys
calls = [call for call in json.load(sys.stdin)[0]["calls"] if call["function"] == "AllReduce"]
assert [(call["count"], bool(call["group"])) for call in calls] == [(4, True), (5, False)], calls'
check "a group whose end is left by longjmp is over" $? "$("$build/nccltrace" show "$traces/rank0.trace")"
also=""

program=call_cases
run calls-inside CALLING_NCCL="$build/preload/libnccl-calling.so" PLUGIN="$build/preload/plugin.so"
shown=$("$build/nccltrace" show "$traces/rank0.trace")
for inside in "101 a handler that asks for errors" "102 a plug-in that waits by the CUDA runtime" \
  "103 a plug-in that makes calls of its own" "104 a call taken for a later one"; do
  [ "$status" = 0 ] && grep 'AllReduce' <<<"$shown" | grep " ${inside%% *} " | grep -v 'never returned' | grep -q ' ok '
  check "a call goes on and is recorded to its end whatever it is interrupted by: ${inside#* }" $? "$status $shown"
done
header | grep -qx 'calls abandoned  *[^0].*'
[ $? = 1 ]
check "a call that goes on is not counted as abandoned" $? "$(header | grep abandoned)"

run short-threads NCCLTRACE_AREA=2M
[ "$status" = 0 ] && grep -qx 'left behind nothing' "$work/out"
check "a thread that ends leaves no memory behind" $? "$status $(cat "$work/out")"
[ "$(calls AllReduce | wc -l)" = 300 ] && header | grep -q '^calls lost  *0$'
check "threads that come and go with a few calls each lose none" $? "$(header | grep '^calls')"

run late-destructors
[ "$status" = 0 ] && [ "$(calls AllReduce)" = "$(printf '1 6\n2 7\n3 7\n4 7\n5 8')" ]
check "calls from destructors of a thread that ends are recorded" $? "$status $(calls AllReduce)"

run child-ends-thread
[ "$status" = 0 ] && [ "$(calls AllReduce | wc -l)" = 11 ] && header | grep -q '^calls lost  *0$'
check "a thread of a forked child leaves what its parent's thread has alone" $? "$status $(calls AllReduce)"

run short-list
[ "$status" = 0 ] && grep -q '^refused with ' "$work/out"
check "a list of devices that is shorter than claimed is NCCL's to refuse" $? "$status $(cat "$work/out")"

run no-peeking
[ "$status" = 0 ] && header | grep -q ' split .* live ' && [ "$(calls AllReduce)" = "1 3" ] && ! header | grep -q ' unknown '
check "a handle that NCCL stores late is recognised where a process may not read itself" $? "$(header | sed -n '/^comm/,/^$/p')"
program=""

# A RAS that listens and says nothing keeps a dump busy.
mkfifo "$work/hold"
python3 -c "
import socket, sys
s = socket.create_server(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
sys.stdin.read()" <"$work/hold" >"$work/port" &
ras=$!
exec 5>"$work/hold"
until [ -s "$work/port" ]; do sleep 0.05; done
run closes-while-dumped NCCLTRACE_WATCHDOG=0.3 NCCL_RAS_ADDR="127.0.0.1:$(cat "$work/port")"
exec 5>&-
wait $ras
[ "$status" = 0 ] && grep -qx 'own files only' "$work/out" &&
  [ "$("$build/nccltrace" show --dump --json "$traces/rank0.trace" | grep -c RAS)" -ge 1 ]
check "a program that closes all descriptors during a dump meets none of ours" $? "$status $(cat "$work/out")"

(cd "$work/cwd" && LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_LOG=1 NCCLTRACE_DIR="$work/broken" python3 -c "
import os, signal, subprocess, sys
r, w = os.pipe()
os.close(r)
child = subprocess.Popen([sys.argv[1], 'results'], stderr=w, stdout=subprocess.DEVNULL,
                         restore_signals=True, preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
sys.exit(child.wait() != 0)" "$build/preload/library_cases") >/dev/null 2>&1
check "the log never ends a program whose stderr nobody reads" $? "status"

run fork-inside-list NCCLTRACE_NATIVE=1
[ "$status" = 0 ] && grep -qx 'child ended with 0' "$work/out"
check "a child forked while another thread is in the loader's list can create its own" $? "status $status, $(cat "$work/out")"

run fork-while-creating
[ "$status" = 0 ] && grep -qx 'bad children 0' "$work/out"
check "a child forked while other threads create communicators can create its own" $? "status $status, $(cat "$work/out")"

cp "$build/sim/libnccl.so.2" "$work/libnccl.so.2.99"
run other-copy OTHER_NCCL="$work/libnccl.so.2.99"
build_id=$(readelf -n "$build/sim/libnccl.so.2" | awk '/Build ID/ {print $3}')
[ "$status" = 0 ] && [ -n "$build_id" ] && header | grep -qx "nccl.0.build_id = $build_id" &&
  header | grep -qx "nccl.0.path = .*/sim/libnccl.so.2" && ! header | grep -q '^nccl.other.1' &&
  header | grep -qx "nccl.other.0.path = $work/libnccl.so.2.99" &&
  header | grep -qx "nccl.other.0.build_id = $build_id"
check "each copy of NCCL is named with its build, called or not" $? "$status: $(header | grep '^nccl')"
header | grep -qx 'cuda.runtime = [0-9]*\.[0-9]*' && header | grep -qx 'started = 20..-..-.. ..:..:.. UTC'
check "the evidence has the CUDA runtime's version and the start" $? "$(header | sed -n '/^program/,/^NCCL/p')"

traces=$work/reloaded
LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$traces" timeout 30 "$build/preload/reloader" "$build/preload/plugin.so" >"$work/out" 2>&1
[ "$(cat "$work/out")" = "done" ] && [ "$(calls AllReduce | wc -l)" = 40 ]
check "a plug-in that brings NCCL and the CUDA runtime along may be unloaded and come back" $? "$(cat "$work/out"), $(calls AllReduce | wc -l) calls"

mkfifo "$work/pipe"
LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/pipe-trace" \
  "$build/preload/library_cases" closes-output 2>"$work/pipe" &
timeout 15 cat "$work/pipe" && kill -0 $! 2>/dev/null
check "a pipe that the application closes ends, though the process lives on" $? "no end of file"
kill %% 2>/dev/null
wait 2>/dev/null

"$build/preload/library_cases" results >"$work/bare"
run results
cmp -s "$work/bare" "$work/out"
check "results are the same bits with the library" $? "$(diff "$work/bare" "$work/out")"

for case in exit:3 fast-exit:4 quick-exit:7; do
  run "${case%:*}"
  [ "$status" = "${case#*:}" ] && header | grep -q "exited with code ${case#*:}" && [ "$(calls AllReduce)" = "1 1" ]
  check "an end by ${case%:*} is seen with its code" $? "status $status, $(header | grep state)"
done

# It may die before the helper has made the file: then the area has everything.
run abort
left=$traces/rank0.trace
[ -e "$left" ] || left=$(ls -t "$shm"/*.area | head -1)
"$build/nccltrace" show --header "$left" >"$work/left"
[ "$status" = 134 ] && grep -q vanished "$work/left" && "$build/nccltrace" show "$left" | grep -q 'AllReduce'
check "an abort loses nothing" $? "status $status, $(grep state "$work/left")"

mkdir "$work/closed" && : >"$work/closed/file"
run results NCCLTRACE_DIR="$work/closed/file/below"
[ "$status" = 0 ] && cmp -s "$work/bare" "$work/out" && [ "$(grep -c '^nccltrace: cannot write' "$work/err")" = 1 ]
check "a directory that cannot be written costs the trace, not the job, and is said once" $? "$(cat "$work/err")"

long=$work/$(printf 'd%.0s' {1..200})
run results NCCLTRACE_DIR="$long/$(printf 'e%.0s' {1..200})/$(printf 'f%.0s' {1..200})/$(printf 'g%.0s' {1..200})"
[ "$status" = 0 ] && cmp -s "$work/bare" "$work/out" && [ ! -e "$long" ] &&
  [ "$(grep -c '^nccltrace: cannot write' "$work/err")" = 1 ]
check "a directory whose name is too long is refused, not cut" $? "$(cat "$work/err")"

run results NCCLTRACE_SHM=/proc/none
[ "$status" = 0 ] && cmp -s "$work/bare" "$work/out" && [ "$(grep -c '^nccltrace:' "$work/err")" = 1 ] &&
  [ "$(calls AllReduce)" = "1 16" ]
check "an unusable /dev/shm costs the live area, not the trace, and is said once" $? "$(cat "$work/err")"

run results NCCLTRACE_SHM=/proc/none
grep -q '^nccltrace: /proc/none cannot be made or written: ' "$work/err"
check "a directory of live areas that cannot be made is said to be that" $? "$(cat "$work/err")"

mkdir -m 777 "$shm-open"
chmod 777 "$shm-open"
run results NCCLTRACE_SHM="$shm-open"
grep -q "^nccltrace: $shm-open is not a directory of this user alone: " "$work/err"
check "one that others may write to is said to be that" $? "$(cat "$work/err")"

if [ "$(stat -f -c %T "$work")" != tmpfs ]; then
  run results NCCLTRACE_SHM="$work/disk"
  grep -q "^nccltrace: $work/disk is not on a tmpfs: " "$work/err"
  check "one on a disk is said to be that" $? "$(cat "$work/err")"
fi

mkfifo "$work/in"
# lives VARIABLE=VALUE...: a traced program that lives until it is let go
lives() {
  env LD_PRELOAD="$build/libnccltrace.so" "$@" timeout 60 "$build/preload/gpu_cases" streams <"$work/in" >/dev/null 2>"$work/err" &
  job=$!
  exec 4>"$work/in"
}
# await COMMAND...: until it succeeds; the helper may take a while to open the file
await() {
  for ((i = 0; i < 200; i++)); do
    "$@" && return
    sleep 0.05
  done
}
let_go() {
  exec 4>&-
  wait "$job"
}

traces=$work/log
lives NCCLTRACE_DIR="$traces" NCCLTRACE_LOG=1
await grep -qF "the trace file is" "$work/err"
let_go
[ "$(grep -cxF "nccltrace: the trace file is $traces/rank0.trace" "$work/err")" = 1 ]
check "the log names the trace file" $? "$(cat "$work/err")"

# It may still make its calls, or stand already.
reads_the_job() { grep -qE '^  rank 0 \(.* running, last call AllReduce|; the job moves \(1 rank, ' "$work/out"; }
lives NCCLTRACE_DIR=/proc/none/traces
await grep -q "cannot write a trace" "$work/err"
area=$(sed -n 's/.*; live evidence remains: tracediff //p' "$work/err")
[ -n "$area" ] && [ -f "$area" ] && timeout 20 "$build/tracediff" "$area" >"$work/out" 2>&1
[ $? -lt 2 ] && reads_the_job
check "where no trace can be written, the line names the area that tracediff reads" $? "$(cat "$work/err" "$work/out")"
timeout 20 "$build/tracediff" /proc/none/traces >"$work/out" 2>&1
[ $? -lt 2 ] && reads_the_job
check "tracediff finds the processes that were told of a directory which is not there" $? "$(cat "$work/out")"
timeout 20 "$build/nccltrace" ls --dir /proc/none/traces >"$work/out" 2>&1 && [ "$(grep -c gpu_cases "$work/out")" = 1 ]
check "ls --dir lists the processes that were told of it, written or not" $? "$(cat "$work/out")"
timeout 20 "$build/nccltrace" dump --dir /proc/none/traces >"$work/out" 2>&1
[ $? = 1 ] && grep -qF "it has no trace file; " "$work/out" && grep -qF "Its area is read as it is: tracediff $area" "$work/out"
check "a dump that nothing was written of names the area" $? "$(cat "$work/out")"
let_go

traces=$work/private
lives NCCLTRACE_DIR="$traces" NCCLTRACE_SHM=/proc/none
await [ -e "$traces/rank0.trace" ]
timeout 20 "$build/nccltrace" ls --dir "$traces" >"$work/out" 2>&1
[ $? = 1 ] && grep -qE 'or is one of [0-9]+ process(es)? whose area is not in shared memory and whose directory is not known \(nccltrace ls\)$' "$work/out"
check "ls --dir tells of processes whose area is not in shared memory" $? "$(cat "$work/out" "$work/err")"
let_go

nonsense=(NCCLTRACE_SIZE=hello NCCLTRACE_AREA=64K NCCLTRACE_KEEP=many NCCLTRACE_GPU=maybe NCCLTRACE_PYTHON=perhaps
  NCCLTRACE_DIRECTORY=/x)
run results "${nonsense[@]}"
[ "$status" = 0 ] && cmp -s "$work/bare" "$work/out" && [ ! -s "$work/err" ]
check "settings that are not understood do no harm, and are not mentioned unasked" $? "status $status, $(cat "$work/err")"
run results NCCLTRACE_LOG=1 "${nonsense[@]}"
[ "$(grep -E '^nccltrace: NCCLTRACE_' "$work/err" | sort)" = "$(sort <<'END'
nccltrace: NCCLTRACE_SIZE=hello is not a size: using 64M
nccltrace: NCCLTRACE_AREA=64K is too small: using 512K
nccltrace: NCCLTRACE_KEEP=many is not a number up to 1000000: using 3
nccltrace: NCCLTRACE_GPU=maybe is neither on nor off: using on
nccltrace: NCCLTRACE_PYTHON=perhaps is neither on nor off: using on
nccltrace: NCCLTRACE_DIRECTORY is no setting of this version, and is ignored
END
)" ]
check "the log names each, once, and what is used instead" $? "$(cat "$work/err")"

run results NCCLTRACE=off NCCLTRACE_LOG=1
[ "$(cat "$work/err")" = "nccltrace: NCCLTRACE=off: this process is not traced" ]
check "the log tells that NCCLTRACE=off is why there is no trace" $? "$(cat "$work/err")"

rm -rf "$work/results"
run results NCCLTRACE=off
[ "$status" = 0 ] && cmp -s "$work/bare" "$work/out" && [ ! -e "$traces" ] && [ ! -s "$work/err" ]
check "NCCLTRACE=off leaves nothing" $? "$(cat "$work/err")"

if mkdir "$work/small" && mount -t tmpfs -o size=256k none "$work/small" 2>/dev/null; then
  run results NCCLTRACE_SHM="$work/small/areas"
  [ "$status" = 0 ] && cmp -s "$work/bare" "$work/out" && [ "$(calls AllReduce)" = "1 16" ] &&
    grep -q "^nccltrace: $work/small/areas has too little room" "$work/err"
  check "a too small tmpfs is left alone" $? "$(cat "$work/err")"
  run results NCCLTRACE_DIR="$work/small/full"
  [ "$status" = 0 ] && cmp -s "$work/bare" "$work/out"
  check "a full disk costs the trace, not the job" $? "$(cat "$work/err")"
  umount "$work/small"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
