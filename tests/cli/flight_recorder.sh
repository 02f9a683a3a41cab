#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tracediff on dumps of PyTorch's flight recorder: made here, of jobs whose fault is known, in all versions of the format
# and as pickles and JSON; damaged and hostile ones; and real ones where ../shared/data or the directory NT_DUMPS has some.
set -u
cd "$(dirname "$0")/../.." || exit 2
tracediff=$(realpath "${BUILD:-build}")/tracediff
make_dumps() { python3 tests/cli/flight_dumps.py "$@"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NCCLTRACE_SHM=$work/shm
NT_DUMPS=${NT_DUMPS:-../shared/data}

check() { # NAME CONDITION-STATUS DETAIL
  if [ "$2" = 0 ]; then echo "ok $1"; else echo "FAIL $1: $3"; fi
}
# "missing 2 7": class, blame and sequence number of the first finding.
verdict() {
  "$tracediff" --json "$@" 2>"$work/err" | python3 -c '
import json, sys
report = json.load(sys.stdin)
if "error" in report:
    print("error", report["error"])
else:
    first = (report["findings"] or [{"blame": "", "seq": None}])[0]
    print(report["verdict"], first["blame"] or "-", first["seq"] or "-")'
}
# All who are blamed by any finding: "9,14".
blamed() {
  "$tracediff" --json "$1" 2>/dev/null | python3 -c '
import json, sys
ranks = set()
for finding in json.load(sys.stdin)["findings"]:
    for part in filter(None, finding["blame"].split(",")):
        low, _, high = part.partition("-")
        ranks.update(range(int(low), int(high or low) + 1))
print(",".join(map(str, sorted(ranks))) or "-")'
}

make_dumps --all "$work/all"
make_dumps --cases >"$work/cases"
python3 - "$tracediff" "$work" <<'PY'
import glob, json, subprocess, sys
tracediff, work = sys.argv[1:]
for line in open(f"{work}/cases"):
    name, kind, blame, seq = line.split()
    for dumps in sorted(glob.glob(f"{work}/all/{name}.2.*")):
        run = subprocess.run([tracediff, "--json", dumps], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        report = json.loads(run.stdout)
        findings = report.get("findings") or [{"blame": "", "seq": None}]
        blamed = {finding["blame"] or "-" for finding in findings}
        said = report.get("verdict"), str(findings[0]["seq"] or "-")
        case = dumps.rsplit("/", 1)[1]
        if said[0] == kind and blamed == {blame} and seq in ("-", said[1]) and not run.stderr:
            print(f"ok dumps: {case} is {kind}, and blames nobody else")
        else:
            print(f"FAIL dumps: {case} is {kind}, and blames nobody else: {said}, {blamed}, {run.stderr}")
PY

mkdir "$work/silent"
for rank in 0 1; do
  echo '{"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1]"}},"pg_status":{"0":{"last_enqueued_collective":-1,"last_started_collective":-1,"last_completed_collective":-1}},"entries":[]}' >"$work/silent/nccl_trace_rank_$rank"
done
"$tracediff" "$work/silent" >"$work/out"
[ $? = 1 ] && head -1 "$work/out" | grep -q '^undecided: no operations are in the dumps, .*TORCH_NCCL_TRACE_BUFFER_SIZE=2000$' && ! grep -q 'earlier operations' "$work/out"
check "dumps without operations are undecided, and say what makes PyTorch record them" $? "$(cat "$work/out")"

skip=$work/all/skip.2.10.p2
"$tracediff" "$skip" >"$work/out"
grep -q '^note: read from flight-recorder dumps: roots, operators and the states of processes are not in them$' "$work/out"
check "what a flight recorder does not record is said" $? "$(cat "$work/out")"
grep -q 'rank 2: state not recorded, last call AllReduce #9 on default_pg at train.py:9 step' "$work/out" &&
  ! grep -qE 'running|host code|dead|vanished' "$work/out"
check "nothing is claimed of a process that is not in the dumps" $? "$(cat "$work/out")"
grep -q '^      train.py:9 step$' "$work/out"
check "the frames of a dump are the stack of a call" $? "$(cat "$work/out")"

# Whose dump: the number that ends the name; else what is inside.
mkdir "$work/names"
for name in nccl_trace_rank_0:0 _dump_1:1 r_2:2 rank3.pickle:3; do cp "$skip/nccl_trace_rank_${name#*:}" "$work/names/${name%:*}"; done
[ "$(verdict "$work/names")" = "missing 2 7" ] && [ "$(verdict "$work"/names/*)" = "missing 2 7" ]
check "a dump is known by its content, its rank by the number in its name" $? "$(verdict "$work/names")"
mkdir "$work/nameless"
for i in 0 1 2 3; do cp "$work/all/wrong-peer.2.10.p2/nccl_trace_rank_$i" "$work/nameless/$(echo $i | tr 0-3 a-d)"; done
[ "$(verdict "$work/nameless")" = "$(verdict "$work/all/wrong-peer.2.10.p2")" ]
check "without a number in the name, messages tell whose dump it is" $? "$(verdict "$work/nameless") $(cat "$work/err")"
cp "$skip/nccl_trace_rank_0" "$work/dump"
"$tracediff" "$work/dump" 2>"$work/err"
[ $? = 2 ] && grep -q "dump: at byte 0: nothing tells whose dump it is: its file's name must end with the rank" "$work/err"
check "a dump of nobody knows whom is refused by name" $? "$(cat "$work/err")"

"$tracediff" "$skip" "$skip/nccl_trace_rank_3" "$skip/." >"$work/out"
[ "$(grep -c '^note:' "$work/out")" = 1 ] && grep -q '^missing (certain): rank 2 ' "$work/out"
check "a dump that is named twice is one" $? "$(cat "$work/out")"
cp "$skip/nccl_trace_rank_3" "$work/names/again_3"
"$tracediff" "$work/names" | grep -q '^note: two files claim rank 3; the newer is used ('
check "of two dumps of one rank one is used, which is said" $? "$("$tracediff" "$work/names")"

# Dumps of several runs or moments: told apart by the times and numbers of their calls.
NOW=$(date +%s%N)
export NOW
make_dumps host-stuck "$work/now"
for earlier in 4 20 70 7200; do EARLIER=$earlier make_dumps skip "$work/skip$earlier"; done
mkdir "$work/stale"
cp "$work"/now/* "$work/stale"
cp "$work/skip70/nccl_trace_rank_2" "$work/stale"
"$tracediff" "$work/stale" >"$work/out"
[ "$(verdict "$work/stale")" = "missing 3 7" ] && [ "$(blamed "$work/stale")" = 3 ] &&
  grep -q '^1 of 4 ranks has no trace: 2$' "$work/out" &&
  grep -q '^note: the dump of rank 2 (.*/stale/nccl_trace_rank_2) was left out as of another run or moment: its calls end 1 min ' "$work/out"
check "a stale dump of another run is left out, and its rank not accused" $? "$(cat "$work/out")"
for order in "now skip7200" "skip7200 now"; do
  # shellcheck disable=SC2086 # two names
  (cd "$work" && "$tracediff" $order) >"$work/out"
  head -1 "$work/out" | grep -q '^missing (certain): rank 3 ' && [ "$(grep -c 'left out' "$work/out")" = 1 ] &&
    grep -q '^note: 4 dumps (ranks 0-3, skip7200/nccl_trace_rank_. ...) were left out as of another run or moment' "$work/out"
  check "of two runs ($order) the newer is judged whole and alone, with one note" $? "$(cat "$work/out")"
done
for rank in 0 1; do cp "$work/skip7200/nccl_trace_rank_$rank" "$work/skip70"; done
"$tracediff" "$work/skip70" >"$work/out"
! grep -q '(certain)' "$work/out" && grep -q '^2 of 4 ranks have no trace: 0-1$' "$work/out" &&
  grep -q '^note: 2 dumps (ranks 0-1, ' "$work/out"
check "of two runs that share a directory only the newer is judged" $? "$(cat "$work/out")"
mkdir "$work/clock" "$work/doubt"

make_dumps skip "$work/skip0"
cp "$work"/skip0/* "$work/clock"
cp "$work/skip4/nccl_trace_rank_3" "$work/clock"
[ "$(verdict "$work/clock")" = "missing 2 7" ] && ! "$tracediff" "$work/clock" | grep -q 'another run'
check "clocks that differ by seconds are no other run" $? "$("$tracediff" "$work/clock")"
cp "$work"/skip0/* "$work/doubt"
cp "$work/skip20/nccl_trace_rank_3" "$work/doubt"
"$tracediff" "$work/doubt" >"$work/out"
grep -q '^missing (likely): rank 2 ' "$work/out" &&
  grep -q '^note: the calls of the dump of rank 3 (.*) end .* before those of the others: another run, an older dump, or a clock that is off' "$work/out"
check "where it is in doubt whether a dump is of this run, nothing is certain" $? "$(cat "$work/out")"

unset NOW
MOVING=1 make_dumps host-stuck "$work/moving"
"$tracediff" "$work/moving" >"$work/out"
grep -q '^consistent: no divergence, and the ranks that are behind' "$work/out"
check "a rank that was behind for less than a second when its dump was written is on its way" $? "$(cat "$work/out")"

LEFT_OUT=1 make_dumps host-stuck "$work/three"
"$tracediff" "$work/three" >"$work/out"
grep -q '^1 of 4 ranks has no trace: 1$' "$work/out" && [ "$(verdict "$work/three")" = "missing 3 7" ]
check "a missing dump is said, and the rest is judged" $? "$(cat "$work/out")"

# Sources are not mixed.
cat >"$work/fine.scn" <<'SCN'
title    All is well
ranks    2
comm A = init all
allreduce A f32 16 sum
sync
SCN
tests/run-scenario --no-verdict --keep "$work/kept" "$work/fine.scn" >"$work/log" 2>&1
"$tracediff" "$work/kept/fine/trace" "$skip"/* >"$work/out"
! grep -q 'default_pg' "$work/out" && grep -q '^note: 4 flight-recorder dumps were left out: what is judged are the traces$' "$work/out"
check "beside traces of ours, dumps are left out and named" $? "$(cat "$work/out" "$work/log")"
cp -r "$work/kept/fine/trace" "$work/both"
cp "$skip"/* "$work/both"
echo "not a dump" >"$work/both/notes"
"$tracediff" "$work/both" >"$work/out" 2>"$work/err"
grep -q '^note: 4 flight-recorder dumps were left out: what is judged are the traces$' "$work/out" && [ ! -s "$work/err" ]
check "in a directory that holds both, dumps are left out beside traces, which is said" $? "$(cat "$work/out" "$work/err")"
mkdir "$work/mixed"
cp "$skip"/* "$work/mixed"
echo "Fault ranks: [9, 14]" >"$work/mixed/notes_3"
echo '{"learning_rate": 1}' >"$work/mixed/config_4.json"
python3 -c 'import pickle, sys; pickle.dump({"weights": [1, 2]}, open(sys.argv[1], "wb"))' "$work/mixed/other_5"
[ "$(verdict "$work/mixed")" = "missing 2 7" ] && [ ! -s "$work/err" ]
check "other files of a directory are passed over" $? "$(verdict "$work/mixed") $(cat "$work/err")"

# Damage: one line a file, and the others are judged.
mkdir "$work/damaged"
cp "$skip"/nccl_trace_rank_[123] "$work/damaged"
head -c 700 "$skip/nccl_trace_rank_0" >"$work/damaged/nccl_trace_rank_0"
[ "$(verdict "$work/damaged")" = "missing 2 7" ] && [ "$(wc -l <"$work/err")" = 1 ] &&
  grep -qE 'nccl_trace_rank_0: at byte 6[0-9]+: (the pickle ends inside a value|a text of [0-9]+ bytes does not fit into the file)$' "$work/err"
check "a truncated pickle is one line, and loses nothing else" $? "$(verdict "$work/damaged") $(cat "$work/err")"
head -c 700 "$work/all/skip.2.10.json/nccl_trace_rank_0.json" >"$work/damaged/nccl_trace_rank_0"
[ "$(verdict "$work/damaged")" = "missing 2 7" ] && [ "$(wc -l <"$work/err")" = 1 ] &&
  grep -qE 'nccl_trace_rank_0: at byte [0-9]+: no JSON: ' "$work/err"
check "so is truncated JSON" $? "$(cat "$work/err")"
python3 - "$work/damaged/nccl_trace_rank_0" "$work/executed" <<'PY'
import os, pickle, sys
class Attack:
    def __reduce__(self):
        return os.system, (f"touch {sys.argv[2]}",)
pickle.dump({"version": "2.10", "entries": [Attack()], "pg_config": {}}, open(sys.argv[1], "wb"), protocol=4)
PY
[ "$(verdict "$work/damaged")" = "missing 2 7" ] && [ ! -e "$work/executed" ] &&
  grep -qE 'nccl_trace_rank_0: at byte [0-9]+: the pickle uses STACK_GLOBAL \(opcode 0x93\), which plain data does not need$' "$work/err"
check "a pickle that would call something is refused, and calls nothing" $? "$(cat "$work/err")"
python3 -c 'import pickle, sys; pickle.dump({"version": "3.0", "entries": [], "pg_config": {}}, open(sys.argv[1], "wb"))' "$work/damaged/nccl_trace_rank_0"
verdict "$work/damaged" >/dev/null
grep -q "not version 2 of the flight recorder's dumps; 2.0 to 2.10 are known" "$work/err"
check "a version that is not known is refused by name" $? "$(cat "$work/err")"

cp "$skip/nccl_trace_rank_0" "$work/damaged"
: >"$work/damaged/nccl_trace_rank_3"
echo "all is well" >"$work/damaged/notes_4"
verdict "$work/damaged" >/dev/null
[ "$(cat "$work/err")" = "tracediff: $work/damaged/nccl_trace_rank_3: empty" ]
check "an empty dump among others is named" $? "$(cat "$work/err")"
gzip -c "$skip/nccl_trace_rank_3" >"$work/damaged/nccl_trace_rank_3.gz"
rm "$work/damaged/nccl_trace_rank_3"
verdict "$work/damaged" >/dev/null
[ "$(cat "$work/err")" = "tracediff: $work/damaged/nccl_trace_rank_3.gz: compressed (gzip): uncompress it first" ]
check "a compressed dump among others is named" $? "$(cat "$work/err")"

"$tracediff" "$work/now" >"$work/out"
! grep -q 'nccltrace dump' "$work/out" && grep -q 'py-spy dump --pid PID of that rank$' "$work/out"
check "the next steps for dumps can be taken without traces" $? "$(cat "$work/out")"

# Real dumps, and who was at fault in each.
real() { # DIRECTORY BLAMED [VERDICT]
  if [ ! -d "$NT_DUMPS/$1" ]; then
    echo "skip real dumps: $1: $NT_DUMPS does not have it"
    return
  fi
  [ "$(blamed "$NT_DUMPS/$1")" = "$2" ]
  check "real dumps: $1 blames exactly those at fault" $? "$(blamed "$NT_DUMPS/$1"), not $2"
  [ -z "${3:-}" ] && return
  [ "$(verdict "$NT_DUMPS/$1")" = "$3" ]
  check "real dumps: $1 names the call" $? "$(verdict "$NT_DUMPS/$1"), not $3"
}
real fr-nvrx/gpu_error_2nd 9,14
real fr-nvrx/lock_gil_2nd 10,15
if [ -d "$NT_DUMPS/fr-h200/exc" ] && [ -d "$NT_DUMPS/fr-nvrx/lock_gil_2nd" ]; then
  mkdir "$work/real"
  cp "$NT_DUMPS"/fr-h200/exc/r_[013] "$NT_DUMPS/fr-h200/skip/r_2" "$work/real"
  [ "$(blamed "$work/real")" = 3 ]
  check "real dumps: a stale one of another run accuses nobody" $? "$("$tracediff" "$work/real")"
  [ "$(verdict "$NT_DUMPS/fr-nvrx/gpu_error_2nd" "$NT_DUMPS/fr-nvrx/lock_gil_2nd")" = "$(verdict "$NT_DUMPS/fr-nvrx/lock_gil_2nd")" ]
  check "real dumps: of two jobs the newer is judged as if alone" $? "$(verdict "$NT_DUMPS/fr-nvrx/gpu_error_2nd" "$NT_DUMPS/fr-nvrx/lock_gil_2nd")"
fi
real fr-h200/skip 2 "missing 2 7"
real fr-h200/optype 3 "mismatch 3 5"
real fr-h200/dtype 0 "mismatch 0 5"
real fr-h200/exc 3 "missing 3 7"
