#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Communicators in all the ways in which they come and go: the same identity on all ranks, calls counted for the right
# one of several ranks in a process, and the right one blamed. The programs are the cases of tests/preload/comm_*.c.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
export LD_LIBRARY_PATH=$build/sim NCCLTRACE_SHM=/dev/shm/nt-comms-$$ NTSIM_DIR=/dev/shm/nt-comms-sim-$$
passed=0 failed=0
cleanup() { rm -rf "$work" "$NCCLTRACE_SHM" "$NTSIM_DIR"; }
trap cleanup EXIT

. tests/cli/checks.bash

# start CASE [VARIABLE=VALUE...]: in the background as $job; traces in $traces
start() {
  local case=$1
  shift
  traces=$work/$case
  rm -rf "$traces" "$NCCLTRACE_SHM" # also what killed processes of the case before have left
  env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$traces" LAUNCHED=1 NTSIM_REUSE=1 "$@" \
    timeout -s KILL 60 "$build/preload/comm_cases" "$case" >"$work/out" 2>&1 &
  job=$!
}

# run CASE...: to its end
run() {
  start "$@"
  wait $job
  status=$?
  read_traces
}

# What the traces say: the list of processes as h, each {"c": communicators, "calls": [...]}, by world rank.
read_traces() {
  "$build/nccltrace" show --header --json "$traces"/*.trace >"$work/headers" 2>/dev/null
  "$build/nccltrace" show --json "$traces"/*.trace >"$work/calls" 2>/dev/null
  "$build/tracediff" --json "$traces" >"$work/verdict" 2>/dev/null
}

# hang CASE...: until all are there and its verdict blames somebody, three times the same; then kills it and looks once more
hang() {
  local summary last="" times=0
  start "$@"
  for ((i = 0; i < 200 && times < 3; i++)); do
    "$build/tracediff" --json "$traces" >"$work/live" 2>/dev/null
    summary=$(grep -m 1 '"summary"' "$work/live")
    [ "$summary" = "$last" ] || times=0
    grep -q '"blame": "[0-9]' "$work/live" && { grep -q '"missing": ""' "$work/live" || ((i > 40)); } &&
      times=$((times + 1))
    last=$summary
    kill -0 $job 2>/dev/null || break
    sleep 0.1
  done
  kill -TERM $job 2>/dev/null # timeout hands it on
  wait $job 2>/dev/null
  # The processes end with their parent, some time after it.
  for ((i = 0; i < 200; i++)); do
    "$build/nccltrace" show --header --json "$traces"/*.trace 2>/dev/null | grep -q '"live":true' || break
    sleep 0.05
  done
  read_traces
}

# is EXPRESSION: of h (processes), v (verdict after the end), w (verdict while it hung), f (its first finding)
is() {
  python3 -c "
import json, sys
h = [dict(x['header']['process'], c=x['header']['communicators']) for x in json.load(open('$work/headers'))]
for x, y in zip(h, json.load(open('$work/calls'))): x['calls'] = y['calls']
v = json.load(open('$work/verdict'))
try: w = json.load(open('$work/live'))
except Exception: w = None
f = v['findings'][0] if v['findings'] else {}
def ids(**want): return [[c['id'] for c in x['c'] if all(c[k] == y for k, y in want.items())] for x in h]
def calls(x, fn, key): return [c[key] for c in x['calls'] if c['function'] == fn]
def same(lists): return all(lists) and len({tuple(l) for l in lists}) == 1
sys.exit(not ($1))" 2>>"$work/out"
}
seen() {
  cat "$work/out"
  "$build/nccltrace" show --header "$traces"/*.trace | sed -n '/^communicators/,/^$/p'
  "$build/tracediff" "$traces"
}
fine() { [ "$status" = 0 ] && is "v['verdict'] == 'consistent' and not v['ranks']['missing'] and ($1)"; }
# blames CLASS RANKS EXPRESSION: while it hung and afterwards
blames() {
  is "v['verdict'] == '$1' and f['blame'] == '$2' and
  w and w['verdict'] == '$1' and w['findings'][0]['blame'] == '$2' and ($3)"
}

# ---- several devices, ranks and threads in a process

run all-devices
fine "len(h) == 1 and same([[c['id']] for c in h[0]['c']]) and
  [(c['rank'], c['size'], c['device'], c['collectives'], c['state']) for c in h[0]['c']] ==
  [(r, 4, r, 3, 'destroyed') for r in range(4)]"
check "one thread that drives four devices has one communicator with four ranks" $? "$(seen)"
is "sorted((c['comm_number'], c['seq']) for c in h[0]['calls'] if c['function'] == 'AllReduce') ==
  sorted((r, k) for r in (1, 2, 3, 4) for k in (1, 2, 3))"
check "calls of a group are counted for the rank they are of" $? "$(seen)"

hang all-devices-skip
blames missing 0 "f['op'] == 'AllReduce' and f['seq'] == 3 and
  f['summary'].startswith('communicator rank 2 (cuda:2, thread 1) of rank 0 never called')"
check "of one thread that drives four devices, the one that is left out is named" $? "$(seen)"

run thread-a-device
fine "[c['collectives'] for c in h[0]['c']] == [3, 3, 3] and
  len({(c['comm_number'], c['thread']) for c in h[0]['calls'] if c['function'] == 'AllReduce'}) == 3"
check "a thread for each device has a communicator of three ranks" $? "$(seen)"

hang thread-a-device-skip
blames missing 0 "f['seq'] == 3 and f['summary'].startswith('communicator rank 1 (cuda:1, thread ')"
check "of a thread for each device, the one that does not call is named" $? "$(seen)"

run all-devices-derive
fine "same([[c['id'] for c in h[0]['c'] if c['origin'] == 'shrink' and c['rank'] == r] for r in range(3)]) and
  [(c['rank'], c['size'], c['device']) for c in h[0]['c'] if c['origin'] == 'shrink'] == [(0, 3, 0), (1, 3, 2), (2, 3, 3)] and
  [c['device'] for c in h[0]['c'] if c['origin'] == 'split'] == [0, 1, 2, 3] and
  len({c['id'] for c in h[0]['c'] if c['origin'] == 'split'}) == 2"
check "what ranks of one process split and shrink has one identity, and the parents' devices" $? "$(seen)"

for launched in LAUNCHED=1 LAUNCHED=0; do
  [ $launched = LAUNCHED=1 ] && second=1 how="of a launcher" || second=2 how="without a launcher"
  run two-ranks $launched
  fine "len(h) == 2 and same(ids(origin='init', rank=0, device=0)[:1] + ids(origin='init', rank=1, device=1)[:1] +
    ids(origin='init', rank=2, device=0)[1:] + ids(origin='init', rank=3, device=1)[1:])"
  check "two processes $how with two ranks each are one communicator, and nobody is missing" $? "$(seen)"
  hang two-ranks-skip $launched
  blames missing "$second" "f['seq'] == 3 and
    f['summary'].startswith('communicator rank 3 (cuda:1, thread 1) of rank $second never called')"
  check "of two processes $how with two ranks each, the rank that does not call is named" $? "$(seen)"
  hang two-ranks-one-inits $launched
  blames init "$second" "f['summary'].startswith('communicator rank 3 of rank $second never called CommInitRank')"
  check "and the one that its process $how forgets to initialise" $? "$(seen)"
done

run threads-in-turns
fine "[c['collectives'] for x in h for c in x['c']] == [100, 100] and
  all(sorted((c['seq'], c['count']) for c in x['calls'] if c['function'] == 'AllReduce') ==
      [(i, i) for i in range(1, 101)] and len(set(calls(x, 'AllReduce', 'thread'))) == 4 for x in h)"
check "threads that take turns on one communicator are counted in that order" $? "$(seen)"

run threads-of-their-own
fine "all(sorted(c['collectives'] for c in x['c']) == [10, 11, 12, 13] for x in h) and
  same([sorted((c['id'], c['collectives']) for c in x['c']) for x in h])"
check "threads with a communicator each, made in any order, have the same on all ranks" $? "$(seen)"

run destroyed-elsewhere NTSIM_REUSE=0
fine "len(h[0]['c']) == 20 and {c['state'] for c in h[0]['c']} == {'destroyed'}"
check "a thread that asks for the state of what another destroys makes no communicator of it" $? "$(seen)"

# ---- pointers and ids

run pointer-reused
fine "all([(c['state'], c['collectives']) for c in x['c']] == [('destroyed', 1), ('live', 2)] for x in h) and
  same([[c['id'] for c in x['c']] for x in h]) and h[0]['c'][0]['id'] != h[0]['c'][1]['id']"
check "a communicator at the address of one that was destroyed is another one" $? "$(seen)"

run equal-ids NCCL_COMM_ID=127.0.0.1:5000
fine "all([c['collectives'] for c in x['c']] == [1, 2] for x in h) and same([[c['id'] for c in x['c']] for x in h]) and
  h[0]['c'][0]['id'] != h[0]['c'][1]['id']"
check "communicators with equal unique ids are told apart by their order" $? "$(seen)"

run init-repeated
fine "[c['state'] for c in h[1]['c']] == ['failed'] * 4 + ['live'] and
  h[0]['c'][0]['id'] == h[1]['c'][4]['id'] and h[1]['c'][4]['collectives'] == 2"
check "an init that was refused and repeated is the one of the others" $? "$(seen)"

hang rank-claimed-twice
blames init 2 "'claim the same rank' in f['summary']"
check "a rank that two processes claim is told" $? "$(seen)"

# ---- other ways to make one

run nonblocking
fine "all([(c['name'], c['origin'], c['collectives']) for c in x['c']] ==
      [('world', 'init', 1), (None, 'split', 1), (None, 'split', 2)] for x in h) and
  all(c['state'] == 'live' for x in h for c in x['c'] if c['origin'] == 'split') and
  all(c['state'] in ('finalized', 'destroyed') for x in h for c in x['c'] if c['origin'] == 'init')"
check "splits of a non-blocking communicator are told apart though one variable held both" $? "$(seen)"

for grouped in "" GROUPED=1; do
  hang nonblocking-pending ${grouped:+"$grouped"}
  blames init 2 "f['comm']['name'] == 'world' and f['waiting'] == '0-1'"
  check "an init that is in progress${grouped:+ since the end of its group} waits for the rank that never calls" $? "$(seen)"
done
hang nonblocking-pending ABORT=1
blames init 2 "f['comm']['name'] == 'world'"
check "so it does when the others have aborted it" $? "$(seen)"

run scalable
fine "same([[(c['id'], c['name'], c['size'])] for x in h for c in x['c']]) and [x['c'][0]['rank'] for x in h] == [0, 1, 2, 3]"
check "an init with several ids has one identity" $? "$(seen)"

hang split-of-split
blames p2p 3 "f['comm']['name'] == 'part' and f['waiting'] == '2' and calls(h[2], 'Send', 'seq') == [1, 2, 3]"
check "ranks and messages of a split of a split are those that NCCL gives them" $? "$(seen)"
is "[len(x['c']) for x in h] == [5, 5, 5, 3] and len({c['id'] for c in h[0]['c']}) == 5 and
  same([[c['id'] for c in x['c'] if c['name'] == 'part'] for x in h])"
check "splits with and without a colour are counted alike" $? "$(seen)"

# ---- fewer and more ranks

run shrinks
fine "same([[c['id'] for c in x['c'] if c['origin'] == 'shrink'] for x in h[1:3]]) and
  len({c['id'] for c in h[1]['c'] if c['origin'] == 'shrink'}) == 3 and
  [[c['collectives'] for c in x['c'] if c['origin'] == 'shrink'] for x in h[1:3]] == [[1, 2, 3]] * 2"
check "shrinks without the same ranks, in any order, are told apart by their order" $? "$(seen)"

hang shrink-skipped
blames init 2 "f['op'] == 'CommShrink' and f['waiting'] == '0-1'"
check "the rank that should have shrunk is named, not the one that is left out" $? "$(seen)"

run shrink-after-death
is "v['verdict'] == 'dead' and f['blame'] == '3' and f['op'] == 'AllReduce' and f['waiting'] == '0-2' and
  [c['collectives'] for x in h[:3] for c in x['c'] if c['origin'] == 'shrink'] == [3] * 3"
check "what a shrink ended was hung until then" $? "$(seen)"

run grown
fine "[[c['rank'] for c in x['c'] if c['origin'] == 'grow'] for x in h] == [[0], [1], [2], [3]] and
  same([[c['id'] for c in x['c'] if c['origin'] == 'grow'] for x in h[:3]])"
check "new and old ranks of a grown communicator are counted" $? "$(seen)"
hang grown-skip
blames missing 3 "f['seq'] == 2 and f['comm']['ranks'] == '0-3' and f['comm']['size'] == 4"
check "new and old ranks of a grown communicator are one" $? "$(seen)"
hang grow-alone
blames init 3 "f['op'] == 'CommGrow' and f['waiting'] == '0-2'"
check "a new rank that does not come is named" $? "$(seen)"
hang grow-without-an-old-one
blames init 2 "f['op'] == 'CommGrow'"
check "an old rank that does not take part is named" $? "$(seen)"

# ---- revoked, suspended

run revoked
fine "all(x['c'][0]['state'] == 'destroyed' and x['c'][0]['collectives'] == 1 for x in h) and
  same(ids(origin='split', parent=1)) and same(ids(origin='shrink', parent=1)[:2]) and not ids(origin='unknown')[0]"
check "a revoked communicator keeps its place until it is destroyed" $? "$(seen)"

run suspended
fine "all(calls(x, 'CommSuspend', 'seq') == [1, 3] and calls(x, 'CommResume', 'seq') == [2, 4] for x in h)"
check "suspends and resumes are counted" $? "$(seen)"
hang not-resumed
blames missing 1 "f['op'] == 'CommResume' and f['waiting'] == '0,2'"
check "a rank that does not resume is named" $? "$(seen)"

# ---- calls whose arguments differ from rank to rank

run user-operators
fine "all(len(calls(x, 'AllReduce', 'op')) == 1 for x in h) and same([calls(x, 'AllReduce', 'op') for x in h])"
check "user operators are compared by their creation, neither by their value nor by their scalar" $? "$(seen)"

run in-place
fine "all([c['in_place'] for c in x['calls'] if 'All' in c['function'] or 'Scatter' in c['function']] ==
  [True, False, True, False, True] for x in h)"
check "a gather or scatter at the rank's own part is in place" $? "$(seen)"

# ---- many

run cycles
grown=$(awk '/^grown/ {print $2}' "$work/out")
[ "${grown:-999999}" -lt 4096 ] && grep -q ', 0 descriptors' "$work/out" &&
  fine "h[0]['comms_lost'] == 0 and len(h[0]['c']) == 10001 and h[0]['calls'] and
    not [c for c in h[0]['c'] if c['origin'] == 'unknown']"
check "10,000 communicators one after another leave nothing behind but what the trace tells" $? "$(tail -3 "$work/out")"
[ "$(stat -c %s "$traces/rank0.trace")" -lt $((8 << 20)) ]
check "and take some 350 bytes each there" $? "$(ls -l "$traces")"

run many-alive NTSIM_REUSE=0
[ "$status" = 0 ] && is "v['verdict'] == 'undecided' and h[0]['comms_lost'] == 890 and
  len([c for c in h[0]['c'] if c['state'] == 'destroyed']) == 255 * 2 + 50 and
  not [c for c in h[0]['c'] if c['origin'] == 'unknown']"
check "communicators that find no place are counted, said, and take it from nobody later" $? "$(seen | grep -v ' init ')"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
