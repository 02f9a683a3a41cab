# SPDX-License-Identifier: Apache-2.0
# For scripts that judge by a status at hand. They begin with passed=0 failed=0, and end by printing both.
# shellcheck shell=bash

check() { # NAME CONDITION-STATUS DETAIL
  if [ "$2" = 0 ]; then
    echo "ok $1"
    passed=$((passed + 1))
  else
    echo "FAIL $1: $3"
    failed=$((failed + 1))
  fi
}
