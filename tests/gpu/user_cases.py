# SPDX-License-Identifier: Apache-2.0
"""The users of tests/users on real NCCL: those that Python or the directory of wheels has."""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile

from native import BUILD, ROOT, find_cudart, find_nccl

sys.path.insert(0, str(ROOT / "tests/users"))
from launch import ON_GPU, USERS, Setting, outcomes     # noqa: E402
from scenario.target import RealNccl, TargetError       # noqa: E402

LIMIT_S = 90        # for one run


def user_cases(names: list | None, out: pathlib.Path, gpus: int, wheels: pathlib.Path | None) -> list:
    """One row a run, or a row that says why a user cannot be run."""
    areas = tempfile.mkdtemp(prefix="nccltrace-users-", dir="/dev/shm")
    rows = []
    try:
        setting = Setting(RealNccl(str(BUILD), gpus), find_nccl(), find_cudart(), areas, out / "users", gpus, LIMIT_S)
        for user in [user for user in USERS + ON_GPU if not names or user.name in names]:
            for name, wrong, reason in outcomes(user, setting, 500, wheels):
                name, _, promise = name.partition(": ")
                rows.append((name, reason or promise,
                             "skip" if reason else "FAIL: " + "; ".join(wrong) if wrong else "ok"))
                print(*rows[-1], flush=True)
    except TargetError as error:
        rows.append(("users of NCCL", str(error), "skip"))
    finally:
        shutil.rmtree(areas, ignore_errors=True)
    return rows
