#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tracediff on logs that NCCL wrote, as files of a directory and in one file.
set -u
cd "$(dirname "$0")/../.." || exit 2
tracediff=$(realpath "${BUILD:-build}")/tracediff
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NCCLTRACE_SHM=$work/shm

passed=0 failed=0
. tests/cli/checks.bash
run() {
  (cd "$work" && exec "$tracediff" "$@") >"$work/out" 2>"$work/err"
  status=$?
}
say() { # RANK TEXT
  echo "node:10$1:10$1 [$1] NCCL INFO $2"
}
log() { # RANK CALLS
  say "$1" "ncclCommInitRankConfig comm 0x5$1 rank $1 nranks 3 cudaDev $1 nvmlDev $1 busId 60 commId 0x77 - Init START"
  say "$1" "ncclCommInitRankConfig comm 0x5$1 rank $1 nranks 3 cudaDev $1 nvmlDev $1 busId 60 commId 0x77 - Init COMPLETE"
  for ((i = 0; i < $2; i++)); do
    say "$1" "AllReduce: opCount $i sendbuff 0x1 recvbuff 0x1 count 8 datatype 7 op 0 root 0 comm 0x5$1 [nranks=3] stream 0x9"
  done
}

mkdir "$work/logs"
for rank in 0 1 2; do log $rank $((rank == 1 ? 4 : 6)) >"$work/logs/nccl.node.10$rank.log"; done
echo "not a log" >"$work/logs/notes.txt"
run logs
[ "$status" = 1 ] && grep -q '^missing (likely): rank 1 never called AllReduce #5 ' "$work/out" && [ ! -s "$work/err" ]
check "a directory of logs is diagnosed" $? "status $status: $(cat "$work/out" "$work/err")"

! grep -q '1970\|since' "$work/out" && grep -q '^note: read from NCCL logs: ' "$work/out"
check "what a log does not tell is said, and no time is made up" $? "$(cat "$work/out")"

run --json logs
[ "$status" = 1 ] && grep -q '"since": null' "$work/out" && ! grep -q 1970 "$work/out"
check "the JSON has no time either" $? "$(cat "$work/out")"

cat "$work"/logs/*.log >"$work/all.txt"
run all.txt
[ "$status" = 1 ] && grep -q '^missing (likely): rank 1 never called AllReduce #5 ' "$work/out"
check "one file of the whole job is diagnosed" $? "status $status: $(cat "$work/out" "$work/err")"

grep -v 'commId' "$work/all.txt" >"$work/calls.txt"
run calls.txt
[ "$status" = 2 ] && grep -q 'NCCL_DEBUG_SUBSYS=INIT,COLL' "$work/err" && [ "$(wc -l <"$work/err")" -le 2 ]
check "a log without communicators is refused with what to set" $? "status $status: $(cat "$work/err")"

# A plain NCCL_DEBUG=INFO has no calls.
mkdir "$work/plain" "$work/agree" "$work/late" "$work/killed"
for log in "$work"/logs/nccl*; do grep -v opCount "$log" >"$work/plain/${log##*/}"; done
run plain
[ "$status" = 1 ] && head -1 "$work/out" | grep -q '^undecided: no calls are in the logs, .*NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL$' &&
  grep -q '^  run the job again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL ' "$work/out"
check "logs without calls are undecided, with what to set" $? "status $status: $(cat "$work/out")"

for rank in 0 1 2; do log $rank 6 >"$work/agree/nccl.node.10$rank.log"; done
run agree
[ "$status" = 0 ] && head -1 "$work/out" | grep -q '^consistent: the calls agree; whether they finished cannot be told from NCCL logs ('
check "of logs that agree nothing is said of what finished" $? "status $status: $(cat "$work/out")"
run logs
! grep -q 'wait in it\|waiting' "$work/out" && head -1 "$work/out" | grep -q '; ranks 0,2 called it$' && grep -q '^called it: ranks 0,2$' "$work/out"
check "who called is not said to wait" $? "$(cat "$work/out")"
! grep -q 'nccltrace dump' "$work/out" && grep -q 'py-spy dump --pid 101 on node$' "$work/out"
check "the next steps for logs can be taken without traces" $? "$(cat "$work/out")"

for rank in 0 1 2; do
  { yes 'step 1, NCCL is not meant' | head -n 20000; log $rank $((rank == 1 ? 4 : 6)); } >"$work/late/out.$rank"
done
run late
[ "$status" = 1 ] && grep -q '^missing (likely): rank 1 never called AllReduce #5 ' "$work/out"
check "the first line of NCCL may stand behind half a megabyte of other output" $? "status $status: $(cat "$work/out" "$work/err")"
yes 'step 1' | head -n 700000 >"$work/far"
run far
[ "$status" = 2 ] && grep -q 'no line of NCCL in its first 4 MiB$' "$work/err"
check "how far a log was searched is said" $? "$(cat "$work/err")"

mkdir "$work/two"
cp "$work"/agree/*.10[02].log "$work/two"
run two
[ "$status" = 1 ] && head -1 "$work/out" | grep -q '^undecided: all members with a log called AllReduce #6 on .*; whether rank 1 without a log called it cannot be told$'
check "where a log is missing, those that called are not said to wait" $? "$(cat "$work/out")"

# Rank 1 is killed, rank 2 loses its connection.
for rank in 0 1 2; do log $rank $((rank == 0 ? 6 : 4)) >"$work/killed/nccl.node.10$rank.log"; done
echo "node:102:140 [0] NCCL INFO misc/socket.cc:845 -> 6" >>"$work/killed/nccl.node.102.log"
run killed
grep -q '^missing (likely): rank 1 never called AllReduce #5 ' "$work/out" &&
  grep -q "^  rank 1's log ends after AllReduce #4 .*: it may have died there, or be stuck$" "$work/out" &&
  sed -n '/^next:/{n;p}' "$work/out" | grep -q '^  did it die? .*its own log.*dmesg.*scheduler'
check "of a rank whose log ends it is said that it may have died, and where to look" $? "$(cat "$work/out")"
grep -q '^  rank 2 lost a connection to a peer after AllReduce #4 ' "$work/out" &&
  grep -q '^note: killed/nccl.node.102.log: line 7: rank 2 (node:102) lost a connection: ' "$work/out"
check "who lost a connection is evidence, by rank" $? "$(cat "$work/out")"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
