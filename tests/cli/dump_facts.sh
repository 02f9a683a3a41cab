#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a dump says of memory, hardware and job: what this machine has is told, what it lacks is named. One process on
# the simulator, and a server that speaks as NCCL's RAS does.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
NCCLTRACE_SHM=$(mktemp -d /dev/shm/nccltrace-facts-XXXXXX)
export NCCLTRACE_SHM LD_LIBRARY_PATH=$build/sim
passed=0 failed=0
others=()
cleanup() {
  kill -KILL "${others[@]}" 2>/dev/null
  rm -rf "$work" "$NCCLTRACE_SHM"
}
trap cleanup EXIT

. tests/cli/checks.bash

cat >"$work/ras.py" <<'PY'
import os, socket, sys
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(server.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    client, _ = server.accept()
    for line in client.makefile():
        command = line.strip().lower()
        if command.startswith("client protocol"):
            client.sendall(b"SERVER PROTOCOL 2\n")
        elif command.startswith("timeout"):
            client.sendall(b"OK\n")
        elif command == "status":
            client.sendall(b"NCCL version 2.28.9 compiled with CUDA 13.0\n\nJob summary\n===========\n"
                           b"Communicators... (0.00s)\n\nErrors\n  rank 1 does not answer\n")
            break
    client.shutdown(socket.SHUT_RDWR)
    client.close()
PY
python3 "$work/ras.py" "$work/port" &
others+=($!)
disown $!

# start RANK VARIABLE=VALUE...: a traced process that stays; its number in $pid
start() {
  local rank=$1
  shift
  env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/trace" RANK="$rank" WORLD_SIZE=2 LOCAL_RANK="$rank" "$@" \
    "$build/preload/library_cases" closes-output >/dev/null 2>&1 &
  pid=$!
  disown "$pid" # or the shell reports how it died
  others+=("$pid")
}

# dump RANK: dumps process $pid once it has made its call; the facts in $work/facts, one a line
dump() {
  for _ in $(seq 600); do
    "$build/nccltrace" ls 2>/dev/null | grep -qE "^ *$pid .* AllReduce #1 " && break
    sleep 0.05
  done
  "$build/nccltrace" dump "$pid" >"$work/out" 2>&1
  "$build/nccltrace" show --dump --json "$work/trace/rank$1.trace" >"$work/json" 2>"$work/err"
  python3 - "$work/json" >"$work/facts" 2>>"$work/err" <<'PY'
import json, sys
for trace in json.load(open(sys.argv[1])):
    for key, value in trace["dump"]["facts"].items():
        print(f"{key}={value}")
    for source, reason in trace["dump"]["missing"].items():
        print(f"missing.{source}={reason}")
PY
}
has() { grep -qE -- "^$1" "$work/facts"; }
all() { for key in "$@"; do has "$key" || return 1; done; }

for _ in $(seq 600); do
  [ -e "$work/port" ] && break
  sleep 0.05
done
start 0 NCCL_RAS_ADDR="localhost:$(cat "$work/port")"
dump 0
detail=$(cat "$work/out" "$work/err" "$work/facts")

all process.rss=[1-9] process.rss.peak=[1-9] process.threads=[1-9] \
  process.descriptors.limit=[1-9] machine.memory=[1-9] machine.memory.available=[1-9] machine.load= shm.size=[1-9] shm.free=
check "a dump tells of the process's memory and the machine's" $? "$detail"
has "process.descriptors=$(find "/proc/$pid/fd" -mindepth 1 | wc -l)\$"
check "the descriptors that a dump counts are the application's alone" $? "$detail"

limits() {
  local source
  for source in memory cpu pids; do
    has "cgroup\.$source\." || has "missing\.cgroup\.$source=" || return 1
  done
  for source in memory cpu io; do
    if [ -r /proc/pressure/$source ] && cat /proc/pressure/$source >/dev/null 2>&1; then
      has "pressure\.$source\.some=avg10=" || return 1
    else
      has "missing\.pressure\.$source=" || return 1
    fi
  done
}
limits
check "control groups and pressure are told, or named as missing" $? "$detail"

hardware() {
  local interface
  has 'kernel\.lines=[0-9]' || has 'missing\.kernel-log=' || return 1
  has 'infiniband=[0-9]+ devices' || return 1
  has 'gpu\.0\.temperature=' || has 'missing\.NVML=' || return 1
  for interface in /sys/class/net/lo /sys/class/net/eth0; do
    [ ! -e $interface ] || has "net\.${interface##*/}=" || return 1
  done
  has 'tcp\.retransmitted=[0-9]' || has 'missing\.tcp='
}
hardware
check "links, kernel log and GPUs are told, or named as missing" $? "$detail"

all 'ras.1=Job summary$' 'ras.2=Communicators... \(0.00s\)$' 'ras.4=  rank 1 does not answer$' && ! has missing.RAS
check "what NCCL's RAS says is told without its banner" $? "$detail"

start 1 NCCL_RAS_ADDR="localhost:$(cat "$work/port")"
dump 1
has 'ras=the process with local rank 0 asks it$' && ! has 'ras\.'
check "one process of a node asks RAS" $? "$(cat "$work/out" "$work/facts")"

start 2 LOCAL_RANK=0 WORLD_SIZE=3 NCCL_RAS_ADDR=127.0.0.1:1
dump 2
has 'missing.RAS=127\.0\.0\.1:1: Connection refused$'
check "a RAS that does not listen is named" $? "$(cat "$work/out" "$work/facts")"

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
