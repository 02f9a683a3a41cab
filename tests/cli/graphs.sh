#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Which captured operations a launch of a graph replays, however the graph came about. The programs are the cases of
# tests/preload/graph_cases.c, on the simulator.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
export LD_LIBRARY_PATH=$build/sim NTSIM_DEVICES=2 NCCLTRACE_SHM=/dev/shm/nt-graphs-$$
passed=0 failed=0
cleanup() { rm -rf "$work" "$NCCLTRACE_SHM"; }
trap cleanup EXIT

. tests/cli/checks.bash

run() {
  trace=$work/$1/rank0.trace
  LD_PRELOAD=$build/libnccltrace.so NCCLTRACE_DIR=$work/$1 NCCLTRACE_AREA=8M timeout 100 "$build/preload/graph_cases" "$1" \
    >"$work/out" 2>&1
  check "the program of case $1 ends well" $? "$(cat "$work/out")"
}
# calls EXPRESSION: of the calls, c; the launches' graphs, l, each as the counts of the operations that it holds
calls() {
  "$build/nccltrace" show --json "$trace" 2>/dev/null | python3 -c "
import json, sys
d = json.load(sys.stdin)[0]
c = d['calls']
h = {}
for x in c:
    if x['captured']:
        g = h.setdefault(x['capture'], [])
        if x['graph']:
            g += h.get(x['held'], []) + h.get(x['graph'], [])
        else:
            g.append(x['count'])
l = [h.get(x['graph']) for x in c if x['function'].endswith('GraphLaunch') and not x['captured']]
named = lambda f: [x for x in c if x['function'] == f]
sys.exit(not ($1))"
}
shown() { "$build/nccltrace" show "$trace" 2>&1 | head -60; }

run clones
calls "l == [[1]]"
check "a clone holds what the graph held, also once that is gone" $? "$(shown)"

run children
calls "l == [[1, 2, 3], [1]]"
check "a graph holds what was put into it, in that order" $? "$(shown)"

run older
calls "named('cudaGraphAddNode') == []"
check "arguments of an older interface are understood, and a refused call puts nothing into a graph" $? "$(shown)"

run dependencies
calls "l == [[2, 1]]"
check "a node may depend on more nodes than a number tells from an address" $? "$(shown)"

run updates
calls "l == [[1], [2]]"
check "an executable graph that was updated stands for the other graph" $? "$(shown)"

run into
calls "l == [[1, 2, 4]]"
check "a graph that was captured into several times holds it all" $? "$(shown)"

run nested
calls "l == [[1, 1]]"
check "a launch under capture puts the graph into that of the capture" $? "$(shown)"

run streams
calls "l == [[1]] * 3 and [x['stream'] for x in named('cudaGraphLaunch')] == [1, 2, 1]"
check "one graph is launched on several streams" $? "$(shown)"
calls "[x['launch'] for x in named('cudaGraphLaunch')] == [1, 2, 3]"
check "launches of a graph are counted" $? "$(shown)"

run ends
calls "l == [[n] for n in range(1, 41, 2)]"
check "a handle that comes back stands for the new graph, or for none" $? "$(shown)"

run many
calls "l == [[1 + n % 1024] for n in range(6000)]"
check "thousands of graphs are told apart" $? "$(shown | tail -3)"

run go
calls "l == [[1]] * 20"
check "graphs come and go without end" $? "$(shown | tail -3)"

run driver
calls "l == [[1], [1]] and named('cuGraphLaunch')"
check "graphs of the driver's interface are followed" $? "$(shown)"
calls "named('cuStreamSynchronize') and named('cuCtxSynchronize') and named('cuEventSynchronize') and
  named('cuEventRecord') and named('cuStreamWaitEvent')"
check "so are its waits and events" $? "$(shown)"

run threads
calls "l == [[1]] * 4 and len(named('cudaGraphLaunch')) == 2 and len(named('cudaStreamSynchronize')) >= 2 and
  len(named('cuStreamSynchronize')) == 2 and named('cudaEventRecord') and named('cudaStreamWaitEvent')"
check "functions of default streams of each thread are seen, under their usual names" $? "$(shown)"
calls "len({x['stream'] for x in c if x['function'] == 'AllReduce' and not x['captured']}) == 2"
check "the default streams of two threads are two streams" $? "$(shown)"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
