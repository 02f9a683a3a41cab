#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every way to NCCL is seen, and leads where it leads without the library: direct links, local scopes, look-ups by name,
# several copies, static ones, other interposers. Real calls on the simulator; what the trace has is what is checked.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
shm=/dev/shm/nt-resolve-$$
passed=0 failed=0
trap 'rm -rf "$work" "$shm"' EXIT
export LD_LIBRARY_PATH=$build/sim NCCLTRACE_SHM=$shm

. tests/cli/checks.bash

users=$build/preload
nccl=$build/sim/libnccl.so.2
one=$users/numbered/libnccl-1.so two=$users/numbered/libnccl-2.so three=$users/numbered/libnccl-3.so
before="" behind="" program=$users/resolve_cases settings=()

# run NAME ARGUMENT...: $program with the library between $before and $behind; status in $status, trace in $trace.
run() {
  trace=$work/$1/rank0.trace
  local name=$1
  shift
  (exec env LD_PRELOAD="${before:+$before:}$build/libnccltrace.so${behind:+:$behind}" NCCLTRACE_DIR="$work/$name" \
    "${settings[@]}" timeout 60 "$program" "$@") >"$work/out" 2>"$work/err" </dev/null
  status=$?
}
said() { echo "status $status, $(head -c 600 "$work/out" "$work/err"), calls: $(calls | tr '\n' ' ')"; }
# calls: function and count of each collective and creation, one line a call
calls() { "$build/nccltrace" show "$trace" 2>/dev/null | awk '$3 ~ /^(AllReduce|Bcast|Broadcast)$/ {print $3, $7}'; }
header() { "$build/nccltrace" show --header "$trace" 2>/dev/null; }
# reduced COUNT...: these all-reduces are in the trace, and no others
reduced() { [ "$status" = 0 ] && [ "$(calls)" = "$(printf 'AllReduce %s\n' "$@")" ]; }
# served PATH...: the copies that were called
served() { [ "$(header | sed -n 's/^nccl\.[0-9]*\.path = //p' | sort)" = "$(printf '%s\n' "$@" | sort)" ]; }

# ---- links ----

program=$users/user_program
run linked
reduced 9 && served "$nccl"
check "a program that links NCCL is traced" $? "$(said)"

program=$users/resolve_cases
run local user-local "$users/user_linked.so"
reduced 10 && served "$nccl"
check "a dependency behind RTLD_LOCAL is traced, as PyTorch's" $? "$(said)"

run local-below user-local "$users/user_outer.so"
reduced 10 && served "$nccl"
check "so is one further down, which nobody has opened by itself" $? "$(said)"

run local-copies user-local "$users/user_numbered1.so" "$users/user_numbered2.so"
reduced 10 11 && served "$one" "$two"
check "two libraries that each bring a copy reach each their own" $? "$(said)"

run static user-local "$users/user_static.so"
reduced 10 && served "$users/user_static.so"
check "NCCL inside a library that exports it is traced, as libtorch_cuda's" $? "$(said)"

behind=$one
run global-first user-local "$users/user_numbered2.so"
reduced 10 && served "$one"
check "a copy in the global scope goes before the caller's own, as the loader has it" $? "$(said)"

run foreign-comm foreign-comm "$two"
reduced 5
check "the copy that made a communicator serves it" $? "$(said)"
behind=""

program=$users/user_program settings=(USER_LATE=1)
run late
[ "$status" = 0 ] && [[ "$(calls)" == "AllReduce 9"* ]] && grep -qx 'late 0' "$work/out"
check "a destructor that runs after the library's end may call NCCL" $? "$(said)"
settings=() program=true
run silent
[ "$status" = 0 ] && [ ! -s "$work/out" ] && [ ! -s "$work/err" ]
check "a program without NCCL says nothing more than before" $? "$(said)"
program=$users/resolve_cases

# ---- look-ups by name ----

run by-path by-path "$one"
reduced 10 && served "$one"
check "functions looked up through a handle are traced" $? "$(said)"

run copies by-path "$one" "$two" "$three"
reduced 10 11 12 && served "$one" "$two" "$three"
check "of three copies by path each is traced and called as itself" $? "$(said)"

run mixed by-path "$one" "$nccl"
reduced 10 11 && served "$one" "$nccl"
check "a copy that is looked up does not draw calls of another one" $? "$(said)"

run profiled profiled "$one"
reduced 12
check "pncclX that is looked up by name is traced, and called itself" $? "$(said)"

run nested nested "$nccl"
[ "$status" = 0 ] && [ "$(calls)" = "$(printf 'Bcast 4\nAllReduce 3')" ]
check "what NCCL calls itself below an entry is not recorded" $? "$(said)"

run own-thread own-thread "$one"
[ "$status" = 0 ] && [ "$("$build/nccltrace" show "$trace" | grep -c GetUniqueId)" = 1 ]
check "what NCCL's own threads call is not recorded" $? "$(said)"

cat >"$work/ctypes_user.py" <<'END'
import ctypes, sys
class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
try:
    print("program has", ctypes.CDLL(None).ncclAllReduce)
except AttributeError:
    print("program has none")
nccl, cudart = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcudart.so.13")
functions = {name: getattr(nccl, name) for name in
             ("ncclGetUniqueId", "ncclCommInitRank", "ncclAllReduce", "ncclCommDestroy")}
unique, comm = UniqueId(), ctypes.c_void_p()
assert functions["ncclGetUniqueId"](ctypes.byref(unique)) == 0
assert functions["ncclCommInitRank"](ctypes.byref(comm), 1, unique, 0) == 0
send, recv = (ctypes.c_float * 8)(*range(8)), (ctypes.c_float * 8)()
assert functions["ncclAllReduce"](send, recv, ctypes.c_size_t(8), 7, 0, comm, None) == 0
assert cudart.cudaDeviceSynchronize() == 0
assert functions["ncclCommDestroy"](comm) == 0
assert list(recv) == list(range(8))
END
program=python3
run ctypes "$work/ctypes_user.py" "$nccl"
reduced 8 && served "$nccl" && grep -qx 'program has none' "$work/out" &&
  "$build/nccltrace" show "$trace" | grep -q 'cudaDeviceSynchronize.*ctypes_user.py'
check "ctypes is traced as vLLM uses it, the CUDA runtime too" $? "$(said)"
program=$users/resolve_cases

run probe probe "$one"
reduced 7 && served "$one" && grep -qx 'probe NULL' "$work/out"
check "a probe for NCCL in the process finds none where there is none, as nccl4py's" $? "$(said)"

behind=$one
run probe-found probe "$two"
reduced 7 && served "$one" && grep -qx 'probe found' "$work/out"
check "a probe finds one that is there, and its calls are traced" $? "$(said)"
behind=""

"$users/resolve_cases" absent "$build/sim/nccl-2.10/libnccl.so.2" >"$work/bare"
run absent absent "$build/sim/nccl-2.10/libnccl.so.2"
cmp -s "$work/bare" "$work/out" && grep -q '^NULL, errno 77, .*undefined symbol: ncclCommSplit' "$work/out" &&
  grep -qx 'found after an error: no error' "$work/out"
check "what a copy lacks stays absent, and dlerror and errno say the same" $? "$(diff "$work/bare" "$work/out")"

nm -D --defined-only --format=posix "$(ldconfig -p | awk '/libc\.so\.6 / {print $NF; exit}')" |
  awk '{sub(/@.*/, "", $1); print $1}' | sort -u | grep -vxE 'exit|_exit|_Exit|quick_exit|dlsym|dlclose' >"$work/names"
printf '%s\n' '' n c p nc ncc nccl cuda pnccl ncclNothing ncclNet_v8 cudaNothing pncclNothing nothing cuInit numbered_count \
  ncclGetVersion pthread_create environ >>"$work/names"
"$users/resolve_cases" names "$one" <"$work/names" >"$work/bare"
LD_PRELOAD=$build/libnccltrace.so timeout 60 "$users/resolve_cases" names "$one" <"$work/names" >"$work/out"
[ "$(wc -l <"$work/out")" -gt 3000 ] && cmp -s "$work/bare" "$work/out"
check "every other name is found as without the library, with the same dlerror and errno" $? \
  "$(diff "$work/bare" "$work/out" | head -n 6)"

settings=(NCCLTRACE_DLSYM=0)
run off raw "$one"
[ "$status" = 0 ] && grep -qx 'libnccl-1.so' "$work/out" && [ ! -e "$trace" ]
check "NCCLTRACE_DLSYM=0 leaves look-ups alone" $? "$(said)"
settings=(NCCLTRACE=0)
run all-off raw "$one"
[ "$status" = 0 ] && grep -qx 'libnccl-1.so' "$work/out" && [ ! -e "$trace" ]
check "NCCLTRACE=0 does so too" $? "$(said)"
settings=()
run on raw "$one"
reduced 7 && grep -qx 'libnccltrace.so' "$work/out"
check "without them the answer is ours" $? "$(said)"

mkdir "$work/many"
for i in 0 1 2 3 4 5 6 7 8 9; do cp "$one" "$work/many/libnccl-$i.so"; done
settings=(NCCLTRACE_LOG=1)
run many by-path "$work"/many/*.so
settings=()
reduced 10 11 12 13 14 15 16 17 &&
  [ "$(grep -c '^nccltrace: more than 8 copies of NCCL or the CUDA runtime are looked up by name' "$work/err")" = 1 ]
check "with more copies than entries the rest work untraced, and it is said once" $? "$(said)"

mkdir "$work/room"
for ((i = 10; i < 44; i++)); do cp "$users/user_static.so" "$work/room/$i.so"; done
run linked-many user-local "$work"/room/*.so
reduced {10..41}
check "calls to a copy for which there is no room reach it, untraced" $? "$(said)"
rm -r "$work/room"

run namespaces namespaces "$one" "$two"
reduced 10 11 && served "$one" "$two"
check "copies in namespaces of their own (dlmopen) are traced and called each as itself" $? "$(said)"

run comings comings "$work"/many/libnccl-[0-7].so
[ "$status" = 0 ]
check "a look-up leads to its own copy while other copies come and go" $? "$(said)"

run threads threads "$one" "$two" "$three"
reduced 10 11 12 && served "$one" "$two" "$three"
check "threads that look up at the same time all get the same" $? "$(said)"

program=$users/resolve_early
settings=(NCCL="$one")
run early
[ "$status" = 0 ]
check "a constructor that runs before ours may look NCCL up and call it" $? "$(said)"
settings=()

for kind in asan tsan; do
  program=$users/resolve_cases-$kind
  runtime=$(${CC:-gcc} -print-file-name=lib$kind.so)
  settings=(ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 TSAN_OPTIONS=report_bugs=0)
  run $kind by-path "$one" "$two"
  reduced 10 11
  check "a program with ${kind%an}an starts and is traced" $? "$(said)"
  before=$runtime
  run $kind-front by-path "$one"
  reduced 10
  check "so does one whose sanitizer is preloaded in front" $? "$(said)"
  before=""
done
program=$users/resolve_cases settings=()

# ---- objects that come and go ----

run reopened reopened "$one" "$two"
reduced 10 11 12 13 && served "$one" "$two"
check "a copy that was only looked up is unloaded when it is closed; one that was called comes back" $? "$(said)"

cp "$users/user_numbered1.so" "$work/caller1.so"
cp "$users/user_numbered2.so" "$work/caller2.so"
LD_LIBRARY_PATH=$build/sim:$users/numbered run callers callers-change "$work/caller1.so" "$work/caller2.so" \
  "$work/caller1.so" "$work/caller2.so"
[ "$status" = 0 ]
check "a caller that comes to lie where another one lay reaches its own copy" $? "$(said)"

behind=$users/libpausing.so
LD_LIBRARY_PATH=$build/sim:$users/numbered run arrives caller-arrives "$work/caller1.so" "$work/caller2.so"
[ "$status" = 0 ] && grep -qx 'same place yes' "$work/out"
check "so does one that comes while the other's dlclose has not returned" $? "$(said)"

behind=$one
run constructor constructor "$users/constructing.so"
[ "$status" = 0 ]
check "a constructor may call NCCL while another thread makes its first call" $? "$(said)"
behind=""
run destructor destructor "$users/user_linked.so" "$users/destructing.so"
[ "$status" = 0 ] && grep -qx ended "$work/out"
check "a destructor may wait for another thread's call, as long as that thread has called before" $? "$(said)"

behind=$nccl
run first-in-constructor first-in-constructor "$users/constructing.so"
[ "$status" = 0 ]
check "two threads may make their first communicators at once, one of them in a constructor" $? "$(said)"
behind=""

# ---- other interposers ----

behind=$users/libpassing.so
program=$users/user_program
run passing-behind
reduced 9 && grep -qx 'passed on 2' "$work/out"
check "another interposer behind ours is passed once a call" $? "$(said)"
behind="" before=$users/libpassing.so
run passing-front
reduced 9 && served "$nccl" && grep -qx 'passed on 2' "$work/out"
check "one in front of ours finds us" $? "$(said)"
before="" program=$users/resolve_cases behind=$users/libpassing.so
run passing-by-path by-path "$one"
reduced 10 && served "$one" && grep -qx 'passed on 0' "$work/out"
check "who has a handle goes past it, as without us" $? "$(said)"
behind=""

before=$users/libpassing.so behind=$nccl
run through-front through-front "$users/libpassing.so"
reduced 4 && ! "$build/nccltrace" show "$trace" | grep -q 'never returned'
check "a call that comes by an entry and again by a wrapper is one call" $? "$(said)"
before="" behind=""

for place in before behind; do
  before="" behind=""
  printf -v $place %s "$users/libquota.so"
  run quota-$place quota "$one" "$two"
  grep -qx 'quota asked yes' "$work/out" && [ "$status" = 0 ] && { [ $place = before ] || reduced 10 11; }
  check "another hook of dlsym $place ours works and is asked" $? "$(said)"
done
before="" behind=""

behind=$users/libanswering.so
run answering by-path "$one"
reduced 10 && served "$one" && grep -qx 'counted 3' "$work/out"
check "a hook behind ours that answers with its own functions is called, and what it answers is traced as one copy" $? \
  "$(said) $(header | grep '^nccl')"
behind=""

# ---- what cannot be seen ----

untraced='an NCCL copy is loaded whose calls are not'
notes() { "$build/tracediff" "$(dirname "$trace")" 2>/dev/null | sed -n 's/^note: //p' | grep "$untraced"; }

run deepbind user-deepbind "$one" "$users/user_linked.so"
reduced 6 && [ "$(notes)" = "rank 0: $untraced traced: $nccl; $users/user_linked.so is bound to it past \
libnccltrace.so, as RTLD_DEEPBIND does" ]
check "a library that RTLD_DEEPBIND has bound past everybody is named" $? "$(said) $(notes)"

run deepbind-shared user-deepbind "$nccl" "$users/user_linked.so"
reduced 6 && notes | grep -qF "rank 0: $untraced all traced: $nccl; $users/user_linked.so"
check "also where others call the same copy and are traced" $? "$(said) $(notes)"

settings=(LD_BIND_NOW=)
run deepbind-lazy user-deepbind-lazy "$nccl" "$users/user_lazy.so"
settings=()
reduced 6 && notes | grep -qF "$users/user_lazy.so is bound"
check "and where its functions are bound at the first call only" $? "$(said) $(notes)"

run symbolic user-local "$users/user_symbolic.so" "$users/user_linked.so"
reduced 11 && notes | grep -qF "rank 0: $untraced traced: $users/user_symbolic.so; if NCCL is called inside it"
check "NCCL inside a library that is linked with -Bsymbolic is named" $? "$(said) $(notes)"

for case in linked local local-copies static by-path copies nested ctypes probe probe-found threads passing-behind \
  passing-front passing-by-path; do
  trace=$work/$case/rank0.trace
  [ -z "$(notes)" ] || break
done
[ -z "$(notes)" ]
check "nobody is named where all is traced, though interposers are about" $? "$case: $(notes)"

run unused stays "$one" "$two"
reduced 5 && served "$one" && [ -z "$(notes)" ] && header | grep -qx "nccl.other.[0-9].path = $two"
check "a copy that merely lies there is in the evidence, and nothing is said of it" $? "$(said) $(notes)"

# A process lives until its standard input ends, that it is looked at meanwhile.
mkfifo "$work/in"
stays() { # CASE ARGUMENT...: what nccltrace ls says of it
  rm -rf "$shm"
  env LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/live" timeout 60 "$users/resolve_cases" "$@" <"$work/in" \
    >"$work/stays" 2>&1 &
  local job=$!
  exec 4>"$work/in"
  for ((i = 0; i < 400; i++)); do
    grep -q ready "$work/stays" && break
    sleep 0.05
  done
  "$build/nccltrace" ls
  exec 4>&-
  wait $job
}
stays stays "$one" "$two" >"$work/ls"
! grep -q "$untraced" "$work/ls" && grep -q resolve_cases "$work/ls"
check "of a copy that merely lies there nccltrace ls says nothing" $? "$(cat "$work/ls")"
stays stays-deepbind "$one" "$users/user_linked.so" >"$work/ls"
grep -qF "$untraced traced: $nccl; $users/user_linked.so is bound" "$work/ls"
check "nccltrace ls names one that is called past us" $? "$(cat "$work/ls")"
stays only-deepbind "$users/user_linked.so" >"$work/ls"
! grep -q "$untraced" "$work/ls" && grep -q 'no communicator yet' "$work/ls"
check "of a process that was never seen to call it claims nothing" $? "$(cat "$work/ls")"
: >"/dev/shm/nccl-test-$$"
NCCL_MEMORY=/dev/shm/nccl-test-$$ stays only-deepbind "$users/user_linked.so" >"$work/ls"
rm -f "/dev/shm/nccl-test-$$"
grep -qF "$untraced traced: $nccl; memory that NCCL shares" "$work/ls"
check "unless NCCL's memory tells that it is in use" $? "$(cat "$work/ls")"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
