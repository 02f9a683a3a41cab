# SPDX-License-Identifier: Apache-2.0
"""What the GPU tests share: where things are, C programs against real NCCL, the ends of processes."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build"
LIBRARY = BUILD / "libnccltrace.so"

sys.path.insert(0, str(ROOT / "tests"))
from scenario.target import NO_MULTICAST, TargetError, find_cudart, find_nccl     # noqa: E402

os.environ.update(NO_MULTICAST)     # for all that the GPU tests start


class BuildError(Exception):
    """A C program could not be built; says why."""


def build_product() -> None:
    """Library and tools, where they are missing."""
    if not all(path.exists() for path in (LIBRARY, BUILD / "tracediff", BUILD / "nccltrace")):
        subprocess.run(["make", "-j", str(os.cpu_count()), "all"], cwd=ROOT, check=True)


def build_program(name: str, out: pathlib.Path) -> pathlib.Path:
    """tests/gpu/NAME.c, linked to the NCCL and the CUDA runtime of this machine (NCCL_HOME, CUDA_HOME)."""
    try:
        libraries = [find_nccl(), find_cudart()]
    except TargetError as error:
        raise BuildError(str(error)) from error
    program = out / name
    command = [os.environ.get("CC", "gcc"), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", str(program),
               str(HERE / f"{name}.c"), *libraries, "-Wl,--allow-shlib-undefined", "-ldl"]
    command += [f"-Wl,-rpath,{os.path.dirname(path)}" for path in libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{name}.c: {done.stderr.strip()}")
    return program


def tool(name: str, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess:
    """A tool of ours; a tool that does not end in time has the exit status 124."""
    command = [str(BUILD / name), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"{name} did not end within {seconds:.0f} s")


def traced(directory: pathlib.Path, **more: str) -> dict:
    """The environment of a job whose traces go to `directory`."""
    return dict(os.environ, LD_PRELOAD=str(LIBRARY), NCCLTRACE_DIR=str(directory), **more)


def processes_of(directory: pathlib.Path) -> list:
    """Processes whose environment names this trace directory: those that a case has started."""
    mark, found = f"NCCLTRACE_DIR={directory}".encode(), []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def end_all(directory: pathlib.Path, seconds: float = 20) -> None:
    """Kills them: torchrun gives each worker a session of its own, so that its group is not enough."""
    deadline = time.monotonic() + seconds
    while (pids := processes_of(directory)) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.1)
