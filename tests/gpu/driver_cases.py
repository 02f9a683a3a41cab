# SPDX-License-Identifier: Apache-2.0
"""A process whose main thread the driver holds for ever: it can still be seen, dumped, judged and ended."""

from __future__ import annotations

import datetime
import json
import pathlib
import shutil
import signal
import subprocess
import time

from native import BuildError, build_program, end_all, tool, traced

CALLS = ["cudaFree", "cudaDeviceSynchronize", "cuModuleLoadData", "cuLaunchKernel"]
PROVEN_S = 2        # so long after the main thread got stuck a thread must have shown itself to be alive


class Wrong(Exception):
    """What was not as expected, in words."""


def moment(text: str | None) -> float:
    """Seconds since the epoch of a time in the tools' JSON; 0 for null."""
    return datetime.datetime.fromisoformat(text).timestamp() if text else 0.0


def until(seconds: float, condition) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def wait_until_stuck(job: subprocess.Popen, log: pathlib.Path) -> float:
    """When the program said that it makes its call."""
    until(60, lambda: "stuck in" in log.read_text() or job.poll() is not None)
    said = log.read_text().strip()
    if "stuck in" not in said or job.poll() is not None:
        raise Wrong("it is not stuck: " + said.replace("\n", "; ")[-200:])
    return time.time()


def check_beats(directory: pathlib.Path, stuck: float) -> bool:
    """The helper goes on; returns whether the thread that looks at the GPU does, too, or is seen to be held."""
    seen: dict = {}

    def alive(what: str) -> bool:
        listed = json.loads(tool("nccltrace", "ls", "--json", "--dir", str(directory)).stdout or "[]")
        seen.update(listed[0] if listed else {})
        return moment(seen.get(what)) > stuck + PROVEN_S
    if not until(PROVEN_S + 5, lambda: alive("last_sign_of_life")):
        raise Wrong(f"the helper's last sign of life was at {seen.get('last_sign_of_life')}")
    if not seen.get("last_gpu_look"):
        raise Wrong("nobody ever looked at the GPU")
    return until(3, lambda: alive("last_gpu_look"))


def check_dump(directory: pathlib.Path) -> None:
    done = tool("nccltrace", "dump", "--timeout", "2", "--dir", str(directory), seconds=10)
    if done.returncode:
        raise Wrong("no dump within 2 s: " + (done.stderr or done.stdout).strip())


def check_verdict(directory: pathlib.Path, classes: list) -> None:
    """What does not finish is the all-reduce behind the blocked stream."""
    report = json.loads(tool("tracediff", "--json", str(directory)).stdout or "{}")
    first = (report.get("findings") or [{}])[0]
    if report.get("verdict") not in classes or (first.get("op"), first.get("seq")) != ("AllReduce", 2):
        raise Wrong(f"{report.get('verdict')} {first.get('op')} #{first.get('seq')}")


def check_end(job: subprocess.Popen) -> None:
    job.send_signal(signal.SIGTERM)
    try:
        if job.wait(timeout=20) != -signal.SIGTERM:
            raise Wrong(f"SIGTERM: it ended with {job.returncode}")
    except subprocess.TimeoutExpired as error:
        raise Wrong("SIGTERM did not end it within 20 s") from error


def driver_case(call: str, program: pathlib.Path, out: pathlib.Path) -> tuple:
    """One row: name, expectation, "ok" or what was wrong."""
    directory, log = out / f"traces-driver-{call}", out / f"driver-{call}.log"
    shutil.rmtree(directory, ignore_errors=True)
    with open(log, "w", encoding="utf-8") as sink:
        job = subprocess.Popen([str(program), call], stdout=sink, stderr=subprocess.STDOUT,
                               env=traced(directory, RANK="0", WORLD_SIZE="1"))
    try:
        stuck = wait_until_stuck(job, log)
        looks = check_beats(directory, stuck)
        check_dump(directory)
        check_verdict(directory, ["gpu"] if looks else ["gpu", "stalled"])
        if job.poll() is not None:
            raise Wrong(f"{call} returned")
        check_end(job)
        got = "ok" if looks else "ok, the thread that looks at the GPU is held"
    except Wrong as wrong:
        got = f"FAIL: {wrong}"
    finally:
        end_all(directory)
        job.wait(timeout=20)
    return (f"driver-lock {call}", "helper alive, dump in 2 s, gpu AllReduce #2, SIGTERM ends it", got)


def driver_cases(out: pathlib.Path) -> list:
    """One after the other: each needs a few seconds."""
    try:
        program = build_program("blocked_driver", out)
    except BuildError as error:
        return [("driver-lock", "a program that gets stuck", f"FAIL: {error}")]
    rows = []
    for call in CALLS:
        rows.append(driver_case(call, program, out))
        print(*rows[-1], flush=True)
    return rows
