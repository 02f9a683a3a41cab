#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tracediff on jobs whose traces are read by several threads at once.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/cli/jobs.bash

# A job of 64 ranks, something being wrong in its last step: NAME SHAPE OPERATIONS FAULT. $seq is the operation that it is about.
judge() {
  # shellcheck disable=SC2086
  traces "$1" $2 "$3" $4
  seq=$(cat "$work/$1.positions")
  run "$work/$1"
  [ $? = 1 ] && [ ! -s "$work/err" ]
}
# One rank stops calling: SHAPE OPERATIONS CULPRIT.
verdict() {
  judge "job${1// /-}" "$1" "$2" "stop=$3" && head -1 "$work/out" | grep -q "^missing (certain): rank $3 never called AllReduce $seq on tp; "
}
verdict "4 4 4 1" 400 5
check "the rank that stops is blamed, in a job of tensor, pipeline and data parallelism" $? "$(cat "$work/out" "$work/err")"
verdict "2 4 8 4" 1400 3
check "the rank that stops is blamed, in a job with experts" $? "$(cat "$work/out" "$work/err")"

verdict "2 8 2 1" 600 7 && [ "$(grep -c '^to blame:' "$work/out")" = 1 ]
check "nobody else is, where a stage receives from both sides at one line" $? "$(cat "$work/out" "$work/err")"
judge crossing "4 4 4 1" 1200 cross=37 && grep -q '^cycle (certain): .*'"first in AllReduce $seq on tp;" "$work/out" && grep -qx 'to blame: rank 37' "$work/out"
check "the rank that takes another order is blamed, however much piles up behind" $? "$(cat "$work/out" "$work/err")"
judge halves "2 4 8 4" 1200 cross=27 && grep -q '^cycle (certain): ' "$work/out" && grep -qx 'to blame: ranks 26-27' "$work/out"
check "of two that take two orders both are, and nobody that waits behind" $? "$(cat "$work/out" "$work/err")"
judge aborted "4 4 4 1" 1200 "skip=37 abort" && head -1 "$work/out" | grep -q "^missing (likely): rank 37 never called AllReduce $seq on tp and went on in another communicator;" &&
  [ "$(grep -c '^to blame:' "$work/out")" = 1 ]
check "so is the rank that left out a call, after all others aborted, and nobody besides" $? "$(cat "$work/out" "$work/err")"
judge stalled "4 4 4 1" 1200 stall=37 && grep -q "^stalled (certain): all members called AllReduce $seq on tp alike" "$work/out" && grep -qx 'to blame: nobody' "$work/out"
check "an operation that all have called and that does not end accuses nobody" $? "$(cat "$work/out" "$work/err")"

# What the threads do must not be seen. Damage makes lines on stderr, which come in the order of the files.
traces=$work/job4-4-4-1
for rank in 9 33 50; do
  printf 'x' | dd of="$traces/rank$rank.trace" bs=1 seek=290000 conv=notrunc 2>/dev/null
  truncate -s -3000 "$traces/rank$rank.trace"
done
echo garbage >"$traces/rank21.trace"
first=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
taskset -c "$first" "$tracediff" --json "$traces" >"$work/one" 2>"$work/one.err"
same=0
for _ in 1 2 3 4 5; do
  "$tracediff" --json "$traces" >"$work/many" 2>"$work/many.err"
  cmp -s "$work/one" "$work/many" && cmp -s "$work/one.err" "$work/many.err" || same=1
done
[ $same = 0 ] && [ "$(grep -c . "$work/one.err")" -ge 2 ]
check "the report is the same, however many threads read" $? "$(diff "$work/one" "$work/many"; cat "$work/one.err")"

"$tracediff" --json "$traces" "$traces" "$traces"/rank7.trace >"$work/many" 2>/dev/null
cmp -s "$work/one" "$work/many"
check "a process whose trace is named more than once is one rank" $? "$(diff "$work/one" "$work/many")"

mkdir "$work/reversed"
n=1000
for file in "$traces"/*.trace; do
  cp "$file" "$work/reversed/$((n--)).trace"
done
"$tracediff" --json "$work/reversed" 2>/dev/null | sed "s,$work/reversed/[0-9]*,FILE,g" >"$work/many"
sed "s,$traces/rank[0-9]*,FILE,g" "$work/one" >"$work/expected"
sorted() { sed 's/,$//' "$1" | sort; } # notes come in the order of the files
[ "$(sorted "$work/many")" = "$(sorted "$work/expected")" ]
check "the order of the files does not matter" $? "$(diff "$work/expected" "$work/many")"

# Slow enough for a bar: a second passes in front of the verdict. The same with stderr in a file.
bars() {
  [ -x /usr/bin/valgrind ] && [ -x /usr/bin/script ] || return 0
  local command="valgrind -q $tracediff --full $work/job2-4-8-4"
  TERM=xterm script -qec "$command" "$work/terminal" >/dev/null </dev/null
  $command >/dev/null 2>"$work/plain"
  grep -q 'reading \[' "$work/terminal" && grep -q 'judging \[#* *\] *[0-9]* %  [0-9] of 7' "$work/terminal" &&
    ! grep -q '\[' "$work/plain"
}
bars
check "reading and verdict of a large job have a bar on a terminal, and none elsewhere" $? "$(cat -v "$work/terminal" "$work/plain" | head -20)"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
