#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Python stacks: the walk on all interpreters that are found, and from a traced program to nccltrace show.
set -u
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
build=$root/${BUILD:-build}
work=$(mktemp -d)
export NCCLTRACE_SHM=/dev/shm/nt-python-$$ LD_LIBRARY_PATH=$build/sim
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

tests/python/run || failed=1

if [ -n "${SAN:-}" ]; then
  echo "skip Python stacks in traces: built with sanitizers"
  exit $failed
fi

traced() { # NAME ARGUMENTS [VARIABLE=VALUE...]
  local name=$1 arguments=$2
  shift 2
  (exec env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/$name" "$@" \
    timeout 60 python3 tests/python/calls.py $arguments) >"$work/out" 2>&1 &
  wait $! 2>/dev/null
}
show() { "$build/nccltrace" show "$@" 2>&1; }

# line TEXT: where it stands in calls.py
line() { grep -nF -- "$1" tests/python/calls.py | head -n 1 | cut -d: -f1; }
inner=$(line ncclAllReduce)

traced plain ''
text=$(show "$work/plain/rank0.trace")
[ "$(grep -c "AllReduce .* calls.py:$inner allreduce\$" <<<"$text")" = 4 ]
check "each call says from where it came" $? "$text"

loop=$(line '        allreduce()')
outer=$(grep -n '^train()' tests/python/calls.py | cut -d: -f1)
text=$(show --stacks --tail 2 "$work/plain/rank0.trace" | sed -n 's/^ .*calls.py:/:/p')
[ "$text" = ":$inner allreduce
:$loop train
:$outer <module>
:$inner allreduce
:$((loop + 1)) train
:$outer <module>" ]
check "the whole stack is shown" $? "$text"

text=$(show --header "$work/plain/rank0.trace")
grep -q '^python.version *= *3' <<<"$text" && grep -q '^python.stacks *= *on' <<<"$text"
check "the evidence names the interpreter" $? "$(grep python <<<"$text")"

rm -rf "$NCCLTRACE_SHM"
text=$(show --stacks --tail 1 "$work/plain/rank0.trace" | grep -c 'calls.py')
[ "$text" = 4 ]
check "the file alone has the stacks" $? "$text lines"

traced killed kill
left=$work/killed/rank0.trace
[ -e "$left" ] || left=$(ls "$NCCLTRACE_SHM"/*.area)
text=$(show "$left")
[ "$(grep -c "AllReduce .* calls.py:$inner allreduce\$" <<<"$text")" = 4 ]
check "stacks survive SIGKILL" $? "$text"

traced off '' NCCLTRACE_PYTHON=off
text=$(show "$work/off/rank0.trace")$(show --header "$work/off/rank0.trace")
! grep -q 'calls.py:' <<<"$text" && grep -q 'AllReduce' <<<"$text" &&
  grep -q '^python.stacks *= *off: NCCLTRACE_PYTHON' <<<"$text"
check "NCCLTRACE_PYTHON=off: no stacks, and it is said" $? "$text"
exit $failed
