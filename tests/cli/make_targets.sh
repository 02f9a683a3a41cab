#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What make's targets and variables promise: that what installed documents name is installed, and where things are built.
set -u
cd "$(dirname "$0")/../.." || exit 2
BUILD=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
. tests/cli/checks.bash
unset MAKEFLAGS MAKELEVEL MFLAGS

# ---- install -----------------------------------------------------------------------------------------

make --no-print-directory -s -o all install BUILD="$BUILD" PREFIX=/opt/nccl DESTDIR="$work/root" >"$work/log" 2>&1
check "make install takes PREFIX and DESTDIR" $? "$(tail -n 5 "$work/log")"
[ "$(ls "$work/root")" = opt ] && [ "$(ls "$work/root/opt")" = nccl ]
check "nothing is installed outside of them" $? "$(find "$work/root" -maxdepth 2)"

prefix=$work/root/opt/nccl
docs=$prefix/share/doc/libnccltrace
# named FOLDER PATTERN FILE...: what these files name by the pattern and is not in the folder
named() {
  local folder=$1 pattern=$2 path
  shift 2
  grep -ohE "$pattern" "$@" | sed 's/[.,:]*$//' | sort -u | while read -r path; do
    compgen -G "$folder/$path" >/dev/null || echo "$path"
  done
}
mapfile -t texts < <(find "$docs" -name '*.md')
missing=$(
  named "$docs" '\b(docs|examples)/[A-Za-z0-9_./*-]*' "${texts[@]}" "$docs/examples/demo/run"
  named "$docs" '\b(LICENSE|(CONTRIBUTING|CHANGELOG|README)\.md)\b' "$docs/README.md"
  named "$docs/examples" '\b(demo|kubernetes|mpi|slurm)/[a-z_]+(\.[a-z]+)?\b' "$docs/examples/README.md"
)
[ ${#texts[@]} -ge 8 ] && [ -z "$missing" ]
check "what the installed documents name of docs and examples is installed" $? "${#texts[@]} documents: $missing"

missing=$(for text in "${texts[@]}"; do
  grep -oE '\]\([^)]+\)' "$text" | sed 's/^](//; s/)$//' | grep -v '^https\?:' | while read -r link; do
    file=${link%%#*}
    [ -z "$file" ] || [ -e "${text%/*}/$file" ] || echo "${text#"$docs/"}: $link"
    [ "$link" = "$file" ] || [ -n "$file" ] || # as a heading's words: "## Time" is #time
      sed -n 's/^##* //p' "$text" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9\n-' | grep -qxF -- "${link#\#}" || echo "${text#"$docs/"}: $link"
  done
done)
[ -z "$missing" ]
check "the installed documents' links lead somewhere" $? "$missing"

mans=("$prefix"/share/man/man?/*)
missing=$(
  sed -n 's/^\.BR *\(\(nccltrace\|tracediff\|libnccltrace\)[a-z-]*\) *(\([17]\)).*/man\3\/\1.\3/p' "${mans[@]}" | sort -u |
    while read -r page; do [ -s "$prefix/share/man/$page" ] || echo "$page"; done
  named "$prefix" '\bshare/doc/libnccltrace/docs(/[A-Za-z]+\.md)?' "${mans[@]}" <("$prefix/bin/tracediff" --help)
)
[ ${#mans[@]} -ge 7 ] && [ -z "$missing" ]
check "so is what the manual pages and tracediff --help refer to" $? "${#mans[@]} pages: $missing"

wrong=$(cd examples && find . -type f | while read -r file; do
  [ -x "$file" ] && want=755 || want=644
  [ "$(stat -c %a "$docs/examples/$file")" = $want ] || echo "$file"
done)
[ -z "$wrong" ] && [ "$("$prefix/bin/tracediff" --version)" = "$("$BUILD/tracediff" --version)" ]
check "installed programs and scripts can be executed" $? "$wrong"

"$docs/examples/demo/run" >"$work/log" 2>&1
[ $? = 1 ] && [ "$(cat "$work/log")" = "demo: runs in the source tree only: get that, and run make demo there" ]
check "the installed demo says where it runs" $? "$(cat "$work/log")"

# ---- where things are built -----------------------------------------------------------------------------

# The linker's options are split at commas: a directory's name must have none.
make -n SAN=address,undefined all >"$work/log" 2>&1 &&
  grep -q -- '-fsanitize=address,undefined .*-Wl,--version-script=build-address-undefined/nccltrace.map' "$work/log"
check "a build with several sanitizers has a directory without a comma in its name" $? "$(tail -n 2 "$work/log")"

# ---- demo ------------------------------------------------------------------------------------------------

first() { make -n demo BUILD="$1" 2>/dev/null | head -n 1 | bash 2>&1; }
first "$work/none" | grep -q '^demo: .* takes some minutes$' && [ -z "$(first "$BUILD" | grep minutes)" ]
check "make demo says first that it takes minutes where nothing is built" $? "$(first "$work/none")"

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
