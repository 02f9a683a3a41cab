#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Jobs with more calls than memory is meant for: equal calls are skipped by their running sums, and what differs is found.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/cli/jobs.bash

findings() { grep -E '^(mismatch|missing|undecided)' "$work/out"; }
bounded='earlier calls were not read, since memory is meant for no more (--max-calls)'

# 380,000 calls; rank 6 passes another count half-way, and at the end rank 37 stops.
traces other 4 4 4 1 5000 stop=37 other=6
run --full "$work/other"
all=$(findings)
position=$(tail -n 1 "$work/other.positions")
[[ $all == "mismatch (certain): rank 6 passed count "*"AllReduce $position on tp"$'\n'"missing (certain): rank 37 "* ]]
check "of all calls tracediff finds what differs half-way, and what hangs at the end" $? "$all"
run --full --max-calls 120000 "$work/other"
[ $? = 1 ] && [ ! -s "$work/err" ] && [ "$(findings)" = "$all" ] && grep -qF "$bounded: running sums and counts tell that they agree" "$work/out"
check "of calls that do not fit into memory it finds the same" $? "$(findings; cat "$work/err")"
run --max-calls 120000 "$work/other"
[ $? = 1 ] && [ "$(findings)" = "$all" ]
check "so it does without being asked for all" $? "$(findings)"
run --full --max-calls 40000 "$work/other"
[ $? = 1 ] && findings | grep -qE '^undecided: ranks 4 and 6 first differ on tp between .* were not read$' &&
  grep -qF "$bounded: earlier collectives differ" "$work/out"
check "where no rank fits in as a whole, it says between which calls they differ" $? "$(findings)"

traces hang 4 4 4 1 5000 stop=37
run --full --max-calls 120000 "$work/hang"
[ $? = 1 ] && [ "$(findings)" = "$(tail -n 1 <<<"$all")" ] && grep -qF "$bounded: running sums and counts tell that they agree" "$work/out"
check "equal calls are skipped by their sums" $? "$(findings)"
run --max-calls 120000 "$work/hang"
[ $? = 1 ] && [ "$(findings)" = "$(tail -n 1 <<<"$all")" ] && ! grep -qF -- "--max-calls" "$work/out"
check "where the last calls decide no more are read, however many there are" $? "$(findings)"

# Rank 0 passes another count half-way, of which nothing comes; at the end somebody skips, crosses or stops.
for fault in skip=30 skip=3 cross=17 stop=0 stall=9; do
  rank=${fault#*=} position='' other=''
  traces "$fault" 8 2 2 2 1200 $fault other=0
  { read -r position; read -r other; } <"$work/$fault.positions"
  case $fault in
  skip*) wanted="missing (likely): rank $rank never called AllReduce $position on tp" ;;
  cross*) wanted="cycle (certain): ranks 0-24,26-31 wait for each other across communicators, first in AllReduce $position on tp" ;;
  stop*) wanted="missing (certain): rank $rank never called AllReduce $position on tp" ;;
  *) wanted="stalled (certain): all members called AllReduce $position on tp alike" ;;
  esac
  run "$work/$fault"
  [ $? = 1 ] && grep -qF "mismatch (certain): rank 0 passed count 8388609, the others 8388608, to AllReduce $other on tp" "$work/out" &&
    grep -qF "$wanted" "$work/out" && grep -qF "it holds nobody up: all members finished it, and" "$work/out"
  check "another count half-way, of which nothing came, does not hide $fault" $? "$(head -n 3 "$work/out")"
done

# The same where a digest no longer has the calls that differ.
traces hidden 4 2 2 1 200000 stop=9 other=0 size=1048576
mkdir "$work/digests" && "$build/nccltrace" digest -o "$work/digests" "$work/hidden" >/dev/null
run "$work/digests"
[ $? = 1 ] && grep -qF "missing (certain): rank 9 never called AllReduce $(head -n 1 "$work/hidden.positions") on tp" "$work/out" &&
  grep -q '^undecided: ranks 0 and 1 first differ on tp between operations .* those calls are no longer in the traces' "$work/out"
check "nor do calls that differ and are no longer there" $? "$(head -n 3 "$work/out")"

same=0
for calls in 0 -3 x 12x ""; do
  run --max-calls "$calls" "$work/hang"
  [ $? = 2 ] && grep -q 'takes a number of calls, from 1' "$work/err" || same=1
done
check "--max-calls takes a number" $same "$(cat "$work/err")"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
