#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Jobs under the real Open MPI and the real Slurm, on the simulator: the examples run as they are written, and digests of a job
# that hangs name the culprit. Slurm's daemons are the test's own: two nodes on this machine, in a temporary directory.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
root=$PWD
work=$(mktemp -d)
run=$work/run
NCCLTRACE_SHM=$(mktemp -d /dev/shm/nccltrace-test-XXXXXX)
export NCCLTRACE_SHM LD_LIBRARY_PATH=$build/sim PATH=$work/bin:$PATH:/usr/sbin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
daemons=()
cleanup() {
  local pid
  for pid in "${daemons[@]}"; do kill "$pid"; done 2>/dev/null
  for pid in "${daemons[@]}"; do wait "$pid"; done 2>/dev/null
  rm -rf "$work" "$NCCLTRACE_SHM"
}
trap cleanup EXIT
passed=0 failed=0
. tests/cli/checks.bash
chmod 755 "$work"

# What cannot be had is skipped; where everything is to be run it must be there.
absent() { # WHAT REASON
  if [ "${CI:-}" = true ]; then
    check "$1" 1 "$2"
  else
    echo "skip $1: $2 (tests/setup launchers installs it)"
  fi
}

mkdir "$work/bin"
ln -s "$build/tracediff" "$build/nccltrace" "$work/bin/"
"${CC:-gcc}" -std=gnu11 -D_GNU_SOURCE -O2 -Itests/sim/include -o "$work/perf" tests/users/perf.c \
  "$build/sim/libnccl.so.2" "$build/sim/libcudart.so.13" -Wl,--allow-shlib-undefined || exit 2
# The user's program, whoever started it.
cat >"$work/train" <<END
#!/bin/sh
exec "$work/perf" "\${OMPI_COMM_WORLD_RANK:-\$SLURM_PROCID}" "\${OMPI_COMM_WORLD_SIZE:-\$SLURM_STEP_NUM_TASKS}" 1 \\
  "\${OMPI_COMM_WORLD_LOCAL_RANK:-\$SLURM_LOCALID}" "$run/meet" \$CULPRIT
END
printf '#!/bin/sh\nexec "%s"\n' "$work/train" >"$work/bin/python"
chmod +x "$work/train" "$work/bin/python"
export CULPRIT=""

# The directories of this machine in place of those that are written. A run begins with nothing from the one before.
as_written() {
  sed "s,/usr/local/lib/libnccltrace.so,$build/libnccltrace.so,g; s,/shared/,$run/,g; s,/tmp/nccltrace-,$run/traces-,g"
}
line_of_readme() { sed -n '/^```bash$/,/^```$/p' "$root/examples/README.md" | grep "^$1 " | as_written; }
fresh() {
  rm -rf "$run" "${NCCLTRACE_SHM:?}"/* && mkdir -p "$run/meet"
  cp "$work/train" "$run/train"
  printf 'localhost slots=8\n' >"$run/hosts"
}
complaint() { tail -n 5 "$work/out" "$work/report" "$run"/slurm-*.out 2>/dev/null | tr '\n' ' '; }
consistent() { # RANKS DIR
  "$build/tracediff" "$2" >"$work/report" 2>&1 && grep -q "^consistent: .*($1 ranks" "$work/report"
}
digests_of() { # RANKS DIR: one each, of the size that is promised
  [ "$(find "$2" -name '*.trace' | wc -l)" = "$1" ] && [ -z "$(find "$2" -name '*.trace' -size +32k)" ] &&
    [ "$(find "$2" -type f | wc -l)" = "$1" ]
}
hangs() { # DIR: the verdict on the live job stands
  local i
  for i in $(seq 120); do
    timeout 20 "$build/tracediff" "$1" >"$work/report" 2>&1
    grep -q '^missing ([a-z]*): rank 1 ' "$work/report" && return 0
    sleep 0.5
  done
  return 1
}

# ---- Open MPI --------------------------------------------------------------------------------------------

if [ -n "$(command -v mpirun)" ]; then
  fresh
  as_written <examples/mpi/train.sh >"$run/train.sh"
  (cd "$run" && timeout 120 bash train.sh) >"$work/out" 2>&1
  [ $? = 0 ] && grep -q '^consistent: .*(8 ranks' "$work/out" && consistent 8 "$run"/traces-[0-9]* && digests_of 8 "$run"/digests-[0-9]*
  check "mpi/train.sh runs as it is written" $? "$(complaint)"

  fresh
  (cd "$run" && CULPRIT=1 exec timeout 120 mpirun -np 4 --hostfile hosts -x LD_PRELOAD="$build/libnccltrace.so" \
    -x NCCLTRACE_DIR="$run/traces" ./train) >"$work/job" 2>&1 &
  job=$!
  hangs "$run/traces" && (cd "$run" && timeout 60 bash -c "$(line_of_readme mpirun)") >"$work/out" 2>&1 &&
    digests_of 4 "$run/digests"
  check "digests of a job that hangs under mpirun are made as examples/README.md says" $? "$(complaint)"
  kill $job
  wait $job 2>/dev/null
  timeout 20 "$build/tracediff" "$run/digests" >"$work/report" 2>&1
  grep -q '^missing ([a-z]*): rank 1 ' "$work/report"
  check "and name the culprit when the job is gone" $? "$(complaint)"
else
  absent "Open MPI" "mpirun is not installed"
fi

# ---- Slurm -----------------------------------------------------------------------------------------------

free_ports() {
  python3 -c '
import socket
sockets = [socket.socket() for _ in range(3)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))'
}

slurm_begins() {
  local d=$work/slurm user host ports i
  user=$(id -un) host=$(hostname -s)
  read -r -a ports <<<"$(free_ports)"
  mkdir -p "$d/munge" "$d/state"
  chmod 755 "$d" "$d/munge"
  head -c 1024 /dev/urandom >"$d/key" && chmod 400 "$d/key"
  munged --foreground --force --key-file="$d/key" --socket="$d/munge/socket" --pid-file="$d/munge/pid" \
    --log-file="$d/munge/log" --seed-file="$d/munge/seed" >"$d/munge/out" 2>&1 &
  daemons+=($!)
  cat >"$d/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$d/munge/socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/spool.%n
SlurmctldPidFile=$d/slurmctld.pid
SlurmdPidFile=$d/slurmd.%n.pid
SlurmctldLogFile=$d/slurmctld.log
SlurmdLogFile=$d/slurmd.%n.log
GresTypes=gpu
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=8 Gres=gpu:8 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=8 Gres=gpu:8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
  for i in 0 1 2 3 4 5 6 7; do
    : >"$d/gpu$i"
    echo "NodeName=n[1-2] Name=gpu File=$d/gpu$i"
  done >"$d/gres.conf"
  export SLURM_CONF=$d/slurm.conf
  for i in $(seq 100); do
    [ -S "$d/munge/socket" ] && break
    sleep 0.1
  done
  slurmctld -D >"$d/slurmctld.out" 2>&1 &
  daemons+=($!)
  for i in n1 n2; do
    slurmd -D -N $i >"$d/$i.out" 2>&1 &
    daemons+=($!)
  done
  for i in $(seq 120); do
    [ "$(timeout 10 sinfo -h -N -t idle -o %N 2>/dev/null | tr '\n' ' ')" = "n1 n2 " ] && return 0
    sleep 0.5
  done
  tail -n 3 "$d"/munge/out "$d"/*.out >"$work/out"
  return 1
}

if [ -n "$(command -v slurmctld)" ] && [ -n "$(command -v slurmd)" ] && [ -n "$(command -v munged)" ] && [ -n "$(command -v srun)" ]; then
  fresh
  slurm_begins
  up=$?
  check "Slurm's daemons run here" $up "$(complaint)"
else
  up=1
  absent "Slurm" "slurmctld, slurmd, srun or munged is not installed"
fi
if [ $up = 0 ]; then
  for script in train digest; do
    fresh
    as_written <"examples/slurm/$script.sbatch" >"$run/$script.sbatch"
    (cd "$run" && timeout 200 sbatch --wait "$script.sbatch") >"$work/out" 2>&1 && grep -q '^consistent: .*(16 ranks' "$run"/slurm-*.out &&
      consistent 16 "$run"/traces-[0-9]* && { [ $script = train ] || digests_of 16 "$run"/digests-[0-9]*; }
    check "slurm/$script.sbatch runs as it is written" $? "$(complaint)"
  done

  fresh
  (cd "$run" && CULPRIT=1 exec timeout 120 srun --nodes=2 --ntasks-per-node=2 --job-name=hangs \
    --export="ALL,LD_PRELOAD=$build/libnccltrace.so,NCCLTRACE_DIR=$run/traces" ./train) >"$work/job" 2>&1 &
  job=$!
  hangs "$run/traces" && id=$(squeue -h -n hangs -o %A) &&
    (cd "$run" && timeout 60 bash -c "$(line_of_readme srun | sed "s/JOBID/$id/")") >"$work/out" 2>&1 && digests_of 4 "$run/digests"
  check "digests of a job that hangs under srun are made as examples/README.md says" $? "$(complaint)"
  scancel "$id"
  wait $job 2>/dev/null
  timeout 20 "$build/tracediff" "$run/digests" >"$work/report" 2>&1
  grep -q '^missing ([a-z]*): rank 1 ' "$work/report"
  check "and name the culprit when that is gone" $? "$(complaint)"
fi

cd "$root" || exit 2
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
