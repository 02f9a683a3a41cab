#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tracediff beside PyTorch's own analyzer of flight-recorder dumps. Where PyTorch is not installed its wheel (some
# 500 MB) is fetched for NT_PEER=1, and of it only the analyzer is unpacked, which needs nothing else of PyTorch. The
# table stays in $BUILD/flight_recorder_peer.md; ../shared/data or the directory NT_DUMPS may have real dumps for it.
set -u
cd "$(dirname "$0")/../.." || exit 2
NT_DUMPS=${NT_DUMPS:-../shared/data}
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NCCLTRACE_SHM=$work/shm
peer=$build/peer

skip() {
  echo "skip flight recorder: beside PyTorch's analyzer: $1"
  exit 0
}
fetch() {
  timeout 250 python3 -m pip download -q --no-deps -d "$work" torch==2.11.0 >"$work/log" 2>&1 || skip "$(tail -1 "$work/log")"
  mkdir -p "$peer/torch/distributed"
  python3 -m zipfile -e "$work"/torch-*.whl "$work/wheel" && cp -r "$work/wheel/torch/distributed/flight_recorder" "$peer/torch/distributed/" ||
    skip "the wheel holds no analyzer"
  : >"$peer/torch/__init__.py"
  : >"$peer/torch/distributed/__init__.py"
  python3 -c 'import typing_extensions, tabulate' 2>/dev/null ||
    python3 -m pip install -q --target "$peer" typing_extensions tabulate >"$work/log" 2>&1 || skip "$(tail -1 "$work/log")"
}

if ! python3 -c 'import torch.distributed.flight_recorder' 2>/dev/null; then
  [ "${NT_PEER:-}" = 1 ] || skip "PyTorch is not installed; NT_PEER=1 fetches it"
  [ -e "$peer/torch/distributed/flight_recorder/fr_trace.py" ] || fetch
  export PYTHONPATH=$peer
fi

cases=()
python3 tests/cli/flight_dumps.py --cases >"$work/cases"
while read -r name _ blame _; do
  python3 tests/cli/flight_dumps.py "$name" "$work/dumps/$name"
  cases+=("$name:$work/dumps/$name:$blame")
done <"$work/cases"
for item in fr-h200/skip:2 fr-h200/optype:3 fr-h200/dtype:0 fr-h200/exc:3 fr-nvrx/gpu_error_2nd:9,14 fr-nvrx/lock_gil_2nd:10,15; do
  [ -d "$NT_DUMPS/${item%:*}" ] && cases+=("real, ${item%:*}:$NT_DUMPS/$item")
done
python3 tests/cli/flight_peer.py "$build/tracediff" "${cases[@]}" >"$build/flight_recorder_peer.md"
status=$?
[ $status = 3 ] && skip "it does not run"
if [ $status = 0 ]; then
  echo "ok flight recorder: blames those at fault wherever PyTorch's analyzer is asked too"
else
  echo "FAIL flight recorder: blames others: see $build/flight_recorder_peer.md"
fi
