# SPDX-License-Identifier: Apache-2.0
"""Runs job.py or perf.c with each user of NCCL under the preload, and says what its traces lack.

Where it runs is a Target of tests/scenario: the simulator, or real NCCL.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

sys.path.insert(0, str(ROOT / "tests"))
from scenario.target import Target, TargetError     # noqa: E402

RANKS = 3
CULPRIT = 2
LIMIT_S = 60            # for a run, times the target's patience
UNUSABLE = 77
# What each rank of a healthy run has called in each communicator.
CALLS = {"AllReduce": 10, "Send": 10, "Recv": 10, "Broadcast": 1, "AllGather": 1}


class Skip(Exception):
    """This user cannot be run here; says why."""


@dataclasses.dataclass(frozen=True)
class Libraries:
    """NCCL and the CUDA runtime that a target offers, and what else its processes need."""

    nccl: str
    cudart: str
    areas: str          # where traced processes keep their live areas


@dataclasses.dataclass(frozen=True)
class User:
    name: str
    package: str = ""       # of packages.py
    native: bool = False    # perf.c in place of job.py
    gpus: int = 1           # ranks in each process
    by_dlsym: bool = False  # asks the loader for NCCL's functions by name
    faults: tuple = (False, True)

    @property
    def processes(self) -> int:
        return 1 if self.gpus > 1 else RANKS


USERS = [
    User("native", native=True),
    # Which of the ranks of one process left out a call is not told yet.
    User("native-one-process", native=True, gpus=RANKS, faults=(False,)),
    User("ctypes", by_dlsym=True),
    User("nccl4py", "nccl4py"),
    User("vllm", "vllm", by_dlsym=True),
    User("sglang", "sglang", by_dlsym=True),
    User("cupy", "cupy"),
]


def line_of(marker: str) -> str:
    """job.py:LINE of the line with this comment."""
    for number, line in enumerate((HERE / "job.py").read_text(encoding="utf-8").splitlines(), 1):
        if line.endswith("# " + marker):
            return f"job.py:{number}"
    raise KeyError(marker)


def build_native(out: pathlib.Path, libraries: Libraries) -> pathlib.Path:
    program = out / "perf"
    command = [os.environ.get("CC", "gcc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g",
               "-I" + str(ROOT / "tests/sim/include"), "-o", str(program), str(HERE / "perf.c"), libraries.nccl,
               libraries.cudart, "-Wl,--allow-shlib-undefined"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skip("perf.c does not compile: " + done.stderr.strip().replace("\n", "; "))
    return program


def sees_dlsym(target: Target) -> bool:
    """Whether this build of the library answers look-ups by name."""
    done = subprocess.run(["nm", "-D", "--defined-only", target.tracer], capture_output=True, text=True, check=False)
    return " dlsym\n" in done.stdout


class Run:
    """One run of one user: its processes, its directory, its traces."""

    def __init__(self, user: User, fault: bool, target: Target, libraries: Libraries, out: pathlib.Path,
                 site: pathlib.Path | None) -> None:
        self.user, self.fault, self.target, self.libraries = user, fault, target, libraries
        self.place = out / (user.name + ("-skip" if fault else ""))
        shutil.rmtree(self.place, ignore_errors=True)
        self.traces, self.meet = self.place / "traces", self.place / "meet"
        self.meet.mkdir(parents=True)
        self.site = site
        self.deadline = time.monotonic() + LIMIT_S * target.patience
        program = build_native(self.place, libraries) if user.native else None
        self.processes = [self.start(number, program) for number in range(user.processes)]

    def start(self, number: int, program: pathlib.Path | None) -> subprocess.Popen:
        environment = self.target.environment(number, self.user.processes, str(self.place))
        environment.update(NCCLTRACE_DIR=str(self.traces), NCCLTRACE_SHM=self.libraries.areas, USERS_NCCL=self.libraries.nccl,
                           USERS_CUDART=self.libraries.cudart, PYTHONPATH=str(self.site or ""))
        # Each says by itself who it is, and not every launcher says it in the environment.
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            environment.pop(name, None)
        device = str(self.target.device(number))
        if program:
            command = [str(program), str(number), str(self.user.processes), str(self.user.gpus), device, str(self.meet)]
            command += [str(CULPRIT)] if self.fault else []
        else:
            command = [sys.executable, str(HERE / "job.py"), self.user.name, f"--rank={number}", f"--size={RANKS}",
                       f"--device={device}", f"--meet={self.meet}", "--fault=" + ("skip" if self.fault else "none"),
                       f"--culprit={CULPRIT}"]
        with open(self.place / f"rank{number}.log", "wb") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT,
                                    stdin=subprocess.DEVNULL)

    def last_words(self, number: int) -> str:
        lines = (self.place / f"rank{number}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "no output"

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
        self.target.clean(str(self.place))

    def tool(self, name: str, *arguments: str) -> str:
        done = subprocess.run([self.target.tool(name), *arguments], capture_output=True, text=True, errors="replace",
                              timeout=60, check=False)
        return done.stdout

    def verdict(self) -> dict:
        try:
            seen = json.loads(self.tool("tracediff", "--json", str(self.traces)))
        except json.JSONDecodeError:
            seen = {}
        return {"verdict": "no trace", "findings": [], **seen}

    def statuses(self) -> list:
        """How the processes ended; those that do not end in time count as None. Raises Skip."""
        for process in self.processes:
            try:
                process.wait(timeout=max(0.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        found = [process.poll() for process in self.processes]
        if UNUSABLE in found:
            raise Skip(self.last_words(found.index(UNUSABLE)))
        return found

    # ---- what must be true --------------------------------------------------------------------------------

    def healthy(self) -> list:
        statuses = self.statuses()
        for number, status in enumerate(statuses):
            if status != 0:
                return [f"process {number} ended with {status}: {self.last_words(number)}"]
        verdict = self.verdict()["verdict"]
        wrong = [] if verdict == "consistent" else [f"verdict {verdict}"]
        traces = sorted(map(str, self.traces.glob("*.trace")))
        if len(traces) != len(statuses):
            return [*wrong, f"{len(traces)} traces of {len(statuses)} processes"]
        for trace in traces:
            wrong += self.shortcomings(json.loads(self.tool("nccltrace", "show", "--json", trace))[0])
        wrong += self.unnamed(traces[0])
        return wrong

    def shortcomings(self, trace: dict) -> list:
        """Calls that a trace lacks, or has too many of."""
        wrong = []
        comms = trace["header"]["communicators"]
        if len(comms) != self.user.gpus:
            wrong.append(f"{len(comms)} communicators of {self.user.gpus}")
        for comm in comms:
            calls = [call["function"] for call in trace["calls"] if call["comm_number"] == comm["number"]]
            wrong += [f"{calls.count(name)} of {wanted} {name}" for name, wanted in CALLS.items()
                      if calls.count(name) != wanted]
            if comm["state"] != "destroyed":
                wrong.append(f"the communicator is {comm['state']}")
        if [call["function"] for call in trace["calls"]].count("GroupEnd") < 10:
            wrong.append("groups are missing")
        wrong += [f"{call['function']} gave {call['result']}" for call in trace["calls"] if call["result"] != "ok"]
        return wrong

    def unnamed(self, trace: str) -> list:
        """Lines of the job that no call's stack leads to."""
        if self.user.native:
            return []
        text = self.tool("nccltrace", "show", "--stacks", trace)
        lines = [line_of("CALL " + name) for name in ("all-reduce", "exchange", "broadcast", "all-gather")]
        return [f"no stack leads to {line}" for line in lines if f"{line} " not in text]

    def hung(self) -> list:
        """Looks until the verdict is right, or the time is up."""
        wrong = ["no verdict"]
        while wrong and time.monotonic() < self.deadline:
            if any(process.poll() is not None for process in self.processes):
                self.statuses()
                return [f"a process ended before its time: {self.last_words(0)}"]
            time.sleep(0.2)
            seen = self.verdict()
            wrong = self.misjudged(seen)
        return wrong

    def misjudged(self, seen: dict) -> list:
        first = (seen.get("findings") or [{}])[0]
        found = (seen["verdict"], first.get("blame"), first.get("op"), first.get("seq"))
        if found != ("missing", str(CULPRIT), "AllReduce", 7):
            return [f"found {found}"]
        place = line_of("CALL all-reduce")
        return [] if self.user.native or place in json.dumps(first) else [f"{place} is not named"]


def check(user: User, fault: bool, target: Target, *where) -> list:
    """What is wrong; raises Skip."""
    if user.by_dlsym and not sees_dlsym(target):
        raise Skip("this build does not see users of dlsym")
    run = Run(user, fault, target, *where)
    try:
        return run.hung() if fault else run.healthy()
    finally:
        run.end()


__all__ = ["Libraries", "Skip", "TargetError", "USERS", "User", "check"]
