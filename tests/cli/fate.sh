#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What became of a process, as nccltrace and tracediff say it: on its way out, another program by exec, killed by
# the kernel for lack of memory; and that a driver which holds the polling thread stops nothing else. The
# programs are the cases of tests/preload/fate_cases.c, on the simulator.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
cases=$build/preload/fate_cases
work=$(mktemp -d)
export LD_LIBRARY_PATH=$build/sim NCCLTRACE_SHM=/dev/shm/nt-fate-$$
passed=0 failed=0 jobs=() group=""
cleanup() {
  [ ${#jobs[@]} = 0 ] || kill -KILL "${jobs[@]}" 2>/dev/null
  wait 2>/dev/null
  [ -z "$group" ] || rmdir "$group"
  rm -rf "$work" "$NCCLTRACE_SHM"
}
trap cleanup EXIT

. tests/cli/checks.bash

# start HOW [VARIABLE=VALUE...]: the program as $job, its output lines on descriptor 3, its input on 4
start() {
  local how=$1
  shift
  traces=$work/$how
  rm -f "$work/in" "$work/out"
  mkfifo "$work/in" "$work/out"
  env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$traces" NTSIM_DIR="$work/sim" "$@" \
    "$cases" alone "$how" <"$work/in" >"$work/out" 2>"$work/err" &
  job=$!
  jobs+=("$job")
  exec 4>"$work/in" 3<"$work/out"
}
hear() { IFS= read -r -t 60 line <&3; }
answer() { echo go >&4; }
end() {
  kill -KILL $job 2>/dev/null
  exec 4>&- 3<&-
  wait $job 2>/dev/null
}
ls_line() { timeout 20 "$build/nccltrace" ls 2>/dev/null | grep "^ *$job "; }
header() { timeout 20 "$build/nccltrace" show --header "$traces/rank0.trace" 2>&1; }
calls() { timeout 20 "$build/nccltrace" show "$1" | grep -c ' AllReduce '; }

# until_ls PATTERN: until nccltrace ls shows the process so
until_ls() {
  for ((i = 0; i < 300; i++)); do
    ls_line | grep -q "$1" && return 0
    sleep 0.1
  done
  return 1
}

# The job's file has that many all-reduces.
until_calls() {
  local i
  for ((i = 0; i < 300; i++)); do
    [ -e "$traces/rank0.trace" ] && [ "$(calls "$traces/rank0.trace")" = "$1" ] && return 0
    sleep 0.1
  done
  return 1
}

start handler
until_ls ' ending: exit(3) was called .* ago and has not finished '
check "ls tells a process that is stuck in an exit handler" $? "$(ls_line)"
header | grep -q '^state  *ending: exit(3) was called .* ago and has not finished'
check "show tells it too, and when exit was called" $? "$(header)"
end

start parts
until_ls ' running, all its communicators are destroyed '
check "ls tells a process that has destroyed all its communicators" $? "$(ls_line)"
end
until_ls ' vanished'
timeout 20 "$build/nccltrace" show --dump "$traces/rank0.trace" >"$work/report" 2>&1
[ $? = 1 ] && grep -q ': it has no dump, and its process can make none any more (vanished)$' "$work/report"
check "nobody is sent to ask a dead process for a dump" $? "$(cat "$work/report")"

start main-ends
until_ls ' running '
check "a process whose main thread has ended is alive" $? "$(ls_line)"
end

start again
hear
until_ls ' running ' && until_calls 2 # or there is no file of it
answer
hear
[ "$line" = stays ] && until_ls ' replaced by another program (exec) ' && [ "$(ls_line | wc -l)" = 2 ] &&
  ls_line | grep -q ' running '
check "ls tells the program before an exec from the one behind it" $? "$line $(ls_line)"
[ "$(calls "$traces/rank0.trace")" = 2 ] && [ "$(calls "$traces/rank0.1.trace")" = 1 ]
check "each has a trace of its own" $? "$(ls "$traces")"
timeout 20 "$build/tracediff" "$traces" >"$work/report"
# The creation and one all-reduce; the older has three calls.
grep -q '^consistent.* 2 calls)' "$work/report" && grep -q '1 trace of 1 other run was left out' "$work/report"
check "tracediff judges the newer of the two" $? "$(cat "$work/report")"
answer
end

start blocked NTSIM_DRIVER_LOCK=1
hear
answer
hear
until_ls ' running, GPU not seen '
check "ls tells that the thread which polls the GPU is stuck" $? "$line $(ls_line)"
header | grep -q '^GPU seen  *not since .*blocked in the CUDA driver'
check "show tells since when" $? "$(header)"
[ "$line" = called ] && timeout 20 "$build/nccltrace" dump $job | grep -q 'written to'
check "calls and dumps go on while it is stuck" $? "$line $(cat "$work/err")"
[ "$(calls "$traces/rank0.trace")" = 101 ]
check "what was called meanwhile is in the trace" $? "$(calls "$traces/rank0.trace")"
answer
hear
[ "$line" = aborted ]
check "an abort does not wait for it" $? "$line"
answer
wait $job
status=$?
[ $status = 0 ] && header | grep -q 'exited with code 0'
check "nor does the exit" $? "status $status, $(header)"
end

# ---- out of memory, for real ---------------------------------------------------------------------------

# A cgroup of our own with a limit, in $group; false where none can be had.
make_group() {
  local own at name=nccltrace-test-$$
  if own=$(sed -n 's/^[0-9]*:[^:]*\bmemory\b[^:]*://p' /proc/self/cgroup) && [ -n "$own" ]; then
    for at in /sys/fs/cgroup/memory$own /sys/fs/cgroup/memory; do
      mkdir "$at/$name" 2>/dev/null && group=$at/$name && break
    done
    [ -n "$group" ] && echo 64M >"$group/memory.limit_in_bytes"
    return
  fi
  own=$(sed -n 's/^0:://p' /proc/self/cgroup)
  for at in "/sys/fs/cgroup$own" /sys/fs/cgroup; do
    mkdir "$at/$name" 2>/dev/null || continue
    group=$at/$name
    { echo 64M >"$group/memory.max" && echo 0 >"$group/memory.swap.max"; } 2>/dev/null && return
    rmdir "$group"
    group=""
  done
  return 1
}

# member RANK HOW [in the cgroup]
member() {
  [ $# -lt 3 ] || echo $BASHPID >"$group/cgroup.procs"
  exec env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$traces" NTSIM_DIR="$work/sim" RANK="$1" \
    WORLD_SIZE=2 LOCAL_RANK="$1" "$cases" pair "$2" "$1" "$work/id" >"$work/out$1" 2>&1 </dev/null
}

if ! make_group; then
  echo "skip a kill for lack of memory: no memory cgroup can be made here (root, and a writable /sys/fs/cgroup)"
else
  traces=$work/oom
  (member 0 waits) &
  jobs+=($!)
  (member 1 hoards cgroup) &
  job=$!
  jobs+=("$job")
  until_ls ' AllReduce #3 '
  check "both ranks have come to the last call" $? "$(ls_line)"
  # Their helpers have met, and sampled the cgroup's count.
  for ((i = 0; i < 300; i++)); do
    timeout 20 "$build/nccltrace" ls 2>/dev/null | grep -q '0/2.*left AllReduce #4.*in cudaStreamSync' && break
    sleep 0.1
  done
  sleep 1
  touch "$work/id.hoard"
  wait $job 2>/dev/null
  status=$?
  [ $status = 137 ]
  check "the kernel kills the rank for lack of memory" $? "status $status $(cat "$work/out1")"
  for ((i = 0; i < 100; i++)); do
    timeout 20 "$build/nccltrace" show --header "$traces/rank0.trace" >"$work/report" 2>&1
    grep -q '^rank 1 (pid .* vanished' "$work/report" && break
    sleep 0.1
  done
  grep -q 'out-of-memory kills in its cgroup since then: 1' "$work/report"
  check "the neighbour notes that the cgroup's count has risen" $? "$(cat "$work/report")"
  timeout 20 "$build/nccltrace" ls >"$work/report" 2>&1
  grep -q "^ *$job .* killed by the out-of-memory killer (its cgroup's count rose from 0 to 1)" "$work/report"
  check "ls says by what the rank was killed" $? "$(cat "$work/report")"
  timeout 60 "$build/tracediff" "$traces" >"$work/report" 2>&1
  grep -q '^dead (certain): rank 1 was killed for lack of memory before calling AllReduce #4' "$work/report" &&
    grep -q "killed by the out-of-memory killer (its cgroup's count rose from 0 to 1)" "$work/report"
  check "tracediff says by what the rank was killed" $? "$(cat "$work/report")"
fi

# A killed process is still there until the kernel has taken its memory down.
if [ "$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)" -ge 4 ]; then
  start large
  hear
  [ "$line" = large ]
  check "a process with much memory runs" $? "$line $(cat "$work/err")"
  kill -KILL $job
  other=""
  for ((i = 0; i < 20; i++)); do
    ls_line | grep -qE ' (vanished|killed)' || other+="$(ls_line); "
    [ -e /proc/$job ] || break
  done
  [ -z "$other" ]
  check "a process that is being taken down is told as gone" $? "$other"
  end
else
  echo "skip a process that is being taken down: less than 4 GiB of memory"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
