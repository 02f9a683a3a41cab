#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nccltrace ls, dump and show on a job that hangs: examples/demo/job.c, four ranks, rank 2 one batch
# short. Then one rank is stopped and one killed. Also runs the examples of the man pages.
set -u
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
build=$(realpath "${BUILD:-build}")
PATH=$build:$PATH
ranks=4
dir=$(mktemp -d)
NCCLTRACE_SHM=$(mktemp -d /dev/shm/nccltrace-test-XXXXXX)
export NCCLTRACE_SHM PATH
pids=()
end_job() {
  [ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
  wait 2>/dev/null
  rm -rf "$dir" "$NCCLTRACE_SHM"
}
trap end_job EXIT
passed=0 failed=0

# check NAME COMMAND...: prints ok or FAIL with what is in $dir/out and $dir/err.
check() {
  local name=$1
  shift
  if "$@"; then
    echo "ok $name"
    passed=$((passed + 1))
  else
    echo "FAIL $name: $*"
    sed 's/^/    /' "$dir/out" "$dir/err" 2>/dev/null | head -n 20
    failed=$((failed + 1))
  fi
}
run() { "$@" >"$dir/out" 2>"$dir/err"; }
# The same; of the processes that are listed, only this test's and their children: others may be traced on this machine.
run_own() {
  run "$@"
  local status=$?
  awk -v mine=" ${pids[*]} " '{
    pid = $1 == "pid" ? $2 : $1; sub(/:$/, "", pid)
    parent = $0; if (!sub(/.*child of /, "", parent)) parent = ""; sub(/ .*/, "", parent)
    if (pid !~ /^[0-9]+$/ || index(mine, " " pid " ") || (parent != "" && index(mine, " " parent " "))) print
  }' "$dir/out" >"$dir/own" && mv "$dir/own" "$dir/out"
  return $status
}
count() { [ "$(grep -cE -- "$1" "$dir/out")" -eq "$2" ]; }
# Of what `ls --json` prints, this test's processes: others may be traced on this machine as well.
json() {
  python3 -c "
import json
d = json.load(open('$dir/out'))
mine = {${pids[*]/%/,}}
d = [p for p in d if 'pid' not in p or p['pid'] in mine or p.get('parent') in mine]
assert $1"
}
finish() {
  echo "$passed passed, $failed failed"
  [ $failed -eq 0 ]
  exit
}

for needed in nccltrace libnccltrace.so sim/libnccl.so.2; do
  check "$needed is built" test -e "$build/$needed"
done
[ $failed -eq 0 ] || finish
cudart=$(compgen -G "$build/sim/libcudart.so.1*" | head -n 1)
run "${CC:-gcc}" -std=gnu11 -D_GNU_SOURCE -O1 -Itests/sim/include -o "$dir/job" \
  examples/demo/job.c "$build/sim/libnccl.so.2" "$cudart" -Wl,--allow-shlib-undefined \
  -Wl,-rpath,"$build/sim"
check "the job compiles" test -x "$dir/job"
[ $failed -eq 0 ] || finish

cd "$dir" || exit 2
for ((rank = 0; rank < ranks; rank++)); do
  RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LD_PRELOAD=$build/libnccltrace.so \
    ./job $rank $ranks "$dir/id" >"$dir/rank$rank.log" 2>&1 </dev/null &
  pids+=($!)
done
LD_PRELOAD=$build/libnccltrace.so sleep 300 &
pids+=($!)
cat >"$dir/loader.py" <<'PY'
import subprocess
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # ends with its parent
child.wait()
PY
LD_PRELOAD=$build/libnccltrace.so python3 -u "$dir/loader.py" --rank 1 >"$dir/loader.log" 2>&1 </dev/null &
pids+=($!)
for ((tenth = 0; tenth < 600; tenth++)); do
  # The last call of every rank is its AllGather.
  run_own nccltrace ls
  ! count "(in|left) AllGather| cat .* child of ${pids[ranks + 1]} " $((ranks + 1)) || break
  sleep 0.1
done
cat rank*.log >"$dir/err"
check "the job hangs in its AllGather" count '(in|left) AllGather #[78] on comm 1' $ranks
[ $failed -eq 0 ] || finish

run_own nccltrace ls
check "ls succeeds" test $? -eq 0
for ((rank = 0; rank < ranks; rank++)); do
  check "ls shows rank $rank" count "^ *${pids[rank]} +$rank/$ranks +$(hostname) .* running .*rank$rank\.trace$" 1
done
check "ls shows the rank that is one call short" count "^ *${pids[2]} .* AllGather #7 on comm 1" 1
check "ls shows the others at the same call" count "AllGather #8 on comm 1" 3
check "ls shows a process without a communicator" count "^ *${pids[ranks]} .*no communicator yet" 1
check "ls names programs" count " job +[-0-9].* running " $ranks
check "and the script of an interpreter" count "^ *${pids[ranks + 1]} .* loader\.py +- +no communicator yet " 1
check "ls names the parent of a process without a communicator" \
  count " cat +- +no communicator yet, child of ${pids[ranks + 1]} " 1
check "ls says which processes the signal would kill" \
  count 'kill -[0-9]+ PID \(others have no handler: the signal would kill them\)$' 1
check "ls names the host wait behind the call" count "left AllGather #[78] on comm 1, in cudaStreamSynchronize " 4
run nccltrace ls --json
check "ls --json tells the same" json \
  "{p['pid']: p['rank'] for p in d if p['rank'] is not None and p['state'] == 'running'} == {${pids[0]}: 0, ${pids[1]}: 1, ${pids[2]}: 2, ${pids[3]}: 3}"
check "ls --json tells that somebody looks at the GPU" json "all(p['last_gpu_look'] for p in d if p['rank'] is not None)"
check "ls --json has all keys always" json "len({tuple(sorted(p)) for p in d}) == 1 and len(d) == 7"
check "ls --json has program and parent" json \
  "[(p['command'], p['parent']) for p in d if p['parent']] == [('cat', ${pids[ranks + 1]})]"
check "ls --json has the last call" json \
  "[p['last_call']['seq'] for p in d if p['rank'] is not None] == [8, 8, 7, 8]"

run_own nccltrace dump --all
check "dump --all succeeds" test $? -eq 0
check "dump names the file of each rank" count '^pid [0-9]+ rank [0-3]: dump #1: [0-9]+ threads .* written to .*/nccltrace/rank[0-3]\.trace' $ranks
if grep -q 'missing: .*NVML (' "$dir/out"; then # no driver here
  check "a reason that several share is given once" count '; missing: .*NVML \(as above\)' $((ranks - 1))
fi
run nccltrace dump --rank 1-2 --dir nccltrace --json
check "dump --rank picks" json "[p['rank'] for p in d] == [1, 2]"
check "dump --json tells the outcome" json "all(p['outcome'] == 'written' for p in d)"
run nccltrace dump "${pids[0]}"
check "dump PID" count "^pid ${pids[0]} rank 0: dump #[0-9]+: .* written to " 1
run nccltrace dump "${pids[0]}" $$
check "dump tells which process is not traced" grep -q "process $$: it is not traced" "$dir/err"

run nccltrace ls --dir nccltrace
check "ls --dir lists those whose trace lies there" count 'rank[0-3]\.trace$' $ranks
check "ls --dir lists nothing else" count '^ *[0-9]+ +' $ranks
check "ls says how a process is made to dump itself" count '^A dump of a process with a rank: nccltrace dump PID, or kill -[0-9]+ PID$' 1
run nccltrace ls --dir "$dir/elsewhere"
check "ls --dir of another directory finds nothing" grep -q "no process on this node has its trace in $dir/elsewhere: No such file or directory" "$dir/err"
mkdir "$dir/empty"
run env -u NCCLTRACE_SHM nccltrace ls --dir "$dir/empty"
check "of an empty directory it says that no trace is there, and nothing of others" \
  grep -qxF "nccltrace: no process on this node has its trace in $dir/empty, and no trace file is there: it is where NCCLTRACE_DIR of the job says" "$dir/err"
mkdir -p "$dir/old/nccltrace" && cp nccltrace/rank0.trace "$dir/old/nccltrace/copy.trace"
for in in old old/nccltrace; do
  run nccltrace ls --dir "$dir/$in"
  check "of trace files that nobody here writes it says what reads them ($in)" \
    grep -qF "nccltrace: no process on this node has its trace in $dir/$in; trace files are there, which tracediff $dir/old/nccltrace reads: " "$dir/err"
done
area=$(run nccltrace ls --json; python3 -c "import json; print([p['area'] for p in json.load(open('$dir/out')) if p['pid'] == ${pids[0]}][0])")
cp "$area" "$NCCLTRACE_SHM/other.area" && printf '\143' | dd of="$NCCLTRACE_SHM/other.area" bs=1 seek=8 conv=notrunc status=none
touch -d "1 hour ago" "$NCCLTRACE_SHM/other.area" # a young one may be in the making
run nccltrace ls
check "ls says of which release's area it cannot read, and what does" \
  grep -qF "$NCCLTRACE_SHM/other.area: at byte 8: an area of another release of libnccltrace: this program does not know its format, that release's nccltrace does" "$dir/err"
rm "$NCCLTRACE_SHM/other.area"
run nccltrace dump --dir "$dir"
check "dump --dir picks" count '^pid [0-9]+ rank [0-3]: dump #[0-9]+: .* written to ' $ranks

# The job was told of its directory of areas, the tool was not.
run_own env -u NCCLTRACE_SHM nccltrace ls
check "ls finds an area through the mappings of its process" count "^ *(${pids[0]}|${pids[3]}) +[03]/$ranks .* AllGather #8 on comm 1" 2
check "a process is listed once" count "^ *${pids[0]} " 1
run env -u NCCLTRACE_SHM nccltrace dump "${pids[0]}"
check "dump PID finds it too" count "^pid ${pids[0]} rank 0: dump #[0-9]+: .* written to " 1
run env -u NCCLTRACE_SHM nccltrace show "${pids[0]}"
check "show PID finds it too" count ' AllReduce ' 7

run nccltrace show nccltrace/rank0.trace
aligned() { awk 'NR == 1 { at = index($0, "COMM") } substr($0, at - 1, 1) != " " || substr($0, at, 1) == " " { exit 1 }' "$dir/out"; }
check "show keeps its columns aligned behind long names" aligned
check "show prints the host wait" count ' cudaStreamSynchronize - .* in call ' 1
check "show tells how far the GPU came" count ' AllGather .* (reached|enqueued)$' 1
check "show prints every all-reduce" count ' AllReduce +comm 1 +[1-7] +1 Mi f32 +sum ' 7
check "show prints the creation" count ' CommInitRank +comm 1 ' 1
check "show reports no damage" test -z "$(grep -vE ': [0-9]+ dumps of the process, ' "$dir/err")"
run nccltrace show "${pids[2]}"
check "show PID reads the process" count ' AllReduce ' 6
cp "$dir/out" "$dir/by_pid"
run nccltrace show nccltrace/rank2.trace
check "file and process give the same records" cmp -s "$dir/out" "$dir/by_pid"
run nccltrace show --tail 2 --comm 1 nccltrace/rank0.trace
check "--tail" test "$(wc -l <"$dir/out")" -eq 3
run nccltrace show --comm nobody nccltrace/rank0.trace
check "--comm of a name that is not there is said" grep -q 'no call on that communicator' "$dir/err"
run nccltrace show --json nccltrace/rank0.trace nccltrace/rank2.trace
check "--json" json "[sum(c['function'] == 'AllReduce' for c in t['calls']) for t in d] == [7, 6]"
check "--json has equal ids on all ranks" json \
  "len({t['header']['communicators'][0]['id'] for t in d}) == 1"
run nccltrace show --header --json nccltrace/rank0.trace
check "--header --json has the streams" json "[s['launches'] for s in d[0]['header']['streams']] == [8]"
run nccltrace show --header nccltrace/rank1.trace
check "--header has the streams" count '^STREAM +DEVICE +LAUNCHES ' 1
check "--header names process and communicator" count "^(pid +${pids[1]}|rank +1 of 4|  *1  -  *1 of 4 .*)\$" 3
check "--header tells that nothing is lost" count '^calls lost +0$' 1

# example PAGE: runs each "$ ..." of a man page; the line that follows it there must come out, numbers,
# names and blanks aside.
normal() {
  sed -E 's,/[^ ]*/,/,g; s/[0-9][0-9.]*/N/g; s/\b(N B|N [KM]iB)\b/SIZE/g; s/(no|N) (with )?(Python|native) stacks?/STACKS/g
    s/(\(|ago )N [^)]*\)/(SOME)/; s/; missing: .*//; s/taken in .*//; s/ +/ /g; s/^ //'
}
example() {
  local page=$root/docs/man/$1.1 command wanted n=0
  while read -r command && IFS= read -r wanted; do
    n=$((n + 1))
    run bash -c "$command" || return 1
    wanted=$(normal <<<"$wanted")
    normal <"$dir/out" | grep -qxF -- "$wanted" || { echo "wanted: $wanted" >>"$dir/err"; return 1; }
  done < <(sed 's/\\-/-/g' "$page" | grep -A1 '^\$ ' | grep -v '^--$' | sed 's/^\$ //')
  [ $n -gt 0 ]
}
for page in nccltrace nccltrace-ls nccltrace-dump nccltrace-show; do
  check "the example of $page(1)" example $page
done

# A second job: the first rank of two, which waits for the other to come.
NCCLTRACE_DIR=$dir/second RANK=0 WORLD_SIZE=2 LD_PRELOAD=$build/libnccltrace.so \
  ./job 0 2 "$dir/id2" >"$dir/second.log" 2>&1 </dev/null &
pids+=($!)
for ((tenth = 0; tenth < 100; tenth++)); do
  run_own nccltrace ls
  ! count 'in CommInitRank.* /[^ ]*/second/rank0\.trace$' 1 || break
  sleep 0.1
done
check "ls shows jobs apart" test "$(grep -E "^($dir/.*|no trace):$" "$dir/out")" = \
  "$(printf '%s\n' "$dir/nccltrace:" "$dir/second:" "no trace:")"
run_own nccltrace dump --all
check "dump shows jobs apart" test "$(grep "^$dir/.*:$" "$dir/out")" = \
  "$(printf '%s\n' "$dir/nccltrace:" "$dir/second:")"
run nccltrace dump --rank 0
check "dump --rank of several jobs is wrong usage" test $? -eq 2
check "which names their directories" grep -qE "^nccltrace: several jobs .* --dir=$dir/nccltrace --dir=$dir/second( |\$)" "$dir/err"
run nccltrace dump --rank 0 "${pids[0]}"
check "dump --rank PID takes both" count "^pid ${pids[0]} rank 0: dump " 1
run nccltrace dump --rank 1 "${pids[0]}"
check "and nothing that is not both" test $?/"$(cat "$dir/err")" = "1/nccltrace: none of these processes has that rank or directory"
run nccltrace dump "${pids[ranks]}"
check "dump of a process without a communicator says what can be done" \
  grep -q "^nccltrace: process ${pids[ranks]}: it has made no communicator, .* py-spy dump --pid ${pids[ranks]}, gdb " "$dir/err"
run nccltrace dump --rank 0 --dir second
check "dump --rank --dir takes both" test "$(grep -c '/second/rank0\.trace' "$dir/out")/$(wc -l <"$dir/out")" = 1/1

kill -STOP "${pids[1]}"
for ((tenth = 0; tenth < 50; tenth++)); do
  run_own nccltrace ls
  ! count "^ *${pids[1]} .* stopped " 1 || break
  sleep 0.1
done
check "ls tells a stopped process" count "^ *${pids[1]} .* stopped .*AllGather #8" 1
SECONDS=0
run nccltrace dump --timeout 20 "${pids[1]}"
check "dump of a stopped process alone fails: there is no dump" test $? -eq 1
check "and says that its area is read, with the traces of its job" count "rank 1: stopped: .*read as it is: tracediff $dir/nccltrace\$" 1
run nccltrace dump --flush "${pids[1]}"
check "its trace is complete all the same" test $? -eq 0
check "and waits for nothing" test $SECONDS -lt 10
run nccltrace show --comm 1 "${pids[1]}"
check "show reads a stopped process" count ' AllReduce ' 7

kill -KILL "${pids[3]}"
wait "${pids[3]}" 2>/dev/null
for ((tenth = 0; tenth < 50; tenth++)); do
  run_own nccltrace ls
  ! count "^ *${pids[3]} .* vanished " 1 || break
  sleep 0.1
done
check "ls tells a killed process" count "^ *${pids[3]} +3/4 .* vanished .*AllGather #8" 1
run nccltrace dump --rank 3 --dir nccltrace
check "dump of a killed process alone fails: there is no dump" test $? -eq 1
check "and says what reads its area: the traces of its job" count "rank 3: vanished: .*left-over area is read as it is: tracediff $dir/nccltrace\$" 1
run nccltrace dump "${pids[0]}" "${pids[3]}"
check "one dump of those asked for is enough" test $? -eq 0
run nccltrace show nccltrace/rank3.trace
check "show reads what a killed process left" count ' AllReduce ' 7

finish
