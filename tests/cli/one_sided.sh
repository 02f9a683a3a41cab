#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What is said of windows, device communicators and one-sided operations. The programs are the cases of
# tests/preload/rma_cases.c, three ranks each, on the simulator.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
export LD_LIBRARY_PATH=$build/sim NTSIM_DIR=$work/sim NCCLTRACE_SHM=/dev/shm/nt-rma-$$ WORLD_SIZE=3
passed=0 failed=0
ranks=()
end() {
  [ ${#ranks[@]} = 0 ] || kill "${ranks[@]}"
  wait
  ranks=()
} 2>/dev/null
cleanup() { end; rm -rf "$work" "$NCCLTRACE_SHM"; }
trap cleanup EXIT

. tests/cli/checks.bash

start() {
  local r
  dir=$work/$1
  for r in 0 1 2; do
    RANK=$r LD_PRELOAD=$build/libnccltrace.so NCCLTRACE_DIR=$dir \
      timeout 60 "$build/preload/rma_cases" "$1" $r 3 "$work/$1.id" >>"$work/$1.out" 2>&1 &
    ranks+=($!)
  done
}
# hangs CASE VERDICT WHAT: the case's verdict, once it has one, as "class op seq blame waiting"
hangs() {
  start "$1"
  local got=
  for ((i = 0; i < 100; i++)); do
    ls "$dir"/rank[012].trace >/dev/null 2>&1 || { sleep 0.1; continue; }
    got=$("$build/tracediff" --json "$dir" 2>/dev/null | python3 -c "
import json, sys
f = json.load(sys.stdin).get('findings')
print(*[f[0][k] for k in ('class', 'op', 'seq', 'blame', 'waiting')] if f else ['nothing'])")
    [ "$got" = "$2" ] && break
    sleep 0.1
  done
  "$build/tracediff" "$dir" >"$work/report" 2>&1
  end
  [ "$got" = "$2" ]
  check "$3" $? "$got; $(cat "$work/$1.out" "$work/report")"
}

start healthy
status=0
for pid in "${ranks[@]}"; do wait "$pid" || status=$?; done
ranks=()
check "windows, puts and signals are none the worse for being traced" $status "$(cat "$work/healthy.out")"
report=$("$build/tracediff" "$dir" 2>&1)
check "what is put and waited for, by calls, in groups and in graphs, is consistent" $? "$report"
"$build/nccltrace" show --json "$dir/rank0.trace" | python3 -c "
import json, sys
c = json.load(sys.stdin)[0]['calls']
n = lambda f: len([x for x in c if x['function'] == f])
waits = [x for x in c if x['function'] == 'WaitSignal' and x['count'] == 1 and x['recv'] == '0x100000001']
sys.exit(not (n('CommWindowRegister') == n('CommWindowDeregister') == n('DevCommCreate') == n('DevCommDestroy') == 1
  and n('PutSignal') == 7 and n('Signal') == 3 and sorted(x['peer'] for x in waits) == [0, 1, 2]))"
check "all calls are recorded, a wait for several ranks once for each" $? \
  "$("$build/nccltrace" show "$dir/rank0.trace" 2>&1)"

hangs window "missing CommWindowRegister 2 1 0,2" "a rank that does not register a window is missing"
hangs group "missing CommWindowRegister 1 1 0,2" "in a group, too"
hangs device "missing DevCommCreate 2 2 0-1" "so is one that does not create a device communicator"
hangs signal "p2p WaitSignal 4 1 2" "who has to send the signal that is waited for is to blame"
hangs other "p2p WaitSignal 2 0-1 0" "signals of another kind do not count, and either side may be the one that is wrong"
hangs replay "p2p WaitSignal 4 1 2" "a launch of a graph that a rank lacks is a signal that it lacks"
hangs behind "gpu WaitSignal 2 1 1-2" "a put behind other work blames the device"
hangs left "left WaitSignal 1 1 2" "who has left sends no signal"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
