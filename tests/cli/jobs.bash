# SPDX-License-Identifier: Apache-2.0
# For scripts that run tracediff on the traces of jobs that gen_job makes; they end by printing `passed` and `failed`.
# shellcheck shell=bash disable=SC2034

build=$(realpath "${BUILD:-build}")
tracediff=$build/tracediff
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

passed=0 failed=0
. tests/cli/checks.bash

# NAME GEN_JOB'S WORDS: traces in $work/NAME, and in NAME.positions what gen_job says of them.
traces() { mkdir "$work/$1" && "$build/bench/gen_job" "$work/$1" "${@:2}" >"$work/$1.positions"; }
run() { timeout 60 "$tracediff" "$@" >"$work/out" 2>"$work/err"; }
both() { head -n 3 "$work/out" "$work/err"; }
