#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One libnccltrace.so works with every NCCL: the simulator with the symbols of old and new releases, and a program that
# was built for each.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
. tests/cli/checks.bash
CC=${CC:-gcc}
export NCCLTRACE_SHM=/dev/shm/nt-releases-$$
trap 'rm -rf "$work" "$NCCLTRACE_SHM"' EXIT

cat >"$work/future.c" <<'C'
#include <nccl.h>
__attribute__((visibility("default"))) ncclResult_t ncclFutureReduce(const char *what, ncclComm_t comm, void *buffer,
                                                                     double value);
ncclResult_t ncclFutureReduce(const char *what, ncclComm_t comm, void *buffer, double value) {
  return what[0] == 's' && value == 0.5 ? ncclAllReduce(buffer, buffer, 3, ncclFloat32, ncclSum, comm, 0) : ncclInternalError;
}
C

# All of the simulator but the file with the version.
mkdir "$work/objects" && (cd "$work/objects" && ar x "$build/sim/libnccl_static.a" && rm sim_stubs.o)

# The names that a release exports, as a version script.
map_of() { # LEVEL
  printf '%s\n' "#define NT_API_LEVEL $1" '#define NT_FN_EXT NT_FN' \
    '#define NT_FN(id, name, shape, params, args, fields) nccl##name; PROFILED(name)' \
    "#define PROFILED(name) $([ "$1" -lt 21600 ] || echo 'pnccl##name;')" \
    '{ global: ncclGetVersion; ncclGetErrorString; ncclCommCount; ncclCommCuDevice; ncclCommUserRank; ncclFutureReduce;' \
    '#include "nccl/nccl_api.def"' 'local: *; };' | "$CC" -E -P -x c -Ilibnccltrace -
}

# The simulator as that release, and the program built against it.
make_release() { # LEVEL
  local dir=$work/$1 include="-Itests/sim/include -Itests/sim -Ilibnccltrace"
  mkdir "$dir"
  map_of "$1" >"$dir/map"
  # shellcheck disable=SC2086
  "$CC" -std=gnu11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -pthread $include -DSIM_VERSION_CODE="$1" -shared -o "$dir/libnccl.so.2" \
    -Wl,-soname,libnccl.so.2 -Wl,--version-script="$dir/map" -Wl,-rpath,"$build/sim" "$work/future.c" tests/sim/sim_stubs.c \
    "$work"/objects/*.o \
    -L"$build/sim" -l:libcuda.so.1 &&
    "$CC" -std=gnu11 -D_GNU_SOURCE $include -DNT_API_LEVEL="$1" -Wall -Wextra -o "$dir/program" tests/preload/release_cases.c \
      -L"$dir" -l:libnccl.so.2 -L"$build/sim" -l:libcudart.so.13 -Wl,-rpath,"$dir:$build/sim" -Wl,-rpath-link,"$build/sim"
}

run() { # LEVEL CASE: bare, then traced
  timeout 60 "$work/$1/program" "$2" >"$work/$1/$2.bare" 2>&1
  bare=$?
  LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/$1/$2" NCCLTRACE_NCCL='' timeout 60 "$work/$1/program" "$2" \
    >"$work/$1/$2.traced" 2>&1
  traced=$?
}
functions() { "$build/nccltrace" show "$work/$1/calls/rank0.trace" | awk 'NR > 1 && !/void/ { print $3 }' | sort -u; }

# Up to 2.8 ncclGetVersion had one digit for the minor version.
for release in 2.8.4 2.10.3 2.11.4 2.14.3 2.18.1 2.23.4 2.28.7 2.32.3; do
  IFS=. read -r major minor patch <<<"$release"
  level=$((major * (minor > 8 ? 10000 : 1000) + minor * 100 + patch))
  if ! make_release $level >"$work/out" 2>&1; then
    check "NCCL $release can be simulated" 1 "$(head -n 5 "$work/out")"
    continue
  fi
  run $level calls
  [ $bare = 0 ] && [ $traced = 0 ] && cmp -s "$work/$level"/calls.{bare,traced} && ! grep -v '^version' "$work/$level/calls.traced" | grep -qv ': 0$'
  check "a program of NCCL $release runs with the library as without" $? "$bare $traced $(diff "$work/$level"/calls.{bare,traced} | head -5)"
  missing=$(grep -oE '^nccl[A-Za-z]+' "$work/$level/calls.traced" | sed 's/^nccl//' | grep -vxE 'GetVersion|GetUniqueId|GroupStart|FutureReduce' | sort -u |
    comm -23 - <(functions $level))
  [ -z "$missing" ] && "$build/nccltrace" show --header "$work/$level/calls/rank0.trace" | grep -qxF "nccl.0.version = $release"
  check "each call of a program of NCCL $release is recorded" $? "missing: $missing"
  run $level wrong
  [ $bare = 0 ] && [ $traced = 0 ] && cmp -s "$work/$level"/wrong.{bare,traced}
  check "calls with wrong arguments get NCCL $release's own answers" $? "$bare $traced $(diff "$work/$level"/wrong.{bare,traced} | head -5)"
done

# Without us the loader ends such a program at the call.
LD_LIBRARY_PATH=$work/21003 LD_PRELOAD="$build/libnccltrace.so" NCCLTRACE_DIR="$work/older" timeout 60 "$work/22807/program" lacks \
  >"$work/older.out" 2>&1
lacking=$?
[ $lacking = 0 ] && [ "$(grep -c 'AlltoAll.*: 5$' "$work/older.out")" = 2 ] &&
  [ "$("$build/nccltrace" show "$work/older/rank0.trace" | awk '$3 == "AllReduce" { print $6, $7 }')" = "$(printf '1 1\n2 2')" ]
check "a function that the process's NCCL lacks is refused, and the calls around it are recorded" $? "$lacking $(cat "$work/older.out")"

all=$("$build/nccltrace" show "$work/23203/calls/rank0.trace")
[ "$(grep -c ' AllReduce ' <<<"$all")" = 4 ] && ! grep -q ' 3 *f32' <<<"$all"
check "a function of a later NCCL passes untouched, and what NCCL calls inside it is not the application's" $? "$all"
"$build/nccltrace" show --header "$work/23203/calls/rank0.trace" | grep -qxE 'comm\.2\.config = minCTAs=3'
check "the settings of a communicator are in the evidence" $? "$("$build/nccltrace" show --header "$work/23203/calls/rank0.trace" | grep config)"

"$build/nccltrace" show "$work/23203/wrong/rank0.trace" >"$work/wrong"
grep -qE 'dtype 14 .*ncclInvalidArgument' "$work/wrong" && grep -qE ' op 9 .*ncclInvalidArgument' "$work/wrong" &&
  [ "$(grep -c 'dtype ?' "$work/wrong")" = 2 ]
check "types and operators that this build does not know are shown by their number" $? "$(grep AllReduce "$work/wrong")"
"$build/nccltrace" show --json "$work/23203/wrong/rank0.trace" | grep -q '"type": *"dtype 14"'
check "in JSON too" $? "$("$build/nccltrace" show --json "$work/23203/wrong/rank0.trace" | grep -m 2 AllReduce)"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
