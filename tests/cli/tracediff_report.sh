#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tracediff's reports on traces of real runs on the simulator: text, JSON, and what does not matter.
set -u
cd "$(dirname "$0")/../.." || exit 2
tracediff=$(realpath "${BUILD:-build}")/tracediff
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

passed=0 failed=0
. tests/cli/checks.bash

cat >"$work/late.scn" <<'SCN'
title    Rank 2 does not call
ranks    4
timeout  9
evidence kill
comm A = init all
repeat 3 {
    allreduce A f32 1024 sum
}
sync
on 2 spin
allgather A f32 64
sync
SCN
cat >"$work/fine.scn" <<'SCN'
title    All is well
ranks    2
comm A = init all
allreduce A f32 16 sum
sync
SCN
crossed=tests/scenarios/cycle-then-watchdogs-abort.scn
tests/run-scenario --no-verdict --keep "$work/kept" "$work/late.scn" "$work/fine.scn" $crossed >"$work/log" 2>&1
late=$work/kept/late/trace fine=$work/kept/fine/trace
[ -e "$late/rank3.trace" ] && [ -e "$fine/rank1.trace" ]
check "the runs leave traces" $? "$(cat "$work/log")"

"$tracediff" "$fine" >"$work/out" 2>"$work/err"
[ $? = 0 ] && grep -q '^consistent: ' "$work/out" && [ ! -s "$work/err" ]
check "a job that agrees is consistent, status 0" $? "$(cat "$work/out" "$work/err")"
head -1 "$work/out" | grep -q "calls agree; all processes have ended (2 ranks, "
check "that its processes have ended is said" $? "$(cat "$work/out")"
"$tracediff" --json "$fine" | python3 -c "import json, sys; assert json.load(sys.stdin)['notes'][-1] == 'all processes have ended'"
check "also in JSON" $? "$("$tracediff" --json "$fine")"
"$tracediff" "$fine/rank0.trace" >"$work/out" 2>&1
[ $? = 0 ] && head -1 "$work/out" | grep -q '^consistent: what was read shows nothing unfinished and nothing that differs; 1 of 2 ranks has no trace, and what it would show is not known; all processes with a trace have ended (1 rank, ' &&
  ! grep -q "calls agree" "$work/out"
check "of ranks without a trace nothing is claimed" $? "$(cat "$work/out")"

"$tracediff" "$fine/rank0.trace" 2>&1 >/dev/null | grep -qx "tracediff: one trace was named, and more lie beside it: tracediff $fine/" &&
  ! "$tracediff" "$fine/rank0.trace" "$fine/rank1.trace" 2>&1 >/dev/null | grep -q beside
check "of one trace that was named it is said that more lie beside it" $? "$("$tracediff" "$fine/rank0.trace" 2>&1)"

"$tracediff" "$late" >"$work/out" 2>"$work/err"
[ $? = 1 ] && head -1 "$work/out" | grep -q '^missing (certain): rank 2 never called AllGather #4 on A; ranks 0-1,3 wait in it since ..:..:..\.... UTC$'
check "the first line is the verdict, status 1" $? "$(head -1 "$work/out")"
grep -qE '^  rank 2 \(.*, pid [0-9]+, cuda:[0-9]+, 0000:.*\): .*last call AllReduce #3 on A at late.scn:[0-9]+ <module>, (now host code )?since [0-9:.]+ UTC' "$work/out"
check "the culprit is described" $? "$(cat "$work/out")"
frames() { "$tracediff" "$@" "$late" | grep -c '^      [^ (]'; }
[ "$(frames)" -ge 1 ] && [ "$(frames)" -le 3 ] && [ "$(frames --full-stacks)" -ge "$(frames)" ]
check "a culprit's frames are shown, all with --full-stacks" $? "$(frames), $(frames --full-stacks)"
"$tracediff" "$late" >"$work/out"
[ "$(grep -c '^    where it made its last call:$' "$work/out")" = 1 ]
check "a stack of the last call is said to be one" $? "$(cat "$work/out")"
! grep -q "$(printf '\033')" "$work/out"
check "no colours where there is no terminal" $? ""

"$tracediff" --color=always "$late" | grep -q "$(printf '\033')"
check "--color=always" $? ""

"$tracediff" --json "$late" >"$work/a.json"
python3 - "$work/a.json" <<'PY' >"$work/out" 2>&1
import json, re, sys
v = json.load(open(sys.argv[1]))
assert list(v)[:7] == ["tool", "schema", "version", "ranks", "verdict", "since", "findings"], list(v)
assert (v["tool"], v["schema"], v["verdict"]) == ("tracediff", 1, "missing")
assert v["ranks"] == {"expected": 4, "present": "0-3", "missing": ""}, v["ranks"]
assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ", v["since"])
f = v["findings"][0]
assert list(f) == ["class", "confidence", "comm", "op", "seq", "field", "blame", "waiting", "culprits",
                   "summary", "evidence", "next"], list(f)
assert list(f["comm"]) == ["id", "name", "ordinal", "size", "ranks"], f["comm"]
assert (f["comm"]["name"], f["comm"]["ordinal"], f["comm"]["size"], f["comm"]["ranks"]) == ("A", 1, 4, "0-3")
assert (f["op"], f["seq"], f["field"], f["blame"], f["waiting"]) == ("AllGather", 4, None, "2", "0-1,3")
c = f["culprits"][0]
assert list(c) == ["rank", "host", "pid", "gpu", "pci", "gpu_index", "cuda_device", "state", "last", "at", "now",
                   "since", "stack", "stack_of"], list(c)
assert c["last"] == "AllReduce #3 on A"
assert re.fullmatch(r"late\.scn:\d+ <module>", c["at"]) and c["stack"][0] == c["at"], c
assert c["stack_of"] == "last call", c
assert v["warnings"] == []
PY
check "the JSON has the fields of schema 1" $? "$(cat "$work/out")"

"$tracediff" --json "$late"/rank{3,1,0,2}.trace >"$work/b.json"
cmp -s "$work/a.json" "$work/b.json"
check "the order of files does not matter" $? "$(diff "$work/a.json" "$work/b.json")"

head -c 100 "$late/rank0.trace" >"$work/cut.trace"
"$tracediff" --json "$work/cut.trace" "$late" >"$work/b.json" 2>"$work/err"
python3 - "$work/a.json" "$work/b.json" <<'PY' && [ "$(grep -c '^tracediff: .*cut.trace: at byte ' "$work/err")" = 1 ]
import json, sys
alone, bad = (json.load(open(path)) for path in sys.argv[1:])
assert [entry["file"].rsplit("/", 1)[1] for entry in bad.pop("unreadable")] == ["cut.trace"], bad
assert alone.pop("unreadable") == [] and alone == bad
PY
check "a bad file is named, the others are analysed" $? "$(cat "$work/err")"

"$tracediff" "$late"/rank{0,1,2}.trace >"$work/out"
sed -n 2p "$work/out" | grep -qx '1 of 4 ranks has no trace: 3'
check "ranks without a trace stand in the second line" $? "$(cat "$work/out")"

"$tracediff" "$late"/rank{0,1,3}.trace >"$work/out"
[ $? = 1 ] && head -1 "$work/out" | grep -q '^undecided: '
check "what only a missing trace can tell is undecided" $? "$(head -1 "$work/out")"

# Rank 0 crosses what ranks 1-2 do: of the two that are left, neither is in the majority.
python3 - "$tracediff" "$work/kept/cycle-then-watchdogs-abort/trace" "$work/cut" >"$work/out" 2>&1 <<'PY'
import json, os, shutil, subprocess, sys
tracediff, traces, cut = sys.argv[1:]
shutil.copytree(traces, cut)
path = os.path.join(cut, "rank1.trace")
data = open(path, "rb").read().rstrip(b"\0")
seen = set()
for part in range(20, 40):
    open(path, "wb").write(data[:len(data) * part // 40])
    files = [os.path.join(cut, f"rank{rank}.trace") for rank in range(3)]
    report = json.loads(subprocess.run([tracediff, "--json", *files], stdout=subprocess.PIPE,
                                       env={**os.environ, "NCCLTRACE_SHM": cut}).stdout)
    for finding in report["findings"]:
        seen.add((finding["class"], finding["confidence"], finding["blame"]))
        assert finding["blame"] in ("", "0") or finding["confidence"] == "undecided", (part, finding)
assert {entry[0] for entry in seen} == {"cycle"}, seen
PY
check "a tie that the rest of a trace cut short may decide accuses nobody" $? "$(cat "$work/out")"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
