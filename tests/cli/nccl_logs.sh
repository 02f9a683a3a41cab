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

check() { # NAME CONDITION-STATUS DETAIL
  if [ "$2" = 0 ]; then echo "ok $1"; else echo "FAIL $1: $3"; fi
}
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
