#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The commands of examples/ have all ranks traced. Each is run as it is written, with the paths of this build; in place of the
# launchers stands launcher_stand_in.py, which passes on the environment as they do.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
root=$PWD
work=$(mktemp -d)
NCCLTRACE_SHM=$(mktemp -d /dev/shm/nccltrace-test-XXXXXX)
export NCCLTRACE_SHM LD_LIBRARY_PATH=$build/sim
trap 'rm -rf "$work" "$NCCLTRACE_SHM"' EXIT
passed=0 failed=0
. tests/cli/checks.bash

python=$(command -v python3)
mkdir "$work/bin" "$work/home"
for launcher in torchrun accelerate deepspeed vllm mpirun mpiexec srun docker python; do
  printf '#!%s\n' "$python" | cat - tests/cli/launcher_stand_in.py >"$work/bin/$launcher"
  chmod +x "$work/bin/$launcher"
done
ln -s "$build/tracediff" "$work/bin/tracediff"
# `import ray` finds this: a driver whose workers run in the environment that the job was given.
cat >"$work/ray.py" <<'END'
import launcher_stand_in


def init(runtime_env):
    assert not launcher_stand_in.start("ray", {**launcher_stand_in.bare(), **runtime_env["env_vars"]})
END
"${CC:-gcc}" -std=gnu11 -D_GNU_SOURCE -O2 -Itests/sim/include -o "$work/perf" tests/users/perf.c \
  "$build/sim/libnccl.so.2" "$build/sim/libcudart.so.13" -Wl,--allow-shlib-undefined || exit 2

# as_written: standard input with this machine's paths. fresh: where one command runs, without what an earlier one left.
as_written() { sed "s,/usr/local/lib/libnccltrace.so,$build/libnccltrace.so,g; s,/shared/traces,$work/run/traces,g"; }
fresh() {
  rm -rf "$work/run" && mkdir -p "$work/run/meet" "$work/run/traces"
}
run() { # COMMAND...: in a directory of its own, and with no variable that says anything about a rank
  (cd "$work/run" && exec env -i PATH="$work/bin:$PATH" HOME="$work/home" LD_LIBRARY_PATH="$LD_LIBRARY_PATH" \
    PYTHONPATH="$work:$root/tests/cli" PYTHONDONTWRITEBYTECODE=1 NCCLTRACE_SHM="$NCCLTRACE_SHM" \
    TRY_BARE="PATH HOME LD_LIBRARY_PATH NCCLTRACE_SHM" TRY_PROGRAM="$work/perf" TRY_MEET="$work/run/meet" \
    SLURM_SUBMIT_DIR="$work/run" SLURM_JOB_ID=7 timeout 60 "$@") >"$work/out" 2>&1
}
# Traces of three ranks that know which they are, and no fault.
all_ranks() { # DIR
  "$build/tracediff" "$1" >"$work/report" 2>&1 && grep -q '^consistent: .*(3 ranks' "$work/report" &&
    [ "$(cd "$1" && echo *.trace)" = "rank0.trace rank1.trace rank2.trace" ]
}
complaint() { tail -n 3 "$work/out" "$work/report" 2>/dev/null | tr '\n' ' '; }

# Lines of the fenced blocks of a language, a block between two lines with a dash.
blocks() { awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } /^```/ && inside { inside = 0; print "-" } inside'; }

# Each command that starts something is tried alone, behind the lines of its block that only prepare.
blocks sh <examples/README.md | as_written | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' >"$work/commands"
prepare="" tried=0
while IFS= read -r line; do
  case $line in
  -) prepare="" ;;
  export\ * | echo\ * | printf\ * | chmod\ *) prepare+=$line$'\n' ;;
  *)
    fresh
    rm -rf "${work:?}/home" && mkdir "$work/home"
    run bash -ec "$prepare$line"
    all_ranks "$work/run/traces"
    check "traced: $(sed 's,[^ =]*/,,g' <<<"$line" | cut -c 1-70)" $? "$(complaint)"
    tried=$((tried + 1))
    ;;
  esac
done <"$work/commands"
[ "$tried" -ge 11 ]
check "the commands of examples/README.md were found" $? "$tried"

fresh
blocks python <examples/README.md | grep -v '^-$' | as_written >"$work/run/job.py"
run "$python" job.py && all_ranks "$work/run/traces"
check "traced: a job of Ray" $? "$(complaint)"

fresh
as_written <examples/slurm/train.sbatch >"$work/run/train.sbatch"
run bash train.sbatch && all_ranks "$work/run/traces-7" && grep -q '^consistent' "$work/out"
check "traced: slurm/train.sbatch" $? "$(complaint)"

# Kubernetes is not here: what the pods get is read from the file.
if "$python" -c 'import yaml' 2>/dev/null; then
  "$python" - examples/kubernetes/pytorchjob.yaml >"$work/out" 2>&1 <<'END'
import sys
import yaml

job = yaml.safe_load(open(sys.argv[1], encoding="utf-8"))
assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
    pod = replica["template"]["spec"]
    container, = pod["containers"]
    env = {item["name"]: item["value"] for item in container["env"]}
    mounts = {item["mountPath"]: item["name"] for item in container["volumeMounts"]}
    volumes = {item["name"]: item for item in pod["volumes"]}
    assert container["name"] == "pytorch", role
    assert all(env[name].startswith("/shared/") for name in ("LD_PRELOAD", "NCCLTRACE_DIR")), env
    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory" and mounts["/shared"] in volumes, mounts
END
  check "kubernetes/pytorchjob.yaml sets what is needed in every pod" $? "$(complaint)"
else
  echo "skip kubernetes/pytorchjob.yaml: python3 has no module yaml"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
