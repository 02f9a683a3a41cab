#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The documents are right: the scenario in CONTRIBUTING.md passes, the demo says what README.md quotes, and
# targets, commands, options and settings that they name exist.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
dir=$(mktemp -d)
NCCLTRACE_SHM=$(mktemp -d /dev/shm/nccltrace-test-XXXXXX)
export NCCLTRACE_SHM
trap 'rm -rf "$dir" "$NCCLTRACE_SHM"' EXIT
passed=0 failed=0
check() { # NAME STATUS DETAIL
  if [ "$2" = 0 ]; then
    echo "ok $1"
    passed=$((passed + 1))
  else
    echo "FAIL $1:"
    sed 's/^/    /' <<<"$3" | head -n 20
    failed=$((failed + 1))
  fi
}

# The indented block of a section: block FILE HEADING.
block() {
  awk -v heading="$2" '
    /^## / { inside = $0 == heading; next }
    inside && /^    / { print substr($0, 5); seen = 1; next }
    inside && seen { exit }' "$1"
}
# First cells of the table of a file whose first column is TITLE: cells FILE TITLE.
cells() {
  awk -v title="| $2 |" '
    index($0, title) == 1 { inside = 1; next }
    inside && !/^\|/ { inside = 0 }
    inside && !/^\| --- / { gsub(/\\\|/, "/"); split($0, cell, " *[|] *"); print cell[2] }' "$1"
}

block CONTRIBUTING.md '## Add a scenario' >"$dir/example.scn"
[ "$(head -n 1 "$dir/example.scn" | cut -d' ' -f1)" = title ]
check "CONTRIBUTING.md has an example of a scenario" $? "$(cat "$dir/example.scn")"
timeout 120 tests/run-scenario --build "$build" "$dir/example.scn" >"$dir/out" 2>&1
check "it passes as it stands" $? "$(cat "$dir/out")"

BUILD=$build timeout 120 examples/demo/run --simulator >"$dir/demo" 2>"$dir/err"
check "the demo runs" $? "$(tail -n 5 "$dir/demo" "$dir/err")"
[ ! -s "$dir/err" ]
check "without a complaint" $? "$(cat "$dir/err")"
# Of the report in README.md, which leaves some out, all lines are the demo's but for host, process and time.
plain() { sed -E 's/[0-9:.]+ UTC/TIME/; s/\([^ ,]+, pid [0-9]+,/(HOST, pid PID,/'; }
awk '/^```/ { inside = !inside; next } inside && /^missing \(certain\): / { quoted = 1 } inside && quoted { print } !inside { quoted = 0 }' README.md | plain >"$dir/quoted"
plain <"$dir/demo" | grep -vxFf - "$dir/quoted" >"$dir/differs"
[ "$(wc -l <"$dir/quoted")" -gt 8 ] && [ ! -s "$dir/differs" ]
check "README.md quotes its report" $? "$(cat "$dir/differs" "$dir/demo")"

make -qp BUILD="$build" 2>/dev/null | sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' | sort -u >"$dir/targets"
grep -ohE '(^ *|`)make [a-z][a-z-]*( |`|$)' README.md CONTRIBUTING.md docs/*.md | tr -d '`' |
  awk '{ print $2 }' | sort -u >"$dir/named"
[ "$(wc -l <"$dir/named")" -gt 4 ] && [ -z "$(comm -13 "$dir/targets" "$dir/named")" ]
check "every make target that is named exists" $? "$(comm -13 "$dir/targets" "$dir/named")"

# `nccltrace dump [PID…/--rank R]`: the program, the command, the options.
cells README.md command | tr -d '`' >"$dir/commands"
wrong=""
while read -r program rest; do
  subcommand=$(grep -oE '^[a-z]+' <<<"$rest" || true)
  help=$("$build/$program" $subcommand --help 2>&1) || wrong+="$program $subcommand"$'\n'
  for option in $(grep -oE -- '--[a-z-]+' <<<"$rest"); do
    grep -qE -- "(^|[ ,])$option\b" <<<"$help" || wrong+="$program $subcommand $option"$'\n'
  done
done <"$dir/commands"
[ "$(wc -l <"$dir/commands")" -ge 4 ] && [ -z "$wrong" ]
check "every command and option in README.md's table exists" $? "$wrong"

# Every variable that is read has a row, and every row is of one that is read.
cells README.md variable | tr -d '`' | sort >"$dir/documented"
grep -ohE '"NCCLTRACE(_[A-Z]+)?"' libnccltrace/preload/{settings,resolve}.c libnccltrace/trace/area.c |
  tr -d '"' | sort -u >"$dir/read"
cmp -s "$dir/documented" "$dir/read"
check "README.md's table has every setting" $? "$(diff "$dir/documented" "$dir/read")"
grep -oE '^\.B NCCLTRACE(_[A-Z]+)?$' docs/man/libnccltrace.7 | cut -c 4- | sort >"$dir/manual"
cmp -s "$dir/manual" "$dir/read"
check "the manual page of the library has every setting" $? "$(diff "$dir/manual" "$dir/read")"
# The defaults there: the log says what is used instead of nonsense.
if [ -e "$build/preload/library_cases" ]; then
  (cd "$dir" && NCCLTRACE_LOG=1 NCCLTRACE_SIZE=x NCCLTRACE_AREA=x NCCLTRACE_KEEP=x LD_LIBRARY_PATH="$build/sim" \
    LD_PRELOAD="$build/libnccltrace.so" timeout 30 "$build/preload/library_cases" results >/dev/null 2>"$dir/log")
  sed -nE 's/^nccltrace: (NCCLTRACE_[A-Z]+)=x .*: using (.*)/\1 \2/p' "$dir/log" | sort >"$dir/defaults"
  sed -nE 's/^\| `(NCCLTRACE_(SIZE|AREA|KEEP))` \| `([^`]*)`.*/\1 \3/p' README.md | sort >"$dir/said"
  [ -s "$dir/said" ] && cmp -s "$dir/said" "$dir/defaults"
  check "and its defaults are the real ones" $? "$(diff "$dir/said" "$dir/defaults")"
fi

# Every class has a section, and a row that leads to it.
sed -nE 's/^ *\[NT_CLASS_[A-Z0-9_]+\] = "([a-z0-9]+)",/\1/p' tools/analysis/finding.c | sort >"$dir/classes"
sed -nE 's/^## ([a-z0-9]+)$/\1/p' docs/DIAGNOSES.md | sort >"$dir/sections"
grep -E '^\| \[`' docs/DIAGNOSES.md | grep -oE '\[`[a-z0-9]+`\]\(#[a-z0-9]+\)' | sed -E 's/\[`(.*)`\]\(#\1\)/\1/' | sort >"$dir/rows"
echo consistent | sort -u - "$dir/classes" >"$dir/all"
[ "$(wc -l <"$dir/classes")" -gt 10 ] && cmp -s "$dir/all" "$dir/sections" && cmp -s "$dir/all" "$dir/rows"
check "docs/DIAGNOSES.md has a row and a section for every class" $? "$(diff "$dir/all" "$dir/sections"; diff "$dir/all" "$dir/rows")"

# Which versions of frames there are.
version_of() { sed -nE "s/^#define $2 ([0-9]+).*/\1/p" "libnccltrace/trace/$1"; } # HEADER NAME
calls=$(version_of codec.h NT_CODEC_VERSION) marks=$(version_of mark_codec.h NT_MARKS_VERSION) minor=$(version_of format.h NT_FILE_MINOR)
grep -qF "| 5 | \`CALLS\` | $calls |" docs/FORMAT.md && grep -qF "| 8 | \`GPU\` | $marks |" docs/FORMAT.md &&
  grep -qF "| \`MINOR\` | $minor;" docs/FORMAT.md
check "docs/FORMAT.md has the versions of frames and of the format" $? "calls $calls, marks $marks, minor $minor"

# Its summary takes its numbers from lines that are explained below it.
missing=$(awk -F' *[|] *' '/^## / { inside = $0 == "## In short" } inside && /^\|/ { print $5 }' docs/PERFORMANCE.md | grep -oE '`[a-z_0-9]+[A-Z]?[A-Za-z_0-9]*`' | tr -d '`' |
  while read -r line; do
    [ "$(grep -c -- "$line" docs/PERFORMANCE.md)" -ge 2 ] || echo "$line"
  done)
[ -z "$missing" ] && [ "$(grep -c '^| .* | `call_' docs/PERFORMANCE.md)" -ge 3 ]
check "docs/PERFORMANCE.md sums up lines that it explains" $? "$missing"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
