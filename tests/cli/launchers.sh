#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What starts the ranks of a job, and what they start: launchers, restarts, multiprocessing and data-loader workers, containers;
# which of them leave a trace, and who is who in it. The scripts are those of tests/preload/workers.py, on the simulator.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
script=$(realpath tests/preload/workers.py)
work=$(mktemp -d)
shm=/dev/shm/nt-launchers-$$
passed=0 failed=0
cleanup() { rm -rf "$work" "$shm"; }
trap cleanup EXIT
export LD_LIBRARY_PATH=$build/sim NCCLTRACE_SHM=$shm NTSIM_DIR=$work/sim PYTHONDONTWRITEBYTECODE=1

. tests/cli/checks.bash

# traced NAME COMMAND...: with VARIABLE=VALUE in front; exit status in $status, traces in $traces, output in $work/out
traced() {
  traces=$work/$1
  shift
  env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$traces" timeout 30 env "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
}
calls() { timeout 20 "$build/nccltrace" show "$traces/$1.trace" | awk '$3 == "AllReduce" && !/void/ {printf "%s%s/%s", s, $6, $7; s = " "}'; }
files() { (cd "$traces" 2>/dev/null && echo *.trace); }
report() { timeout 20 "$build/tracediff" "$traces" >"$work/report" 2>&1; }
both() { cat "$work/out" "$work/err"; }

# ---- processes that make no communicator -----------------------------------------------------------------

for command in "bash -c true" "bash -c '(exit 3) | true; exec true'" "env python3 -c pass" "sh -c 'true & wait'" "git --version"; do
  traced launcher bash -c "$command"
  (unset LD_PRELOAD && eval "$command") >"$work/bare" 2>&1
  [ "$status" = 0 ] && [ ! -e "$traces" ] && [ ! -e "$shm" ] && [ ! -s "$work/err" ] && cmp -s "$work/bare" "$work/out" || break
done
[ "$status" = 0 ] && [ ! -e "$traces" ] && [ ! -e "$shm" ]
check "shells and tools leave nothing and say nothing" $? "$command: status $status, $(both)"

"$build/preload/process_cases" looks-at-itself >"$work/bare" </dev/null
traced itself "$build/preload/process_cases" looks-at-itself
[ -s "$work/bare" ] && cmp -s "$work/bare" "$work/out"
check "and have no thread, signal handler, mapping or descriptor of ours" $? "$(diff "$work/bare" "$work/out")"

# ---- data loaders and multiprocessing --------------------------------------------------------------------

for method in fork spawn forkserver; do
  rm -rf "$shm"
  traced "loader-$method" python3 "$script" loader $method
  [ "$status" = 0 ] && [ "$(files)" = rank0.trace ] && [ "$(calls rank0)" = "1/1 2/2 3/2" ] &&
    [ "$(find "$shm" -name '*.area' | wc -l)" = 1 ] && [ ! -s "$work/err" ]
  check "data-loader workers by $method leave nothing, and have nothing of ours" $? "status $status, $(files), $(calls rank0), $(both)"
done

for method in fork spawn; do
  traced "spawn-$method" python3 "$script" spawn $method 3
  report
  [ "$status" = 0 ] && [ "$(files)" = "rank0.trace rank1.trace rank2.trace" ] && grep -q '^consistent.*(3 ranks' "$work/report"
  check "ranks that a script starts by $method are traced each by its own rank" $? "status $status, $(files), $(both), $(cat "$work/report")"
done

traced own python3 "$script" own
[ "$status" = 0 ] && [ "$(for f in rank0 rank0.1; do calls $f; echo; done | LC_ALL=C sort | tr '\n' ';')" = "1/1 2/2;1/5;" ]
check "a forked child of Python that makes a communicator has a trace of its own" $? "status $status, $(files), $(both)"

traced closes python3 "$script" closes
[ "$status" = 7 ] && [ "$(files)" = rank0.trace ] && [ "$(calls rank0)" = "1/1 2/2" ] &&
  "$build/nccltrace" show --header "$traces/rank0.trace" | grep -q 'exited with code 7'
check "subprocess, os.system, posix_spawn and os._exit change nothing" $? "status $status, $(files), $(calls rank0), $(both)"

for python in python3 "$HOME"/.pyenv/versions/3.{9,12,13,14}.*/bin/python3; do
  version=$("$python" -c 'import sys; print("%d%02d" % sys.version_info[:2])' 2>/dev/null) || continue
  "$python" -c 'import ctypes' 2>/dev/null && [ "$version" -ge 309 ] && [ "$version" != 312 ] || continue
  traced "subinterpreters-$version" "$python" "$script" subinterpreters
  wanted=152
  [ "$version" -lt 313 ] || wanted=302
  [ "$status" = 0 ] && [ "$(calls rank0 | wc -w)" = $wanted ] &&
    "$build/nccltrace" show --header "$traces/rank0.trace" | grep -q '^python.stacks = on'
  check "calls from subinterpreters of Python $version are recorded, with stacks" $? \
    "status $status, $(calls rank0 | wc -w) calls, $(both)"
done

for mode in local global; do
  traces=$work/opened-$mode
  NCCLTRACE_DIR=$traces timeout 30 python3 "$script" opened "$build/libnccltrace.so" $mode >"$work/out" 2>"$work/err"
  [ $? = 0 ] && grep -qx "done" "$work/out" && [ ! -s "$work/err" ]
  check "opened ($mode) instead of preloaded, and closed again, the library does no harm" $? "$(both)"
done

# One task of Slurm's a node, which starts the ranks: all have the task's number.
traced one-task SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 python3 "$script" spawn spawn 3
report
[ "$status" = 0 ] && [ "$(files)" = "rank0.1.trace rank0.2.trace rank0.trace" ] && grep -q '^consistent.*(3 ranks' "$work/report" &&
  grep -q 'several processes were given the number of rank 0' "$work/report"
check "ranks that inherited one number from srun are told by their communicator" $? "status $status, $(files), $(both), $(cat "$work/report")"

traced batch SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0 python3 "$script" spawn spawn 3
report
[ "$status" = 0 ] && [ "$(files)" = "rank0.trace rank1.trace rank2.trace" ] && grep -q '^consistent.*(3 ranks' "$work/report"
check "what a batch script of Slurm's starts has the ranks of its communicator" $? "status $status, $(files), $(both), $(cat "$work/report")"

# ---- restarts --------------------------------------------------------------------------------------------

traced restarts TORCHELASTIC_RUN_ID=none NCCLTRACE_KEEP=3 python3 "$script" torchrun 2 1 "$work/id"
[ "$status" = 0 ] && [ "$(files)" = "rank0.1.trace rank0.trace rank1.1.trace rank1.trace" ]
check "workers that torchrun starts again leave each attempt's trace" $? "status $status, $(files), $(both)"
[ "$(calls rank0)" = "1/16" ] && [ "$(calls rank1)" = "1/16" ] && [ "$(calls rank0.1)" = "1/17 2/17" ]
check "the first attempt's is not written to again" $? "$(calls rank0), $(calls rank1), $(calls rank0.1)"
report
grep -q '^consistent.*(2 ranks.* 6 calls' "$work/report" && grep -q '2 traces of 1 other attempt were left out; attempt 1 is the newest' "$work/report"
check "tracediff judges the newest attempt, and says so" $? "$(cat "$work/report")"
[ "$(grep -cx "launcher \[\] \[\]" "$work/out")" = 2 ]
check "the launcher itself has neither thread nor handler of ours" $? "$(both)"

# ---- containers ------------------------------------------------------------------------------------------

# Two with one host name in which both ranks have the same number, and which share the node's tmpfs. Equal numbers are
# more than the simulator understands, so each has a communicator of its own.
if unshare --pid --uts --mount --fork true 2>/dev/null; then
  traces=$work/containers
  rm -rf "$shm"
  for rank in 0 1; do
    env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$traces" RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 NTSIM_DIR="$work/sim$rank" \
      timeout -s KILL 30 unshare --pid --uts --mount-proc --fork --kill-child sh -c 'hostname box && exec "$@"' sh \
      "$build/preload/process_cases" calls-twice >"$work/out$rank" 2>&1 </dev/null &
  done
  wait
  report
  [ "$(files)" = "rank0.trace rank1.trace" ] && grep -q '^consistent.*(2 ranks' "$work/report" &&
    [ "$(calls rank0)" = "1/6 2/7" ] && [ "$(calls rank1)" = "1/6 2/7" ]
  check "two containers with one host name and equal process numbers are two ranks" $? \
    "$(files), $(cat "$work/out0" "$work/out1" "$work/report")"
  [ "$(find "$shm" -name '1-*.area' | wc -l)" -ge 1 ]
  check "and neither takes the other's live area for its own" $? "$(ls "$shm")"
else
  echo "skip containers: no namespaces can be made here"
fi

# ---- where the loader does not load us -------------------------------------------------------------------

echo 'int main(void) { return 0; }' >"$work/plain.c"
if ${CC:-gcc} -static -o "$work/static" "$work/plain.c" 2>/dev/null; then
  traced static "$work/static"
  [ "$status" = 0 ] && [ ! -s "$work/err" ]
  check "a static program runs as ever" $? "status $status, $(both)"
else
  echo "skip a static program: it cannot be linked here"
fi
printf 'void _start(void) { __asm__ volatile("int $0x80" ::"a"(1), "b"(0)); }\n' >"$work/small.c"
if [ "$(uname -m)" = x86_64 ] && ${CC:-gcc} -m32 -nostdlib -static -o "$work/small" "$work/small.c" 2>/dev/null && "$work/small"; then
  traced small "$work/small"
  [ "$status" = 0 ]
  check "so does one of 32 bits" $? "status $status, $(both)"
else
  echo "skip a program of 32 bits: it cannot be linked or run here"
fi
if [ "$(id -u)" = 0 ] && chmod 755 "$work" && cp "$(command -v id)" "$work/id-s" && chmod 4755 "$work/id-s" &&
  [ "$(setpriv --reuid 65534 --clear-groups "$work/id-s" -u 2>/dev/null)" = 0 ]; then
  traced setuid setpriv --reuid 65534 --clear-groups "$work/id-s" -u
  [ "$status" = 0 ] && grep -qx 0 "$work/out" && ! grep -q '^nccltrace' "$work/err"
  check "so does one that runs with another user's rights" $? "status $status, $(both)"
else
  echo "skip a program with another user's rights: none can be made here"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
