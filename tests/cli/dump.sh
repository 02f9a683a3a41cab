#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Dumps from asking to reading: two ranks of a Python program, rank 1 blocked in its data loader, rank 0 waiting for it.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
dir=$(mktemp -d)
NCCLTRACE_SHM=$(mktemp -d /dev/shm/nccltrace-test-XXXXXX)
export NCCLTRACE_SHM PATH=$build:$PATH
pids=() asking=()
end_job() {
  [ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
  wait 2>/dev/null
  rm -rf "$dir" "$NCCLTRACE_SHM"
}
trap end_job EXIT
passed=0 failed=0
check() {
  local name=$1
  shift
  if "$@"; then
    echo "ok $name"
    passed=$((passed + 1))
  else
    echo "FAIL $name: $*"
    sed 's/^/    /' "$dir/out" "$dir/err" 2>/dev/null | head -n 30
    failed=$((failed + 1))
  fi
}
run() { timeout 60 "$@" >"$dir/out" 2>"$dir/err" </dev/null; }
count() { [ "$(grep -cE -- "$1" "$dir/out")" -eq "$2" ]; }
says() { grep -qE -- "$1" "$dir/out" "$dir/err"; }
json() { python3 -c "import json, sys; d = json.load(open('$dir/out')); assert $1"; }
finish() {
  echo "$passed passed, $failed failed"
  [ $failed -eq 0 ]
  exit
}
if [ -n "${SAN:-}" ]; then
  echo "skip dumps: built with sanitizers"
  exit 0
fi

cat >"$dir/job.py" <<'PY'
import ctypes, os, select, signal, sys, threading, time

process = ctypes.CDLL(None)
ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
runtime = ctypes.CDLL("libcudart.so.13", mode=ctypes.RTLD_GLOBAL)
rank, ranks, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def load_batch():
    if "gil" in sys.argv:
        ctypes.PyDLL(None).pause()
    return os.read(pipe[0], 1)


def waits_in(name, *arguments):
    getattr(ctypes.CDLL(None), name)(*arguments)
    interrupted.append(name)


def waits_everywhere():
    hour, poll = (ctypes.c_long * 2)(3600, 0), select.epoll()
    semaphore, room = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    until = (ctypes.c_long * 2)(int(time.time()) + 3600, 0)
    for waits in (("poll", None, 0, -1), ("select", 0, None, None, None, None), ("epoll_wait", poll.fileno(), room, 1, -1),
                  ("nanosleep", hour, None), ("sem_timedwait", semaphore, until)):
        threading.Thread(target=waits_in, args=waits, daemon=True).start()
    with open(path + ".go") as go:
        go.read()
    print("interrupted:", *interrupted, flush=True)


interrupted = []


def step():
    process.ncclAllReduce(buffer, buffer, ctypes.c_size_t(16), 7, 0, comm, None)
    process.cudaStreamSynchronize(None)


unique, comm, buffer, pipe = UniqueId(), ctypes.c_void_p(), ctypes.c_void_p(), os.pipe()
if rank == 0:
    process.ncclGetUniqueId(ctypes.byref(unique))
    with open(path + ".new", "wb") as file:
        file.write(bytes(unique))
    os.rename(path + ".new", path)
while not os.path.exists(path):
    time.sleep(0.01)
with open(path, "rb") as file:
    unique = UniqueId.from_buffer_copy(file.read())
process.ncclCommInitRank(ctypes.byref(comm), ranks, unique, rank)
runtime.cudaMalloc(ctypes.byref(buffer), 1024)
never = threading.Event()
for _ in range(5):
    threading.Thread(target=never.wait, daemon=True).start()
if "deaf" in sys.argv:
    for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
        signal.signal(number, signal.SIG_DFL)
step()
if "waits" in sys.argv:
    waits_everywhere()
elif rank == 1 or ranks == 1:
    load_batch()
step()
PY
start() { # NAME RANK RANKS [WORD] [VARIABLE=VALUE...]
  local name=$1 rank=$2 ranks=$3 word=${4:-}
  shift $(($# < 4 ? $# : 4))
  env RANK="$rank" WORLD_SIZE="$ranks" NCCLTRACE_DIR="$dir/$name" LD_LIBRARY_PATH="$build/sim" \
    LD_PRELOAD="$build/libnccltrace.so" "$@" python3 "$dir/job.py" "$rank" "$ranks" "$dir/$name.id" $word \
    >"$dir/$name$rank.log" 2>&1 </dev/null &
  pids+=($!)
}
# The last call of the process stands in `ls` as PATTERN.
await() { # PID PATTERN
  local tenth
  for ((tenth = 0; tenth < 300; tenth++)); do
    run nccltrace ls
    ! says "^ *$1 .*$2" || return 0
    sleep 0.1
  done
  return 1
}
cat >"$dir/host.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char internal[128]; } id;
int ncclGetUniqueId(id *), ncclCommInitRank(void **, int, id, int);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int cudaMalloc(void **, size_t), cudaStreamSynchronize(void *), cudaLaunchHostFunc(void *, void (*)(void *), void *);

int other(int);
static FILE *input;
static int stuck[2];

__attribute__((noinline)) static int read_batch(void) {
  char line[64];
  char *got = fgets(line, sizeof line, input); /* nothing ever comes */
  return got != NULL;
}

__attribute__((noinline)) static void hold(void *unused) {
  char byte;
  (void)unused;
  while (read(stuck[0], &byte, 1) < 0)
    continue;
}

__attribute__((noinline)) static int step(void *buffer, void *comm) {
  ncclAllReduce(buffer, buffer, 16, 7, 0, comm, NULL);
  int status = cudaStreamSynchronize(NULL); /* the host wait */
  return status + 1;
}

__attribute__((noinline)) static int run(int argc, char **argv) {
  const int rank = atoi(argv[1]);
  const char *path = argv[2], *fault = argc > 3 ? argv[3] : "";
  char name[4096];
  int pipes[2];
  id unique;
  void *comm, *buffer;
  snprintf(name, sizeof name, "%s.new", path);
  if (rank == 0) {
    FILE *out = fopen(name, "wb");
    ncclGetUniqueId(&unique);
    if (fwrite(&unique, sizeof unique, 1, out) != 1 || fclose(out) || rename(name, path))
      return 1;
  }
  while (access(path, R_OK))
    usleep(10000);
  FILE *in = fopen(path, "rb");
  if (fread(&unique, sizeof unique, 1, in) != 1 || pipe(pipes) || pipe(stuck))
    return 1;
  input = fdopen(pipes[0], "r");
  ncclCommInitRank(&comm, 2, unique, rank);
  cudaMalloc(&buffer, 1024);
  step(buffer, comm);
  if (rank == 1 && !strcmp(fault, "gpu"))
    cudaLaunchHostFunc(NULL, hold, NULL);
  while (!strcmp(fault, "moves")) {
    step(buffer, comm);
    usleep(20000);
  }
  if (strcmp(fault, "outside") == 0 || (rank == 1 && !*fault))
    return read_batch() + 1; /* not the last thing: run stays on the stack */
  return other(step(buffer, comm)) + 1;
}

int main(int argc, char **argv) { return run(argc, argv); }
C
start job 0 2
start job 1 2
check "rank 0 waits for the GPU" await "${pids[0]}" 'AllReduce #2 .*, in cudaStreamSynchronize'
check "rank 1 is one call short" await "${pids[1]}" 'AllReduce #1 '
[ $failed -eq 0 ] || finish

run nccltrace dump --all
check "dump of two ranks succeeds" test $? -eq 0
check "each tells its dump, its threads and its file" \
  count '^pid [0-9]+ rank [01]: dump #1: [0-9]+ threads \(.*\) written to .*/job/rank[01]\.trace' 2
python=yes
says 'no Python stacks' && python=
run nccltrace show job/rank1.trace "$dir/job/rank1.trace"
check "show without options tells that there are dumps" says 'rank1.trace: 1 dump of the process, the newest of .* \(--dump shows it\)'

run nccltrace show --dump "$dir/job/rank1.trace"
check "show --dump tells which dump, of when and whose wish" \
  count '^dump 1 of 20[0-9T:.-]+Z, asked for by nccltrace dump: [0-9]+ threads ' 1
check "it tells what is missing" count '^missing: ' 1
check "it says what the main thread waits for" \
  count "^thread ${pids[1]} python3?[0-9.]*, the main thread: sleeping in read\(fd [0-9]+, 0x[0-9a-f]+, 1\)" 1
check "threads that stand alike are told once" count '^  and( [0-9]+,?)+: [56] threads like this$' 1
line_at() { grep -nE -m 1 -- "$1" "$dir/out" | cut -d: -f1; }
check "the main thread comes first, the library's own last and in one line" \
  test "$(grep -E '^(thread|[0-9]+ threads of)' "$dir/out" | sed -n '1p;$p' | grep -cE ', the main thread|^[0-9]+ threads of libnccltrace: nccltrace [0-9]+')" = 2
check "threads come before facts" test "$(line_at '^[0-9]+ threads of libnccltrace')" -lt "$(line_at '^process$')"
check "sizes are told in units too" says '^  rss = [0-9]+ \([0-9.]+ [KMG]iB\)$'
check "the number of threads is told once" count '^ *threads = [0-9]+$' 0
check "lines of the kernel's log are at the end" \
  test -z "$(sed -n '/^kernel log/,$p' "$dir/out" | sed 1d |
    grep -vE '^$|^  [0-9]+ s ago: .{1,125}$|^[0-9]+ lines? of the kernel.s log (is|are) left out: ')"
cp "$dir/out" "$dir/file"
run nccltrace show --dump=1 "${pids[1]}"
check "file and process give the same dump" cmp -s "$dir/out" "$dir/file"
run nccltrace show --dump --full-stacks "${pids[1]}"
check "--full-stacks tells of every thread, also of the library's" says '^thread .*, of libnccltrace'
check "--full-stacks folds none" \
  test "$(grep -c '^thread' "$dir/out")" -gt $(($(grep -c '^thread' "$dir/file") + 3))
run nccltrace show --dump --json "${pids[1]}"
check "--dump --json tells the same" json "d[0]['dump']['number'] == 1 and d[0]['dump']['reason'] == 'request' and \
  [t['system_call']['name'] for t in d[0]['dump']['threads'] if t['main']] == ['read'] and \
  sum(t['ours'] for t in d[0]['dump']['threads']) >= 2"
run nccltrace show --dump=7 "${pids[1]}"
check "a dump that is not there fails" test $? -eq 1
check "and it is said which are" says 'has no dump 7, but those from 1 to 1'
run nccltrace show --dump=0 "${pids[1]}"
check "--dump=0 is wrong usage" test $? -eq 2

run nccltrace dump --flush --rank 1
check "--flush writes without a dump" count "^pid ${pids[1]} rank 1: written to .*/rank1\.trace \(" 1
run nccltrace show --dump=2 "${pids[1]}"
check "and there is none" says 'no dump 2'
run nccltrace dump --signal --rank 1 --json
check "--signal asks for a dump" json "d[0]['outcome'] == 'written' and d[0]['dump']['number'] == 2"
check "--json counts threads and stacks" json "d[0]['dump']['threads'] >= 8 and d[0]['dump']['unfinished'] == []"
run nccltrace show --dump "${pids[1]}"
check "which says so" count '^dump 2 of .*, asked for by a signal: ' 1

if [ -n "$python" ]; then
  line=$(grep -n 'return os.read' "$dir/job.py" | cut -d: -f1)
  check "the main thread's Python stack is there" count "^    $dir/job.py:$line load_batch\$" 1
  place="in host code in load_batch\(\) at job.py:$line \(host code since [0-9:.]+ UTC"
  run nccltrace show --dump "${pids[0]}"
  line=$(grep -n 'cudaStreamSynchronize' "$dir/job.py" | cut -d: -f1)
  check "and that of a thread blocked in a call that is traced" count "^    $dir/job.py:$line step\$" 1
else
  echo "skip Python stacks in dumps: the library takes none"
  place="in host code since [0-9:.]+ UTC"
fi
run nccltrace dump "${pids[1]}" # the one by a signal has woken it
run tracediff "$dir/job"
check "tracediff says where the culprit is" \
  count "^  rank 1[ :].*, now $place: main thread sleeping in read\(fd [0-9]+\)(;| \() ?from the dump of [0-9:.]+ UTC\)" 1
check "and where all its threads are told of" count "^  all its threads: nccltrace show --dump ${pids[1]} on " 1
check "and blames whom it blamed" count '^missing \(certain\): rank 1 never called AllReduce #2 ' 1

run nccltrace dump --native --rank 0
status=$?
if says 'missing: .*native \('; then
  check "--native without native stacks fails" test $status -eq 1
  check "and names the package" says 'native \(libunwind\.so\.8 cannot be opened: install libunwind8\)'
else
  check "--native succeeds" test $status -eq 0
  check "and counts the stacks" count '^pid .*: dump #[0-9]+: [0-9]+ threads \(.*, [0-9]+ with native stacks\) written to ' 1
fi
run nccltrace show --dump "${pids[0]}"
if says ', no native stacks\)'; then
  echo "skip native stacks: $(sed -n 's/^missing: /missing: /p' "$dir/out")"
else
  check "--native has native stacks" says '^ +[^ ]+\+0x[0-9a-f]+$'
fi

# Many ask at the same time, for dumps, native ones and flushes: each is told what is true of its own request.
cat >"$dir/truth.py" <<'PY'
import json, sys

numbers = set()
for path in sys.argv[1:]:
    answer = json.load(open(path))[0]
    text, dump = answer["text"], answer["dump"]
    if path.endswith("flush"):
        assert answer["outcome"] == "written" and dump is None, text
    elif dump is None:
        assert text.startswith("no dump: dump ") and " still waits for: " in text, text
    else:
        assert dump["unfinished"] == [] or "still waiting for: " in text, text
        assert dump["threads"] >= 8, text
        if path.endswith("native"):
            assert dump["native_stacks"] or any("native" in source for source in dump["missing"]), text
        numbers.add(dump["number"])
assert len(numbers) >= 6, numbers
print(sorted(numbers))
PY
mkdir "$dir/many"
kinds=('' '' --native '' --flush '' --native '')
for ((round = 0; round < 6; round++)); do
  for ((i = 0; i < ${#kinds[@]}; i++)); do
    timeout 60 nccltrace dump --timeout 30 --json ${kinds[i]} "${pids[0]}" >"$dir/many/$round.$i${kinds[i]}" 2>&1 &
    asking[i]=$!
  done
  wait "${asking[@]}"
done
run python3 "$dir/truth.py" "$dir"/many/*
check "each of eight who ask at once is told the truth" test $? -eq 0

# ---- programs in C: their stacks are native ones, and dumps have them --------------------------------
native='' c0='' c1=''
echo 'int other(int x) { return 3 * x; }' >"$dir/other.c" # two units: _start lies between what is of the second, and behind a line without length
"${CC:-cc}" -O2 -g -o "$dir/host" "$dir/other.c" "$dir/host.c" -L"$build/sim" -l:libnccl.so.2 -l:libcudart.so.13 \
  -Wl,-rpath-link,"$build/sim" 2>"$dir/err" || check "the program in C is built" false
line_of() { grep -n -- "$1" "$dir/host.c" | head -n 1 | cut -d: -f1; }
start_c() { # NAME [FAULT]: two ranks, in c0 and c1
  local rank
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 NCCLTRACE_DIR="$dir/$1" LD_LIBRARY_PATH="$build/sim" \
      LD_PRELOAD="$build/libnccltrace.so" "$dir/host" $rank "$dir/$1.id" ${2:+"$2"} >"$dir/$1$rank.log" 2>&1 </dev/null &
    pids+=($!)
    eval "c$rank=$!"
  done
}
end_c() {
  kill -KILL "$c0" "$c1"
  wait "$c0" "$c1" 2>/dev/null
  unset 'pids[-1]' 'pids[-1]' # numbers may be given again
}
start_c c
check "rank 0 of a program in C waits" await "$c0" 'AllReduce #2 .*, in cudaStreamSynchronize'
check "its rank 1 is one call short" await "$c1" 'AllReduce #1 '
run tracediff "$dir/c"
check "next tells of a dump with native stacks" count "^  nccltrace dump --native $c1 on .*, then tracediff again" 1
check "and of no debugger" count 'gdb' 0
run nccltrace dump --native --dir "$dir/c"
says '[12] (with )?native stacks?' && native=yes
run tracediff "$dir/c"
if [ -n "$native" ]; then
  check "a dump with native stacks says where it is" count \
    "now in host code in read_batch\(\) at host.c:$(line_of 'nothing ever comes') \(host code since .*: main thread sleeping in read" 1
  check "the program's own functions are its stack" \
    test "$(grep '^    [^ ]' "$dir/out" | sed 's/ at .*//; s/^ *//' | tr '\n' ' ')" = 'read_batch run '
  check "and next shows the dump" count "^  all its threads: nccltrace show --dump $c1 on " 1
  run nccltrace show --dump --full-stacks "$c1"
  check "a function without debug information has no line" says '^ +_start\+0x[0-9a-f]+ at '
  check "one with it has" says '^ +run at .*host.c:[0-9]+$'
else
  echo "skip native stacks in findings: the library takes none"
fi
end_c

start_c g gpu
check "rank 1 waits for a device that is stuck" await "$c1" 'AllReduce #2 .*, in cudaStreamSynchronize'
run tracediff "$dir/g"
check "a rank in a host wait can be dumped" count "^  nccltrace dump --native $c1 on .*, then tracediff again" 1
run nccltrace dump --native --dir "$dir/g"
run tracediff "$dir/g"
check "it is the device" says '^gpu '
[ -z "$native" ] || check "and once it is, next shows the dump" count "^  all its threads: nccltrace show --dump $c1 on " 1
[ -z "$native" ] || check "and from where it waits" says 'in cudaStreamSynchronize, called in step\(\) at host.c:[0-9]+ \(from the dump of '
[ -z "$native" ] || check "with where it waits" says '^    step at host.c:[0-9]+$'
end_c

start_c m moves
check "a job makes calls" await "$c0" 'AllReduce #[0-9]{2,} '
run tracediff "$dir/m"
check "of a job that goes on it is said that it moves" says '^consistent: .*; the job moves'
end_c

start_c o outside
check "all ranks made the same calls" await "$c0" 'AllReduce #1 '
outside() { # both are in the read, and have been for long enough
  local tenth
  for ((tenth = 0; tenth < 200; tenth++)); do
    run tracediff "$@" "$dir/o"
    ! says '^outside ' || return 0
    sleep 0.1
  done
  return 1
}
check "they wait outside" outside
check "next tells how to dump all of them" count "^  nccltrace dump --native --dir $(realpath "$dir")/o on .*, then tracediff again" 1
run nccltrace dump --native --dir "$dir/o"
check "they still do" outside --full-stacks
if [ -n "$native" ]; then
  check "--full-stacks has the stack of every rank" count '^    read_batch at host.c:[0-9]+$' 2
  check "and next shows their dumps" count "^  all its threads: nccltrace show --dump ($c0|$c1) on " 2
fi
end_c

# Python without its stacks is like any other program.
start off 0 2 '' NCCLTRACE_PYTHON=off
c0=$!
start off 1 2 '' NCCLTRACE_PYTHON=off
c1=$!
check "rank 0 of Python without stacks waits" await "$c0" 'AllReduce #2 .*, in cudaStreamSynchronize'
check "its rank 1 is in its loader" await "$c1" 'AllReduce #1 '
run tracediff "$dir/off"
check "next tells of native stacks there too" count "^  nccltrace dump --native $c1 on .*, then tracediff again" 1
run nccltrace dump --native --dir "$dir/off"
if says ', [0-9]+ (with )?native stacks?'; then
  run tracediff "$dir/off"
  check "its native stack is shown" test "$(grep -c '^    [^ ]' "$dir/out")" -ge 2
  check "and next shows its dump" count "^  all its threads: nccltrace show --dump $c1 on " 1
fi
end_c

kill -STOP "${pids[1]}"
check "rank 1 is stopped" await "${pids[1]}" ' stopped '
run nccltrace dump --dir "$dir/job"
check "a stopped process is not asked, the other is" \
  test "$(sort "$dir/out" | grep -cE 'rank (0: dump #[0-9]+:|1: stopped: nothing is written)')/$(wc -l <"$dir/out")" = 2/2
run nccltrace dump --signal "${pids[1]}"
check "nor is it sent a signal" count 'rank 1: stopped: ' 1
kill -CONT "${pids[1]}"

start deaf 0 1 deaf
deaf=$!
check "a third job runs" await "$deaf" 'AllReduce #1 '
run nccltrace dump --signal "$deaf"
check "a signal without a handler is not sent" test $? -eq 1
check "and it is said why" count ': (signal [0-9]+ was not sent: the process does not handle|no signal asks .* the program took) it' 1
check "the process lives" kill -0 "$deaf"
if [ -n "$python" ]; then
  start keeps 0 1 gil
  keeps=$!
  check "a job whose main thread keeps the GIL runs" await "$keeps" 'AllReduce #1 '
  gil() { # it has come to the pause
    local tenth
    for ((tenth = 0; tenth < 100; tenth++)); do
      run nccltrace dump "$keeps"
      run nccltrace show --dump "$keeps"
      ! says "$1" || return 0
      sleep 0.1
    done
    return 1
  }
  check "whoever holds the GIL is marked" gil "^thread $keeps .*, the main thread, holds the GIL: sleeping in pause"
  check "and told once" count '^  gil = ' 0
fi
if [ -n "$python" ]; then
  mkfifo "$dir/waits.id.go"
  start waits 0 1 waits
  waits=$!
  check "a job whose threads wait in all kinds of calls runs" await "$waits" 'AllReduce #1 '
  in_calls() { # all five have come to their calls, and are in the dump
    local tenth
    for ((tenth = 0; tenth < 100; tenth++)); do
      run nccltrace dump "$waits"
      run nccltrace show --dump --full-stacks "$waits"
      [ "$(grep -c ' waits_in$' "$dir/out")" -lt 5 ] || return 0
      sleep 0.1
    done
    return 1
  }
  check "the Python stacks of all of them are in a dump" in_calls
  : >"$dir/waits.id.go"
  wait "$waits"
  check "which interrupts none of these calls" grep -qx 'interrupted:' "$dir/waits0.log"
fi
start silent 0 1 '' NCCLTRACE_SIGNAL=off
silent=$!
check "a fourth job runs" await "$silent" 'AllReduce #1 '
run nccltrace ls --dir "$dir/silent"
check "ls names no signal where none is" count '^A dump of a process with a rank: nccltrace dump PID$' 1
run nccltrace ls
check "and where some have one, whose it is" test \
  "$(grep -cE "^  or kill -[0-9]+ (${pids[0]}|${pids[1]})$" "$dir/out")/$(grep -c "kill.* $silent" "$dir/out")" = 2/0
run nccltrace dump --signal "$silent"
check "a process without a signal says so" count ': no signal asks it for a dump: NCCLTRACE_SIGNAL=off' 1
run nccltrace dump "$silent"
check "and can be asked without one" count ': dump #1: ' 1

# Its library of unwinding is none; nobody asks, since it stands still for longer than it may.
mkdir "$dir/broken" && echo nothing >"$dir/broken/libunwind.so.8"
start lonely 0 1 '' NCCLTRACE_LOG=1 NCCLTRACE_NATIVE=1 NCCLTRACE_WATCHDOG=1 LD_LIBRARY_PATH="$dir/broken:$build/sim"
alone=$!
told() { # PATTERN: until the log of that job has it
  local tenth
  for ((tenth = 0; tenth < 300; tenth++)); do
    ! grep -qE -- "$1" "$dir/lonely0.log" || return 0
    sleep 0.1
  done
  return 1
}
lonely="$dir/lonely/rank0\.trace"
check "the log tells of the watchdog's dump" told "^nccltrace: no progress for [0-9]+ s: dump 1 is written to $lonely\$"
check "and of native stacks that cannot be had" told '^nccltrace: native stacks: .*libunwind\.so\.8'
run nccltrace dump --native "$alone"
check "--native without the unwinder fails" test $? -eq 1
check "and says why" count ': dump #2: .*\(.*, no native stacks\) written to .*; missing: .*native \(.*libunwind\.so\.8' 1
check "the log tells who asked" told "^nccltrace: asked by nccltrace dump: dump 2 is written to $lonely\$"
run nccltrace show --dump=1 --json "$alone"
check "the watchdog's dump asks for native stacks where calls have them" json \
  "d[0]['dump']['reason'] == 'watchdog' and 'libunwind' in json.dumps(d[0]['dump'])"
run nccltrace show --header "$alone"
check "that there are none stands with what is traced" \
  test "$(sed -n '/^tracing/,/^$/p' "$dir/out" | grep -c 'native\.stacks .*off: ')" = 1

start removed 0 1
removed=$!
check "a fifth job runs" await "$removed" 'AllReduce #1 '
rm -f "$dir/removed/rank0.trace"
run nccltrace dump "$removed"
check "a dump into a file that was removed fails" test $? -eq 1
check "and says so" count 'rank0.trace has been removed: ' 1

kill -KILL "${pids[@]}"
wait "${pids[@]}" 2>/dev/null
pids=()
check "rank 1 is dead" test ! -e "/proc/$deaf"
run nccltrace dump --rank 1 --dir "$dir/job"
check "a dead process is not asked" count 'rank 1: vanished: .*left-over area' 1
run nccltrace show --dump=2 "$dir/job/rank1.trace"
check "its dumps are there" count '^dump 2 of ' 1
run tracediff "$dir/job"
check "and tell where it was" count "^  rank 1[ :].*, last seen $place: main thread sleeping in read" 1
check "and next names the command that shows them" count "^  all its threads, as they were at [0-9:.]+ UTC: nccltrace show --dump $dir/job/rank1\.trace\$" 1
read -ra command < <(sed -n 's/^  all its threads, .* UTC: //p' "$dir/out")
run "${command[@]}"
check "which does" count '^dump [0-9]+ of ' 1
finish
