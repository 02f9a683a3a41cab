#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tracediff's arguments, its exit statuses, and what it makes of input that it cannot use.
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

run --help
[ "$status" = 0 ] && grep -q -- '--json' "$work/out" && [ ! -s "$work/err" ]
check "--help goes to standard output" $? "status $status"

run --version
[ "$status" = 0 ] && grep -q '^tracediff ' "$work/out"
check "--version names the tool" $? "$(cat "$work/out")"

run --nonsense
[ "$status" = 2 ] && [ ! -s "$work/out" ] && [ -s "$work/err" ]
check "an unknown option is status 2" $? "status $status"

run --color=sometimes
[ "$status" = 2 ]
check "a wrong --color is status 2" $? "status $status"

run
[ "$status" = 2 ] && grep -q '^tracediff: ./nccltrace does not exist: was the job started with LD_PRELOAD=' "$work/err"
check "without an argument it reads ./nccltrace" $? "$(cat "$work/err")"

mkdir "$work/empty"
run empty
[ "$status" = 2 ] && [ "$(wc -l <"$work/err")" = 1 ]
check "a directory without traces is status 2" $? "$(cat "$work/err")"

run --json empty
[ "$status" = 2 ] && python3 -c 'import json, sys; assert "NCCL logs in empty" in json.load(sys.stdin)["error"]' <"$work/out"
check "--json says why there is no verdict" $? "$(cat "$work/out" "$work/err")"
run --json "$(printf 'no\302\233such\177\342\200\256way\363\240\201\201')"
[ "$status" = 2 ] && grep -qF 'no\u009bsuch\u007f\u202eway\udb40\udc41' "$work/out" && ! grep -q "$(printf '\302\233')" "$work/out" &&
  python3 -c 'import json, sys; assert "\u202eway\U000e0041" in json.load(sys.stdin)["error"]' <"$work/out"
check "JSON escapes C1 control characters" $? "$(cat -v "$work/out")"

for name in /nonexistent -; do
  run "$name"
  [ "$status" = 2 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q "^tracediff: $name does not exist" "$work/err"
  check "of a path that is not there ($name) that is said" $? "status $status: $(cat "$work/err")"
done
run absent
[ "$status" = 2 ] && grep -q '^tracediff: absent does not exist; if it was to hold traces: was the job started with LD_PRELOAD=' "$work/err"
check "of a directory that is not there it is said what makes one" $? "$(cat "$work/err")"
run 4194304
[ "$status" = 2 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q 'of a process nccltrace show 4194304 tells$' "$work/err"
check "of a number it is said who takes processes" $? "$(cat "$work/err")"
mkdir -p "$work/tmp/nccltrace-$(id -u)"
: >"$work/tmp/nccltrace-$(id -u)/rank0.trace"
TMPDIR=$work/tmp run
[ "$status" = 2 ] && grep -qF "./nccltrace does not exist; where a job could not make it its traces lie in $work/tmp/nccltrace-$(id -u): tracediff $work/tmp/nccltrace-$(id -u)" "$work/err"
check "without ./nccltrace the directory that is used instead is named, if it has traces" $? "$(cat "$work/err")"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  mkdir -m 700 "$work/secret"
  chmod 755 "$work"
  cp "$tracediff" "$work/tracediff"
  (cd / && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$work/tracediff" "$work/secret") >"$work/out" 2>"$work/err"
  [ $? = 2 ] && [ "$(cat "$work/err")" = "tracediff: $work/secret: Permission denied" ]
  check "a directory that may not be read is named once" $? "$(cat "$work/err")"
else
  echo "skip a directory that may not be read: only root can become another user"
fi
mkdir "$work/other"
echo hello >"$work/other/hello"
run other
[ "$status" = 2 ] && [ "$(cat "$work/err")" = "tracediff: no traces, flight-recorder dumps or NCCL logs in other: its only file is of another kind" ]
check "of a directory of other files it is said that none is of a known kind" $? "$(cat "$work/err")"
mkdir -p "$work/parent/a" "$work/parent/b"
echo "node:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 1 cudaDev 0 busId 60 commId 0x7 - Init START" >"$work/parent/b/log"
run parent
[ "$status" = 2 ] && grep -q 'its subdirectories have some: name one of them (parent/b)$' "$work/err"
check "of a directory whose subdirectories hold what is meant, these are named" $? "$(cat "$work/err")"

run -j empty
[ "$status" = 2 ] && python3 -c 'import json, sys; json.load(sys.stdin)' <"$work/out"
check "-j is --json" $? "$(cat "$work/out" "$work/err")"

mkdir "$work/garbage"
: >"$work/garbage/dump_0"
printf '\037\213\010\000aaaaaaaa' >"$work/garbage/dump_1.gz"
head -c 3000 /dev/zero >"$work/garbage/nccl_trace_rank_2"
echo hello >"$work/garbage/readme"
run --json garbage
[ "$status" = 2 ] && [ "$(wc -l <"$work/err")" = 4 ] && grep -q '^tracediff: garbage/dump_0: empty$' "$work/err" &&
  grep -q '^tracediff: garbage/dump_1.gz: compressed (gzip): uncompress it first$' "$work/err" &&
  grep -q '^tracediff: garbage/nccl_trace_rank_2: no trace, ' "$work/err"
check "in a directory of nothing that can be read, what was meant is named with the reason" $? "$(cat "$work/err")"
python3 -c 'import json, sys
files = [entry["file"] for entry in json.load(sys.stdin)["unreadable"]]
assert files == ["garbage/dump_0", "garbage/dump_1.gz", "garbage/nccl_trace_rank_2"], files' <"$work/out" 2>"$work/why"
check "--json has the files that cannot be read, and why" $? "$(cat "$work/out" "$work/why")"

mkdir "$work/others"
for i in 1 2 3 4 5 6 7 8 9; do echo "step $i" >"$work/others/job$i.log"; done
: >"$work/others/rank0.txt"
run others
[ "$status" = 2 ] && [ "$(wc -l <"$work/err")" = 3 ] && grep -q '^tracediff: others/rank0.txt: empty$' "$work/err" &&
  grep -q '^tracediff: others/job1.log: no trace, .*; nor in 8 more that are named like logs or dumps$' "$work/err" &&
  tail -n 1 "$work/err" | grep -q 'in others: all its files are of other kinds$'
check "files of which no more can be said than that they are none share a line" $? "$(cat "$work/err")"
(cd "$work/parent/b" && exec "$tracediff") >"$work/out" 2>"$work/err"
[ $? = 2 ] && [ "$(cat "$work/err")" = "tracediff: ./nccltrace does not exist; what can be read lies here: tracediff ." ]
check "without ./nccltrace the directory is named in which it was started, if it has something" $? "$(cat "$work/err")"
run --f others
[ "$status" = 2 ] && grep -q "^tracediff: ambiguous option '--f' " "$work/err"
check "an option that is cut too short is called ambiguous" $? "$(cat "$work/err")"

run --help
grep -q 'flight recorder' "$work/out" && grep -q "NCCL's own logs" "$work/out" && [ -z "$(tail -c 1 "$work/out")" ]
check "--help names all that is read, and ends with a newline" $? "$(cat "$work/out")"

run --help
[ "$(awk 'length > 100' "$work/out" | wc -l)" = 0 ]
check "--help fits into 100 columns" $? "$(cat "$work/out")"

head -c 5000 /dev/urandom >"$work/noise.trace"
: >"$work/none.trace"
run noise.trace none.trace missing.trace
[ "$status" = 2 ] && [ "$(grep -cE '^tracediff: (noise|none)\.trace: at byte [0-9]+: .' "$work/err")" = 2 ] &&
  [ "$(grep -c '^tracediff: missing\.trace: cannot be opened: .' "$work/err")" = 1 ]
check "each file that cannot be read gets one line" $? "$(cat "$work/err")"

run ""
[ "$status" = 2 ] && [ "$(cat "$work/err")" = "tracediff: the name of a file or directory is empty" ]
check "an empty name is called one" $? "$(cat "$work/err")"

printf 'x' >"$work/$(printf 'a\033[31mb.trace')"
run "$(printf 'a\033[31mb.trace')"
! grep -q "$(printf '\033')" "$work/err"
check "names are escaped" $? "$(cat -v "$work/err")"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
