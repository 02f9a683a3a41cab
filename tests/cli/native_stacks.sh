#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Native stacks of calls: what is in the trace, and that programs that unwind by themselves go on doing so.
# Each case is a sub-command of tests/preload/native_cases.c, traced on the simulator.
set -u
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
export NCCLTRACE_SHM=/dev/shm/nt-native-$$ LD_LIBRARY_PATH=$build/sim
trap 'rm -rf "$work" "$NCCLTRACE_SHM"' EXIT
failed=0

check() { # NAME CONDITION-STATUS DETAIL
  if [ "$2" = 0 ]; then
    echo "ok $1"
  else
    echo "FAIL $1: $3"
    failed=1
  fi
}

if [ -n "${SAN:-}" ]; then
  echo "skip native stacks: built with sanitizers"
  exit 0
fi

# traced NAME VARIABLE=VALUE... -- PROGRAM ARGUMENT...: output in $work/out, exit status in $status
traced() {
  local name=$1 settings=()
  shift
  while [ "$1" != -- ]; do
    settings+=("$1")
    shift
  done
  shift
  (cd "$work" && exec env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/$name" "${settings[@]}" \
    timeout 60 "$@") >"$work/out" 2>&1 &
  wait $! 2>/dev/null
  status=$?
}
show() { "$build/nccltrace" show "$@" 2>&1; }
line() { grep -nF -- "$1" tests/preload/native_cases.c | head -n 1 | cut -d: -f1; }

cases=$build/preload/native_cases source=tests/preload/native_cases.c
traced on NCCLTRACE_NATIVE=1 -- "$cases" stacks
text=$(show --stacks "$work/on/rank0.trace" | grep -A 4 ' AllReduce ' | sed -n 's/^    //p' | head -4)
[ "$text" = "train_step at $source:$(line 'check(ncclAllReduce')
train at $source:$(line '    train_step();')
stacks at $source:$(line '  train();')
main at $source:$(line '    status = stacks();')" ]
check "a call shows the functions it came from, innermost first, to main" $? "$text"

text=$(show "$work/on/rank0.trace")
[ "$(grep -c "AllReduce .* native_cases.c:$(line 'check(ncclAllReduce') train_step\$" <<<"$text")" = 5 ]
check "each call says from where it came" $? "$text"

text=$(show --header "$work/on/rank0.trace")
grep -q '^native.stacks *= *on$' <<<"$text"
check "the evidence says that native stacks are on" $? "$(grep native <<<"$text")"

text=$(show --stacks --json "$work/on/rank0.trace" | python3 -c '
import json, sys
for trace in json.load(sys.stdin):
    for call in trace["calls"]:
        if call["function"] == "AllReduce":
            frame = call["stack"][0]
            print(frame["function"], frame["module"], len(frame["build_id"]), frame["offset"] > 0)' | sort -u)
[ "$text" = "train_step $cases 40 True" ]
check "JSON has module, build id and offset" $? "$text"

cp "$cases" "$work/copy" && traced moved NCCLTRACE_NATIVE=1 -- "$work/copy" stacks && rm "$work/copy"
text=$(show --stacks "$work/moved/rank0.trace" | grep -A 1 ' AllReduce ' | sed -n 's/^    //p' | sort -u)
grep -qE "^$work/copy\+0x[0-9a-f]+\$" <<<"$text"
check "a module that is gone is shown with the offset" $? "$text"
cp /bin/true "$work/copy"
[ "$(show --stacks "$work/moved/rank0.trace" | grep -A 1 ' AllReduce ' | sed -n 's/^    //p' | sort -u)" = "$text" ]
check "another module in its place is not asked" $? "$(show --stacks "$work/moved/rank0.trace")"

traced python NCCLTRACE_NATIVE=1 -- python3 "$root/tests/python/calls.py"
text=$(show --stacks --tail 1 "$work/python/rank0.trace" | sed -n 's/^    //p')
[[ $(head -n 1 <<<"$text") == *libffi* && $(tail -n 3 <<<"$text" | grep -c 'calls.py:[0-9]* ') = 3 ]] &&
  ! grep -q -e PyEval -e Py_RunMain <<<"$text"
check "native frames first, then Python's, without the interpreter's own" $? "$text"
text=$(show --tail 1 "$work/python/rank0.trace")
grep -q 'AllReduce .* calls.py:[0-9]* allreduce$' <<<"$text"
check "where there is Python, a call's place is one of Python" $? "$text"

traced no-python NCCLTRACE_NATIVE=1 NCCLTRACE_PYTHON=off -- python3 "$root/tests/python/calls.py"
text=$(show --stacks --tail 1 "$work/no-python/rank0.trace")
grep -q '_start' <<<"$text" && ! grep -q 'calls.py:' <<<"$text"
check "native stacks alone reach to the start of the program" $? "$text"

traced off -- "$cases" stacks
text=$(show --stacks "$work/off/rank0.trace"; show --header "$work/off/rank0.trace")
grep -q ' AllReduce ' <<<"$text" && ! grep -q -e train_step -e '^native.stacks' <<<"$text"
check "there are none unless they are asked for" $? "$text"

# A file of this name that is no library stops the loader's search.
mkdir "$work/hidden" && : >"$work/hidden/libunwind.so.8"
traced hidden NCCLTRACE_NATIVE=1 LD_LIBRARY_PATH="$work/hidden:$LD_LIBRARY_PATH" -- "$cases" stacks
text=$(show --header "$work/hidden/rank0.trace")
[ "$status" = 0 ] && [ ! -s "$work/out" ] && grep -q '^native.stacks *= *off: .*libunwind.so.8' <<<"$text" &&
  [ "$(show "$work/hidden/rank0.trace" | grep -c ' AllReduce ')" = 5 ]
check "without libunwind the job runs, is traced, and the evidence says what is missing" $? \
  "status $status, $(cat "$work/out"), $(grep native <<<"$text")"

for native in 0 1; do
  traced unwinds$native NCCLTRACE_NATIVE=$native NATIVE_THROWS="$build/preload/native_throws.so" -- "$cases" unwinds
  [ "$status" = 0 ] && [ "$(cat "$work/out")" = "caught 200 exited 1 cancelled 1 unwinder own" ]
  check "exceptions, pthread_exit and cancellation work with NCCLTRACE_NATIVE=$native" $? "status $status, $(cat "$work/out")"
done

text=$(show --stacks "$work/unwinds1/rank0.trace" | grep ' at tests/preload/native_throws.cc:' | sed 's/ at .*//; s/^ *//' | sort -u)
[ "$text" = "deep
throw_and_catch" ]
check "C++ functions are shown by their names" $? "$text"

traced closes NCCLTRACE_NATIVE=1 -- "$cases" closes-descriptors
[ "$status" = 0 ] && [ "$(cat "$work/out")" = intact ]
check "files that took the numbers of libunwind's descriptors are left alone" $? "status $status, $(cat "$work/out")"
text=$(show --stacks "$work/closes/rank0.trace" | grep -A 4 ' AllReduce ' | tail -4)
grep -q 'call_without_unwind_info' <<<"$text" && grep -q 'closes_descriptors' <<<"$text"
check "a frame without unwind information is passed by its frame pointer" $? "$text"

# Without NCCLTRACE_NATIVE: a dump asks for stacks by itself.
# Of the case named in $subject; $alive says whether it lived to the end.
# dumped PATTERN VARIABLE=VALUE...: in $text, what a dump of a process with these settings has. On a busy machine a
# thread may not get to answer in its time: again then, until the pattern is there.
subject=threads
dumped() {
  local pattern=$1 tries=0
  shift
  rm -rf "$work/threads" "$work/out"
  text=
  (cd "$work" && exec env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/threads" "$@" \
    timeout 60 "$cases" "$subject") >"$work/out" 2>&1 &
  local job=$! waited=0
  until grep -q ready "$work/out" 2>/dev/null || [ $((waited += 1)) = 300 ]; do sleep 0.1; done
  until grep -q "$pattern" <<<"$text" || [ $((tries += 1)) = 20 ]; do
    "$build/nccltrace" dump --native --timeout=20 --dir="$work/threads" >"$work/answer" 2>&1
    text=$(show --dump "$work/threads/rank0.trace")
  done
  kill $job && alive=yes || alive=no
  wait $job 2>/dev/null
}
dumped ', 3 native stacks)' NCCLTRACE_SIGNAL=
grep -q ' waits_for_bytes at ' <<<"$text" && grep -q ' spins at ' <<<"$text" && grep -q ' main at ' <<<"$text" &&
  ! grep -q ' blocks_all_signals ' <<<"$text" && grep -q 'blocks the signal' <<<"$text"
check "a dump has the native stacks of all threads but the one that blocks the signal, and says so" $? \
  "$text $(cat "$work/answer")"

dumped ^missing NCCLTRACE_SIGNAL=off
! grep -q ' spins at ' <<<"$text" && grep -q 'NCCLTRACE_SIGNAL is off' <<<"$text"
check "without a signal a dump says why it has none" $? "$text $(cat "$work/answer")"

for subject in resets-signals handles-signals; do
  dumped ^missing NCCLTRACE_SIGNAL=
  [ "$alive" = yes ] && [ "$(cat "$work/out")" = ready ] && grep -q 'the program has taken signal' <<<"$text"
  check "a program that ${subject/-/ } of its own lives, and gets none of a dump's" $? \
    "alive: $alive, $(cat "$work/out") $text"
done
exit $failed
