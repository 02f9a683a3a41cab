#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nccltrace without any job: wrong command lines, help, and files that are no traces.
set -u
cd "$(dirname "$0")/../.." || exit 2
nccltrace=$(realpath "${BUILD:-build}")/nccltrace
dir=$(mktemp -d)
trap 'rm -rf "$dir" "$NCCLTRACE_SHM"' EXIT
NCCLTRACE_SHM=$(mktemp -d /dev/shm/nccltrace-test-XXXXXX)
export NCCLTRACE_SHM
passed=0 failed=0

ok() {
  echo "ok $1"
  passed=$((passed + 1))
}
fail() {
  echo "FAIL $1: $2"
  failed=$((failed + 1))
}

# refuses NAME STATUS MESSAGE ARGUMENT...: exit status, one line on stderr that contains MESSAGE,
# nothing on stdout.
refuses() {
  local name=$1 wanted=$2 message=$3 status
  shift 3
  "$nccltrace" "$@" >"$dir/out" 2>"$dir/err" </dev/null
  status=$?
  if [ $status -ne "$wanted" ]; then
    fail "$name" "status $status instead of $wanted"
  elif [ "$(wc -l <"$dir/err")" -ne 1 ] || ! grep -qF -- "$message" "$dir/err"; then
    fail "$name" "stderr: $(cat "$dir/err")"
  elif [ -s "$dir/out" ]; then
    fail "$name" "stdout: $(head -n 1 "$dir/out")"
  else
    ok "$name"
  fi
}

# prints NAME TEXT ARGUMENT...: status 0, TEXT on stdout, nothing on stderr.
prints() {
  local name=$1 text=$2 status
  shift 2
  "$nccltrace" "$@" >"$dir/out" 2>"$dir/err" </dev/null
  status=$?
  if [ $status -ne 0 ] || [ -s "$dir/err" ] || ! grep -qF -- "$text" "$dir/out"; then
    fail "$name" "status $status, $(head -n 3 "$dir/out" "$dir/err")"
  else
    ok "$name"
  fi
}

prints "help lists the commands" "  dump     have running" --help
prints "version after a command" "nccltrace ls " ls --version
prints "help is a command too" "  show     print" help
prints "version" "nccltrace " --version
for command in ls dump show; do
  prints "$command --help" "usage: nccltrace $command " $command --help
  prints "help $command is $command --help" "usage: nccltrace $command " help $command
  refuses "$command refuses an unknown option" 2 "nccltrace $command: unknown" $command --nonsense
done
refuses "no command" 2 "nccltrace: no command given"
refuses "unknown command" 2 "no command is called 'frobnicate'" frobnicate
refuses "help of an unknown command" 2 "no command is called 'frobnicate'" help frobnicate
refuses "unknown option before the command" 2 "nccltrace: unknown option '-x'" -x ls
refuses "ls takes no operand" 2 "no argument is expected" ls 1
refuses "ls --color=blue" 2 "auto, always or never" ls --color=blue
refuses "dump of nothing" 2 "say which" dump
refuses "dump --dir of nothing" 1 "no such traced process" dump --dir "$dir"
refuses "ls --dir of nothing" 1 "no process on this node has its trace in $dir, and no trace file is there" ls --dir "$dir"
refuses "ls --dir of a directory that is not there" 1 "its trace in $dir/none: No such file" ls --dir "$dir/none"
refuses "dump --native --flush" 2 "does not go with --flush" dump --all --native --flush
refuses "dump --signal --native" 2 "--signal does not go with --native" dump --all --signal --native
refuses "dump --signal --flush" 2 "--signal does not go with --flush" dump --all --signal --flush
refuses "dump --all PID" 2 "does not go with a PID" dump --all $$
refuses "dump --all --rank" 2 "does not go with a PID, --rank or --dir" dump --all --rank 1
refuses "dump --all --dir" 2 "does not go with a PID, --rank or --dir" dump --all --dir "$dir"
refuses "dump --timeout=0" 2 "takes longer than no time" dump --all --timeout 0
refuses "dump --dir of a directory that is not there" 1 "no trace lies in that directory: No such file" dump --dir "$dir/none"
refuses "dump of no process" 1 "process 4194304: there is no such process" dump 4194304
for option in --comm=1 --tail=1 --stacks; do
  refuses "show --dump $option" 2 "--dump does not go with ${option%=1}" show --dump $option x
  refuses "show --header $option" 2 "--header does not go with ${option%=1}" show --header $option x
done
refuses "show --dump --header" 2 "--dump does not go with --header" show --dump --header x
refuses "show --full-stacks" 2 "it needs --dump" show --full-stacks x
refuses "show --dump 1" 1 "a dump is chosen by --dump=4194303" show --dump 4194303
refuses "show --dump=newest" 2 "the number of a dump, not 'newest'" show --dump=newest x
refuses "dump of a word" 2 "'rank0' is not a process id" dump rank0
refuses "dump --rank=1-" 2 "'1-' is not a list of ranks" dump --rank=1-
refuses "dump --timeout=soon" 2 "'soon' is not a number of seconds" dump --all --timeout=soon
refuses "dump --rank without argument" 2 "needs an argument" dump --rank
refuses "show of nothing" 2 "no FILE or PID given" show
refuses "show --tail=-1" 2 "--tail needs a number" show --tail=-1 x

refuses "dump --all without a job" 1 "no such traced process" dump --all
refuses "dump of a process that is not traced" 1 "process $$: it is not traced" dump $$
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  chmod 755 "$dir" && cp "$nccltrace" "$dir/nccltrace" && chmod 755 "$dir/nccltrace"
  setpriv --reuid=65534 --regid=65534 --clear-groups "$dir/nccltrace" dump $$ >"$dir/out" 2>"$dir/err" </dev/null
  if [ $? -eq 1 ] && [ "$(cat "$dir/err")" = "nccltrace: process $$: it belongs to $(id -un): run as that user" ]; then
    ok "dump of another user's process says whose it is"
  else
    fail "dump of another user's process says whose it is" "$(cat "$dir/err")"
  fi
else
  echo "skip another user's process: only root can become one"
fi
refuses "show of a process that is not traced" 1 "nccltrace: $$: no such file; process $$: " show $$
refuses "show of a missing file" 1 "nccltrace: $dir/none: " show "$dir/none"

printf 'this is no trace\n' >"$dir/text"
: >"$dir/empty"
head -c 100000 /dev/urandom >"$dir/noise"
{ printf 'NCCLAREA'; head -c 70000 /dev/zero; } >"$dir/hollow.area"
printf 'x' >"$dir/$(printf 'name\033[31m')"
for file in "$dir/text" "$dir/empty" "$dir/noise" "$dir/hollow.area"; do
  refuses "show of a bad file: ${file##*/}" 1 "nccltrace: $file: at byte " show "$file"
done
printf 'NCCL' | gzip >"$dir/rank0.trace.gz"
refuses "show of a compressed trace says to uncompress it" 1 "compressed (gzip): uncompress it first" show "$dir/rank0.trace.gz"
refuses "show of a directory" 1 "nccltrace: $dir: a directory: name a trace in it" show "$dir"
refuses "control characters of a name do not reach the terminal" 1 'name\x1b[31m' \
  show "$(printf '%s/name\033[31m' "$dir")"

"$nccltrace" show "$dir/text" "$dir/none" "$dir/empty" 2>"$dir/err" >"$dir/out"
if [ "$(wc -l <"$dir/err")" -eq 3 ]; then
  ok "each bad file is reported, one line each"
else
  fail "each bad file is reported, one line each" "$(cat "$dir/err")"
fi
if "$nccltrace" show --json "$dir/text" 2>/dev/null | python3 -c 'import json,sys; assert json.load(sys.stdin) == []'; then
  ok "JSON stays valid when nothing can be read"
else
  fail "JSON stays valid when nothing can be read" "$("$nccltrace" show --json "$dir/text" 2>&1)"
fi

# Left-over areas: silence while they may be being made, then one line for all of them.
unreadable=$NCCLTRACE_SHM/$$-1-2-3.area
head -c 20000 /dev/urandom >"$unreadable"
: >"$NCCLTRACE_SHM/1-1-2-3.area"
"$nccltrace" ls >"$dir/out" 2>"$dir/err"
if ! grep -q unreadable "$dir/out" && ! grep -q "$NCCLTRACE_SHM" "$dir/err"; then
  ok "ls says nothing of an area that is being made"
else
  fail "ls says nothing of an area that is being made" "$(cat "$dir/out" "$dir/err")"
fi
touch -d '1 hour ago' "$unreadable"
"$nccltrace" ls >"$dir/out" 2>"$dir/err"
if grep -q "^ *$$ .*unreadable" "$dir/out" && grep -q "^nccltrace: $unreadable: at byte" "$dir/err"; then
  ok "ls says which area it cannot read"
else
  fail "ls says which area it cannot read" "$(cat "$dir/out" "$dir/err")"
fi
touch -d '1 hour ago' "$NCCLTRACE_SHM/1-1-2-3.area"
"$nccltrace" ls >"$dir/out" 2>"$dir/err"
if [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q '; and 1 more that cannot be read$' "$dir/err"; then
  ok "ls says it in one line for all"
else
  fail "ls says it in one line for all" "$(cat "$dir/err")"
fi
if [ -e /dev/full ]; then
  if "$nccltrace" --help >/dev/full 2>/dev/null; then
    fail "a full disk is an error" "status 0"
  else
    ok "a full disk is an error"
  fi
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
