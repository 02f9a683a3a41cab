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

check() { # NAME CONDITION-STATUS DETAIL
  if [ "$2" = 0 ]; then echo "ok $1"; else echo "FAIL $1: $3"; fi
}
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
[ "$status" = 2 ] && grep -q '^tracediff: no \*.trace in ./nccltrace: was the job started with LD_PRELOAD=' "$work/err"
check "without an argument it reads ./nccltrace" $? "$(cat "$work/err")"

mkdir "$work/empty"
run empty
[ "$status" = 2 ] && [ "$(wc -l <"$work/err")" = 1 ]
check "a directory without traces is status 2" $? "$(cat "$work/err")"

run --json empty
[ "$status" = 2 ] && python3 -c 'import json, sys; assert "no *.trace in empty" in json.load(sys.stdin)["error"]' <"$work/out"
check "--json says why there is no verdict" $? "$(cat "$work/out" "$work/err")"
run --json "$(printf 'no\302\233such')"
[ "$status" = 2 ] && grep -qF 'no\u009bsuch' "$work/out" && ! grep -q "$(printf '\302\233')" "$work/out"
check "JSON escapes C1 control characters" $? "$(cat -v "$work/out")"

run --help
[ "$(awk 'length > 100' "$work/out" | wc -l)" = 0 ]
check "--help fits into 100 columns" $? "$(cat "$work/out")"

head -c 5000 /dev/urandom >"$work/noise.trace"
: >"$work/none.trace"
run noise.trace none.trace missing.trace
[ "$status" = 2 ] && [ "$(grep -cE '^tracediff: (noise|none|missing)\.trace: at byte [0-9]+: .' "$work/err")" = 3 ]
check "each file that cannot be read gets one line" $? "$(cat "$work/err")"

printf 'x' >"$work/$(printf 'a\033[31mb.trace')"
run "$(printf 'a\033[31mb.trace')"
! grep -q "$(printf '\033')" "$work/err"
check "names are escaped" $? "$(cat -v "$work/err")"
