# SPDX-License-Identifier: Apache-2.0
"""Interleaved measurement: a job for each setting, all alive at the same time, of which one works at a time."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import random
import select
import shutil
import statistics
import subprocess
import time

from native import LIBRARY, end_all, tool

TRACED = {"LD_PRELOAD": str(LIBRARY)}
NO_RECORDER = {"TORCH_FR_BUFFER_SIZE": "0", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}
RECORDER = {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}
NCCL_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "COLL"}
SETTINGS = {
    "bare": {},
    "bare-again": {},
    "default": TRACED,
    "gpu-off": {**TRACED, "NCCLTRACE_GPU": "off"},
    "python-off": {**TRACED, "NCCLTRACE_PYTHON": "off"},
    "flight-recorder": RECORDER,
    "nccl-log": NCCL_LOG,
}
STEP_SETTINGS = ["bare", "bare-again", "default", "gpu-off"]
READY_S, ANSWER_S = 120, 30
SEGMENT_OFFSET = 48         # in a trace's header, see docs/FORMAT.md


class CannotMeasure(Exception):
    """Why not."""


@dataclasses.dataclass
class Measured:
    """One process, or all ranks of one job, with one setting."""

    setting: str
    processes: list

    def read(self, seconds: float) -> float:
        """The slowest rank's answer."""
        deadline, values = time.monotonic() + seconds, []
        for process in self.processes:
            while True:
                if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    raise CannotMeasure(f"{self.setting}: no answer within {seconds:.0f} s")
                line = process.stdout.readline()
                if not line:
                    raise CannotMeasure(f"{self.setting}: the measured process has ended")
                if line.startswith(b"value "):
                    values.append(float(line.split()[1]))
                    break
        return max(values)

    def ask(self, word: str) -> float:
        for process in self.processes:
            process.stdin.write(word.encode() + b"\n")
            process.stdin.flush()
        return self.read(ANSWER_S)


def calls_recorded(job: Measured, out: pathlib.Path) -> int:
    """How many records the first rank has made."""
    listed = json.loads(tool("nccltrace", "ls", "--json", "--dir", str(out / "traces")).stdout or "[]")
    return next((row["calls"] or 0 for row in listed if row["pid"] == job.processes[0].pid), 0)


def last_functions(job: Measured, count: int) -> list:
    """The functions of the first rank's last calls."""
    shown = tool("nccltrace", "show", "--json", f"--tail={count}", str(job.processes[0].pid)).stdout
    return [call["function"] for call in json.loads(shown)[0]["calls"]]


def traces_left(setting: str, out: pathlib.Path) -> list:
    """(bytes, bytes of its fixed head, calls) of each trace left by processes with this setting, unless its ring went round."""
    found = []
    for file in sorted((out / "traces").rglob("*.trace")):
        shown = tool("nccltrace", "show", "--header", "--json", str(file))
        process = shown.returncode == 0 and json.loads(shown.stdout)[0]["header"]["process"]
        if process and process["run"].rpartition("-")[0] == setting and not process["overwritten"]:
            head = int.from_bytes(file.read_bytes()[SEGMENT_OFFSET:SEGMENT_OFFSET + 8], "little")
            found.append((file.stat().st_size, head, process["calls"]))
    return found


class Samples(dict):
    """Values by (measurement, setting), in the order of the rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict = {}       # measurement -> functions of the records that one asking of it makes
        self.traces: list = []      # as of traces_left, of the default setting

    def take(self, word: str, jobs: list) -> None:
        """One round."""
        for job in random.sample(jobs, len(jobs)):
            self.setdefault((word, len(job.processes), job.setting), []).append(job.ask(word))

    def count(self, word: str, job: Measured, out: pathlib.Path) -> None:
        before = calls_recorded(job, out)
        job.ask(word)
        self.calls[word] = last_functions(job, calls_recorded(job, out) - before)

    def of(self, word: str, ranks: int, setting: str) -> list:
        return self[(word, ranks, setting)]

    def over(self, word: str, ranks: int, setting: str, base: str) -> tuple:
        """(median difference, low, high); over bare is over the mean of both jobs without the library."""
        bases = [self.of(word, ranks, base)]
        if base == "bare" and setting != "bare-again" and (word, ranks, "bare-again") in self:
            bases.append(self.of(word, ranks, "bare-again"))
        return interval([a - statistics.mean(b) for a, *b in zip(self.of(word, ranks, setting), *bases)])


def interval(values: list) -> tuple:
    """(median, low, high): order statistics, no assumption on the distribution."""
    values = sorted(values)
    skip = max(0, math.floor((len(values) - 1.96 * math.sqrt(len(values))) / 2))
    return statistics.median(values), values[skip], values[-1 - skip]


def start(setting: str, command: list, ranks: int, gpus: int, out: pathlib.Path) -> Measured:
    ours = ("NCCLTRACE", "NCCL_DEBUG", "LD_PRELOAD")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    store = out / f"store-{setting}-{ranks}"
    store.unlink(missing_ok=True)
    environment.update(NO_RECORDER, WORLD_SIZE=str(ranks), BENCH_STORE=str(store), BENCH_GPUS=str(gpus),
                       OMP_NUM_THREADS="1",
                       NCCLTRACE_DIR=str(out / "traces"), TORCH_NCCL_ENABLE_MONITORING="0",
                       TORCHELASTIC_RUN_ID=f"{setting}-{ranks}", PYTHONDONTWRITEBYTECODE="1")
    environment.update(SETTINGS[setting])
    if setting == "nccl-log":
        environment["NCCL_DEBUG_FILE"] = str(out / "nccl-%p.log")
    processes = []
    for rank in range(ranks):
        with open(out / f"{pathlib.Path(command[-1]).name}-{setting}-{rank}-of-{ranks}.log", "wb") as log:
            processes.append(subprocess.Popen(command, env=dict(environment, RANK=str(rank)), stdin=subprocess.PIPE,
                                              stdout=subprocess.PIPE, stderr=log))
    return Measured(setting, processes)


def rounds(wanted: list, words: list, samples: Samples, seconds: float, out: pathlib.Path, gpus: int = 1) -> None:
    """Starts the wanted (setting, command, ranks), does rounds for so long, and ends all."""
    jobs: list = []
    try:
        jobs.extend(start(*what, gpus, out) for what in wanted)
        for job in jobs:
            job.read(READY_S)
        deadline = time.monotonic() + seconds
        while True:
            for word, settings, ranks in words:
                if word not in samples.calls:
                    samples.count(word, next(job for job in jobs if job.setting == "default"), out)
                samples.take(word, [job for job in jobs if job.setting in settings and len(job.processes) == ranks])
            if time.monotonic() > deadline:
                break
    finally:
        end_all(out / "traces")
        for job in jobs:
            for process in job.processes:
                process.wait(timeout=20)
        samples.traces += traces_left("default", out)
        shutil.rmtree(out / "traces", ignore_errors=True)
        for log in out.glob("nccl-*.log"):
            log.unlink()
