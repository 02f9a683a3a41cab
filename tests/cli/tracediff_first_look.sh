#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tracediff reads the last calls of large traces first, and says no other thing than it would of all of them.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/cli/jobs.bash

unread='note: [0-9]* earlier calls were not read: running sums and counts tell that they agree'

traces hang 4 2 8 4 900 stop=5
run --full "$work/hang"
[ $? = 1 ] && ! grep -q 'not read' "$work/out" && line=$(head -n 1 "$work/out")
check "--full reads all calls" $? "$(both)"
run --window 200 "$work/hang"
[ $? = 1 ] && [ ! -s "$work/err" ] && [ "$(head -n 1 "$work/out")" = "$line" ] && grep -q "$unread" "$work/out"
check "the last calls tell who stopped, and a note says that the others were not read" $? "$line, $(both)"
run "$work/hang"
[ $? = 1 ] && [ "$(head -n 1 "$work/out")" = "$line" ] && ! grep -q 'not read' "$work/out"
check "small traces are read as a whole" $? "$line, $(both)"

# Where the last calls do not tell, all are read, and nothing of the first look is said.
same=0
for fault in "skip=5" "skip=5 abort" "leave"; do
  name=${fault//[ =]/-}
  # shellcheck disable=SC2086
  traces "$name" 4 2 8 1 900 $fault
  run --json --full "$work/$name"
  status=$?
  cp "$work/out" "$work/full"
  run --json --window 64 "$work/$name"
  [ $? = $status ] && [ ! -s "$work/err" ] && cmp -s "$work/out" "$work/full" || same=1
done
check "where the last calls do not tell, the report is that of all calls" $same "$fault: $(diff "$work/out" "$work/full")"

# Damage in front of the last calls is told.
cp -r "$work/hang" "$work/damaged"
offset=$("$build/nccltrace" show --header "$work/damaged/rank9.trace" >/dev/null && grep -obUa NTFR "$work/damaged/rank9.trace" | cut -d: -f1 | tail -n 2 | head -n 1)
printf '\377' | dd of="$work/damaged/rank9.trace" bs=1 seek=$((offset + 80)) conv=notrunc 2>/dev/null
run --full "$work/damaged"
cp "$work/err" "$work/full.err"
run --window 64 "$work/damaged"
[ -s "$work/err" ] && cmp -s "$work/err" "$work/full.err" && grep -c . "$work/err" | grep -q '^1$'
check "damage is told once" $? "$(both)"

# Of nobody a call can be read.
cp -r "$work/hang" "$work/unreadable"
for trace in "$work/unreadable"/*.trace; do
  for at in $(LC_ALL=C grep -obUaP 'NTFR\x05' "$trace" | cut -d: -f1); do
    printf '\377\377\377\377' | dd of="$trace" bs=1 seek=$((at + 80)) conv=notrunc 2>/dev/null
  done
done
run "$work/unreadable"
[ $? = 1 ] && grep -q '^undecided: ' "$work/out" && grep -q '^to blame: nobody' "$work/out" && grep -q 'checksum wrong' "$work/err"
check "where no call can be read nothing is consistent, and it is said what is damaged" $? "$(both)"
"$build/nccltrace" show "$work/unreadable/rank5.trace" >"$work/out" 2>"$work/err"
[ $? = 1 ] && ! grep -q 'no call was recorded' "$work/err"
check "nccltrace show fails where no call can be read" $? "$(both)"

# A window and a memory for a few calls accuse nobody else.
traces skipped 4 2 4 1 2000 skip=3
run --full "$work/skipped"
line=$(grep '^to blame' "$work/out")
same=0
for few in 100 1000 3000; do
  run --window=10 --max-calls=$few "$work/skipped"
  [ "$(grep '^to blame' "$work/out")" = "$line" ] || grep -q '^to blame: nobody' "$work/out" || same=1
done
check "where few calls are read no others are accused" $same "$line, $(both)"
run --max-calls=3000 "$work/skipped"
grep -q 'memory is meant for no more (--max-calls)' "$work/out"
check "--max-calls holds for small traces too" $? "$(both)"

same=0
for calls in 0 -3 x 12x ""; do
  run --window "$calls" "$work/hang"
  [ $? = 2 ] && grep -q 'takes a number of calls, from 1' "$work/err" || same=1
done
check "--window takes a number" $same "$(both)"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
