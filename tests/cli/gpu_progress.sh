#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How far the GPU came, as the trace has it: several streams and devices, groups, stream capture, errors. The
# programs are the cases of tests/preload/gpu_cases.c, on the simulator.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
export LD_LIBRARY_PATH=$build/sim NTSIM_DEVICES=2 NCCLTRACE_SHM=/dev/shm/nt-gpu-$$
passed=0 failed=0
cleanup() { rm -rf "$work" "$NCCLTRACE_SHM"; }
trap cleanup EXIT

. tests/cli/checks.bash

# start CASE [VARIABLE=VALUE...]: the program as $job, its output lines on descriptor 3, its input on 4
start() {
  local case=$1
  shift
  trace=$work/$case/rank0.trace
  rm -f "$work/in" "$work/out"
  mkfifo "$work/in" "$work/out"
  env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/$case" "$@" \
    timeout 60 "$build/preload/gpu_cases" "$case" <"$work/in" >"$work/out" 2>"$work/err" &
  job=$!
  exec 4>"$work/in" 3<"$work/out"
}
hear() { IFS= read -r -t 30 line <&3; }
answer() { echo go >&4; }
end() {
  exec 4>&-
  wait $job
  status=$?
  exec 3<&-
}

# streams EXPRESSION: of the list of streams, d
streams() {
  "$build/nccltrace" show --header --json "$trace" 2>/dev/null | python3 -c "
import json, sys
d = sorted(json.load(sys.stdin)[0]['header']['streams'], key=lambda s: s['number'])
sys.exit(not ($1))"
}
# Until the trace says so: the gpu thread looks about 50 times a second.
until_streams() {
  for ((i = 0; i < 300; i++)); do
    streams "$1" && return 0
    sleep 0.05
  done
  return 1
}
# calls EXPRESSION: of the list of calls, c
calls() {
  "$build/nccltrace" show --json "$trace" 2>/dev/null | python3 -c "
import json, sys
c = json.load(sys.stdin)[0]['calls']
sys.exit(not ($1))"
}
seen() { "$build/nccltrace" show --header "$trace" 2>&1 | grep -A9 -i stream; }

start streams
hear
[ "$line" = blocked ]
check "a stream behind work that does not end is blocked" $? "$line $(cat "$work/err")"
until_streams "len(d) == 2 and d[0]['launches'] == d[0]['finished'] == 4 and
  d[1]['launches'] == 5 and d[1]['finished'] == d[1]['reached'] == 4"
check "each stream has a progress of its own, and what is behind other work is not reached" $? "$(seen)"
calls "sorted(x['gpu'] for x in c if x['function'] == 'AllReduce') == ['done'] * 8 + ['enqueued']"
check "JSON says of each call how far the device came" $? "$("$build/nccltrace" show "$trace" 2>&1)"
answer
end
streams "d[1]['launches'] == d[1]['finished'] == d[1]['reached'] == 5"
check "once it ends, the rest is reached and finished" $? "$(seen)"

start crowd
hear
until_streams "d[0]['launches'] == 300 and d[0]['unmarked'] == 44 and d[0]['last_look']"
check "of more launches than are followed at a time some are without marks" $? "$(seen)"
calls "[x['gpu'] for x in c if x['function'] == 'AllReduce'] == ['enqueued'] * 300"
check "those without marks wait behind those that have some" $? "$("$build/nccltrace" show "$trace" 2>&1 | tail)"
answer
hear
until_streams "d[0]['finished'] == 256"
calls "[x['gpu'] for x in c if x['function'] == 'AllReduce'] == ['done'] * 256 + [None] * 44"
check "and are not known when these are done" $? "$("$build/nccltrace" show "$trace" 2>&1 | tail)"
answer
end
streams "d[0]['launches'] == d[0]['finished'] == 301 and d[0]['unmarked'] == 44"
check "the next launch has marks again" $? "$(seen)"

start devices
end
streams "sorted(s['device'] for s in d) == [0, 1] and all(s['launches'] == s['finished'] == 5 for s in d)"
check "streams of two devices are followed, a group is one launch on each" $? "$status $(seen)"

start captures
hear
streams "True"
before=$("$build/nccltrace" show --header --json "$trace" | python3 -c "
import json, sys; print([s['last_look'] for s in json.load(sys.stdin)[0]['header']['streams'] if s['launches'] != s['finished']][0])")
until_streams "any(s['last_look'] and s['last_look'] > '$before' for s in d)"
check "the GPU is looked at while a stream is being captured" $? "$(seen)"
answer
hear
[ "$line" = captured ]
check "the capture is none the worse for it" $? "$line"
end
streams "d[0]['launches'] == d[0]['finished'] == 7 and d[0]['unmarked'] == d[0]['error'] == 0"
check "nothing of ours is in a captured stream, and launches of its graph are followed" $? "$(seen)"
shown() { "$build/nccltrace" show "$trace" 2>&1; }
calls "[x['captured'] for x in c if x['function'] == 'AllReduce'] == [False, False, True, True, True, False]"
check "captured calls are marked as such, in a group too" $? "$(shown)"
calls "[x['seq'] for x in c if x['function'] == 'Send'] == [1, None, 2]"
check "captured messages take no place in their queue" $? "$(shown)"
calls "len({x['capture'] for x in c if x['captured']}) == 1 and
  [x['capture'] for x in c if x['function'] == 'cudaGraphLaunch'] == [x['capture'] for x in c if x['captured']][:1] * 3"
check "a launch says which capture its graph came from, and one without NCCL is no concern" $? "$(shown)"

start errors
hear
until_streams "d[0]['finished'] == 2"
answer
hear
[ "$line" = "last error kept" ]
check "an error of the application's own is still its last error after our looks" $? "$line"
hear
until_streams "d[0]['error'] == 700"
check "an error that a look meets is recorded" $? "$(seen)"
answer
hear
[ "$line" = "sync says 700" ]
check "and is still there for the application" $? "$line"
end
streams "d[0]['finished'] == 2"
check "a launch that the device did not finish does not count as finished" $? "$(seen)"

start torch
hear
until_streams "len(d) == 1 and d[0]['launches'] == 1 and d[0]['reached'] == 0 and d[0]['last_look']"
check "what PyTorch launches behind work of another stream is not reached before that is done" $? "$line $(seen)"
answer
hear
until_streams "len(d) == 2 and d[1]['launches'] == d[1]['reached'] == 1 and d[1]['finished'] == 0"
check "the first work on a stream of PyTorch's is no mark of ours: it stands on the stream that is waited for" $? "$line $(seen)"
answer
hear
until_streams "d[1]['launches'] == 65 and d[1]['reached'] == d[1]['finished'] == 64"
check "later marks stand on the launch's own stream" $? "$line $(seen)"
answer
hear
until_streams "len(d) == 3 and d[2]['launches'] == 1 and d[2]['reached'] == 0 and d[2]['last_look']"
check "as does the first one of anybody else, of whom it is not known what comes between" $? "$line $(seen)"
answer
end
streams "sum(s['finished'] for s in d) == 67 and not any(s['unmarked'] or s['error'] for s in d)"
check "each of these launches was marked, and finished" $? "$status $(seen)"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
