#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# nccltrace digest on traces of a large job: size, verdict, what is said when calls are missing, and its command line.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
root=$PWD
work=$(mktemp -d)
NCCLTRACE_SHM=$(mktemp -d /dev/shm/nccltrace-test-XXXXXX)
export NCCLTRACE_SHM
trap 'rm -rf "$work" "$NCCLTRACE_SHM"' EXIT
passed=0 failed=0
. tests/cli/checks.bash

digest() { timeout 120 "$build/nccltrace" digest "$@" >"$work/out" 2>"$work/err"; }
verdict() { timeout 60 "$build/tracediff" "$@" >"$work/report" 2>&1; }
both() { tail -n 12 "$work/out" "$work/err" "$work/report" 2>/dev/null; }

# 16 ranks in tensor, pipeline and data parallelism, of which one leaves out a call. A third of the calls do not fit.
traces=$work/job
mkdir "$traces"
seq=$("$build/bench/gen_job" "$traces" 4 2 2 1 40000 skip=5)
digest -o "$work/digests" "$traces"
status=$?
[ $status = 0 ] && [ ! -s "$work/err" ] && [ "$(find "$work/digests" -type f -name '*.trace' | wc -l)" = 16 ] &&
  [ "$(find "$work/digests" -type f | wc -l)" = 16 ] && [ "$(grep -c ' calls, [0-9]* bytes$' "$work/out")" = 16 ]
check "each rank has one digest, and a line that says what it holds" $? "status $status, $(both)"
[ -z "$(find "$work/digests" -name '*.trace' -size +32k)" ] && awk '{ if ($2 >= $4 || $2 < 1000) bad = 1 } END { exit bad }' "$work/out"
check "of at most 32 KiB, with thousands of calls of a training job" $? "$(both)"

verdict "$traces"
line=$(head -n 1 "$work/report")
verdict "$work/digests"
[ "$line" = "$(head -n 1 "$work/report")" ] && grep -q "rank 5 never called AllReduce $seq on tp" "$work/report" &&
  grep -q 'note: [0-9]* earlier calls are not in the digests: the traces have them' "$work/report"
check "tracediff says of digests what it says of the traces" $? "$line, $(both)"

digest -q -o "$work/digests" "$traces"
[ $? = 0 ] && [ ! -s "$work/out" ] && [ "$(find "$work/digests" -type f | wc -l)" = 16 ]
check "a second digest of a process takes the place of the first" $? "$(both)"

digest -q -n 40 -o "$work/few" "$traces" && verdict "$work/few"
grep -q '^[a-z]* (undecided): ' "$work/report" && grep -qE 'the digests of ranks .* have too few calls$' "$work/report" &&
  grep -qE 'the digests? of rank.* reach(es)? back to #[0-9]+' "$work/report" && grep -q 'collect the traces themselves of ranks' "$work/report"
check "what is too short decides nothing: what to collect is said" $? "$(both)"

digest -q -s 8K -o "$work/small" "$traces" && [ -z "$(find "$work/small" -name '*.trace' -size +8k)" ] &&
  digest -q -s 1M -o "$work/large" "$traces" && verdict "$work/large" && false
[ "$line" = "$(head -n 1 "$work/report")" ] && ! grep -q 'not in the digests' "$work/report"
check "--size sets how much of a trace is in its digest" $? "$(both)"

digest -q -o "$work/again" "$work/digests" && verdict "$work/again" && false
[ "$line" = "$(head -n 1 "$work/report")" ]
check "a digest of a digest is one" $? "$(both)"

rank3=$(echo "$work"/digests/rank3.*)
"$build/nccltrace" show --header "$rank3" >"$work/out" 2>&1 && grep -q '^digest made  *20' "$work/out" && grep -q '^calls left out  *[1-9]' "$work/out" &&
  "$build/nccltrace" show -n 3 "$rank3" >"$work/out" 2>"$work/err" && grep -q 'older calls are in the trace that this digest is of' "$work/err"
check "nccltrace show reads it, and says that it is one" $? "$(both)"

# ---- what cannot be done ---------------------------------------------------------------------------------

digest -o "$traces" "$traces"
[ $? = 2 ] && grep -q 'the traces lie in' "$work/err" && [ "$(find "$traces" -type f | wc -l)" = 16 ]
check "digests do not go among the traces that they are made from" $? "$(both)"

mkdir "$work/mixed" && cp "$traces"/rank[01].trace "$work/mixed" && head -c 5000 /dev/zero >"$work/mixed/rank2.trace"
digest -q -o "$work/of-mixed" "$work/mixed"
[ $? = 1 ] && grep -q 'rank2.trace: at byte 0: ' "$work/err" && [ "$(find "$work/of-mixed" -type f | wc -l)" = 2 ]
check "a file that is no trace is named, and the others are cut" $? "$(both)"

digest -o "$work/none" "$work/there-is-none"
[ $? = 1 ] && grep -q 'there-is-none' "$work/err"
check "so is what does not exist" $? "$(both)"
(cd "$work" && digest -o "$work/none" 4711)
[ $? = 1 ] && grep -qF 'nccltrace: 4711: no such file: trace files and directories are named here, not processes' "$work/err"
check "and that a process is not named" $? "$(both)"
digest -o "$work/none"
[ $? = 1 ] && grep -q 'no traced process of this user was found on this node' "$work/err"
check "a node without traces is told" $? "$(both)"
mkdir "$work/empty"
digest -o "$work/none" "$work/empty"
[ $? = 1 ] && grep -qF "$work/empty: no trace was found there" "$work/err"
check "so is a directory without any, by its name" $? "$(both)"
digest -o "$work/none" "$work/mixed/rank2.trace"
[ $? = 1 ] && grep -q 'rank2.trace: at byte 0: ' "$work/err" && [ ! -e "$work/none" ]
check "where nothing is cut no directory is made" $? "$(both)"
: >"$work/file"
digest -o "$work/file" "$traces"
[ $? = 1 ] && grep -q "$work/file: the directory for the digests cannot be made: Not a directory" "$work/err"
check "an output that is no directory is told" $? "$(both)"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  mkdir -m 755 "$work/roots" && chmod 755 "$work" && install -m 755 "$build/nccltrace" "$work" && install -m 644 "$traces/rank1.trace" "$work"
  (cd "$work/roots" && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$work/nccltrace" digest ../rank1.trace) >"$work/out" 2>"$work/err"
  [ $? = 1 ] && [ "$(cat "$work/err")" = "nccltrace digest: nccltrace-digests: the directory for the digests cannot be made: Permission denied (-o names another)" ]
  check "so is a directory that may not be made" $? "$(both)"
else
  echo "skip a directory that may not be made: only root can become another user"
fi
wrong=""
for option in "-s 1K" "-s x" "-s 99999G" "-n x" "-n 0" "--nonsense"; do
  # shellcheck disable=SC2086
  digest $option -o "$work/none" "$traces"
  [ $? = 2 ] || wrong+="$option "
done
[ -z "$wrong" ]
check "wrong options are refused" $? "$wrong"

# ---- a pod: kubectl stands for its own place, all else is as examples/README.md has it --------------------

mkdir "$work/bin" "$work/pod"
printf '#!/bin/sh\nshift 3\nexec "$@"\n' >"$work/bin/kubectl"
chmod +x "$work/bin/kubectl"
ln -s "$build/nccltrace" "$work/bin/nccltrace"
mkdir "$work/pod/digests"
command=$(sed -n '/^```bash$/,/^```$/p' "$root/examples/README.md" | grep '^kubectl ' | sed "s,-o /tmp/digests,-o $work/pod/made $traces,; s,/tmp/digests,$work/pod/made,")
(cd "$work/pod" && PATH=$work/bin:$PATH timeout 60 bash -c "$command") >"$work/out" 2>"$work/err"
[ -n "$command" ] && verdict "$work/pod/digests"
[ "$line" = "$(head -n 1 "$work/report")" ]
check "the digests of a pod come out of it as examples/README.md says" $? "$command: $(both)"

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
