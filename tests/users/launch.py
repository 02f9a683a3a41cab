# SPDX-License-Identifier: Apache-2.0
"""Runs job.py or perf.c with each user of NCCL under the preload, and says what its traces lack.

Where it runs is a Target of tests/scenario: the simulator, or real NCCL.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from packages import PACKAGES, Missing, site_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

sys.path.insert(0, str(ROOT / "tests"))
from scenario.target import Target     # noqa: E402

RANKS = 3
CULPRIT = 2
UNUSABLE = 77
# What each rank of a healthy run has called in each communicator.
CALLS = {"AllReduce": 10, "Send": 10, "Recv": 10, "Broadcast": 1, "AllGather": 1}
IN_GRAPH = {"AllReduce": 2}


class Skip(Exception):
    """This user cannot be run here; says why."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """Where users run."""

    target: Target
    nccl: str           # paths
    cudart: str
    areas: str          # where traced processes keep their live areas
    out: pathlib.Path   # outputs and traces, a directory for each run
    gpus: int           # how many devices there are
    limit_s: float      # for a run


@dataclasses.dataclass(frozen=True)
class User:
    name: str
    package: str = ""       # of packages.py
    native: bool = False    # perf.c in place of job.py
    in_one_process: bool = False
    gpus: int = 1           # ranks in each process
    program: str = "job.py"
    graph: bool = False     # launches what it has captured
    copies: int = 1         # of NCCL, each with a communicator of its own
    loose: bool = False     # makes calls of its own as well, and not from Python
    faults: tuple = (False, True)

    def on(self, gpus: int) -> User:
        """The same with no more ranks in a process than there are devices."""
        return dataclasses.replace(self, gpus=min(self.gpus, gpus))

    @property
    def processes(self) -> int:
        return 1 if self.in_one_process else RANKS


USERS = [
    User("native", native=True),
    User("native-one-process", native=True, in_one_process=True, gpus=RANKS),
    User("ctypes"),
    User("nccl4py", "nccl4py"),
    User("vllm", "vllm"),
    User("vllm-graph", "vllm", graph=True),
    User("sglang", "sglang"),
    User("cupy", "cupy"),
    User("cupyx", "cupy"),
    User("mixed", "cupy", copies=2),
]
# Those that take a real GPU, and are not fetched.
ON_GPU = [User("jax", program="jax_job.py", loose=True)]


def line_of(marker: str) -> str:
    """job.py:LINE of the line with this comment."""
    for number, line in enumerate((HERE / "job.py").read_text(encoding="utf-8").splitlines(), 1):
        if line.endswith("# " + marker):
            return f"job.py:{number}"
    raise KeyError(marker)


def build_native(out: pathlib.Path, setting: Setting) -> pathlib.Path:
    program = out / "perf"
    command = [os.environ.get("CC", "gcc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g",
               "-I" + str(ROOT / "tests/sim/include"), "-o", str(program), str(HERE / "perf.c"), setting.nccl,
               setting.cudart, "-Wl,--allow-shlib-undefined"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skip("perf.c does not compile: " + done.stderr.strip().replace("\n", "; "))
    return program


class Run:
    """One run of one user: its processes, its directory, its traces."""

    def __init__(self, user: User, fault: bool, setting: Setting, site: pathlib.Path | None) -> None:
        self.user, self.fault, self.setting, self.site = user, fault, setting, site
        self.place = setting.out / (user.name + ("-skip" if fault else ""))
        shutil.rmtree(self.place, ignore_errors=True)
        self.traces, self.meet = self.place / "traces", self.place / "meet"
        self.meet.mkdir(parents=True)
        self.deadline = time.monotonic() + setting.limit_s
        program = build_native(self.place, setting) if user.native else None
        self.processes = [self.start(number, program) for number in range(user.processes)]

    def start(self, number: int, program: pathlib.Path | None) -> subprocess.Popen:
        setting = self.setting
        environment = setting.target.environment(number, self.user.processes, str(self.place))
        environment.update(NCCLTRACE_DIR=str(self.traces), NCCLTRACE_SHM=setting.areas, USERS_NCCL=setting.nccl,
                           USERS_CUDART=setting.cudart, PYTHONPATH=str(self.site or ""))
        # Each says by itself who it is, and not every launcher says it in the environment.
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            environment.pop(name, None)
        device = str(setting.target.device(number))
        if program:
            command = [str(program), str(number), str(self.user.processes), str(self.user.gpus), device, str(self.meet)]
            command += [str(CULPRIT)] if self.fault else []
        else:
            module, _, _ = self.user.name.partition("-")
            command = [sys.executable, str(HERE / self.user.program), module, f"--rank={number}", f"--size={RANKS}",
                       f"--device={device}", f"--meet={self.meet}", "--fault=" + ("skip" if self.fault else "none"),
                       f"--culprit={CULPRIT}", *(["--graph"] if self.user.graph else [])]
        with open(self.place / f"rank{number}.log", "wb") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT,
                                    stdin=subprocess.DEVNULL, cwd=self.place, start_new_session=True)

    def last_words(self, number: int) -> str:
        lines = (self.place / f"rank{number}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "no output"

    def end(self) -> None:
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)      # and what it has started
            except ProcessLookupError:
                pass
            process.wait(timeout=30)
        self.setting.target.clean(str(self.place))

    def tool(self, name: str, *arguments: str) -> str:
        command = [self.setting.target.tool(name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False).stdout

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
        if self.user.loose:
            made = [call["function"] for call in trace["calls"]]
            return [f"{made.count(name)} of {CALLS[name]} {name}" for name in ("AllReduce", "Send", "Recv", "AllGather")
                    if made.count(name) < CALLS[name]]
        wrong = []
        comms = trace["header"]["communicators"]
        if len(comms) != self.user.gpus * self.user.copies:
            wrong.append(f"{len(comms)} communicators, not {self.user.gpus * self.user.copies}")
        paths = {value for name, value in trace["header"]["evidence"].items() if re.fullmatch(r"nccl\.\d+\.path", name)}
        if len(paths) != self.user.copies:
            wrong.append(f"NCCL is {sorted(paths)}")
        for numbers in [[comm["number"]] for comm in comms] if self.user.copies == 1 else [[1, 2]]:
            calls = [call["function"] for call in trace["calls"] if call["comm_number"] in numbers]
            expected = IN_GRAPH if self.user.graph else CALLS
            wrong += [f"{calls.count(name)} of {wanted} {name}" for name, wanted in expected.items()
                      if calls.count(name) != wanted]
        wrong += [f"the communicator is {comm['state']}" for comm in comms if comm["state"] != "destroyed"]
        step, most = ("cudaGraphLaunch" if self.user.graph else "GroupEnd"), 10
        made = [call["function"] for call in trace["calls"]].count(step)
        if made < most:
            wrong.append(f"{made} of {most} {step}")
        wrong += [f"{call['function']} gave {call['result']}" for call in trace["calls"] if call["result"] != "ok"]
        return wrong

    def unnamed(self, trace: str) -> list:
        """Lines of the job that no call's stack leads to."""
        if self.user.native or self.user.loose:
            return []
        text = self.tool("nccltrace", "show", "--stacks", trace)
        names = ("launch",) if self.user.graph else ("all-reduce", "exchange", "broadcast", "all-gather")
        lines = [line_of("CALL " + name) for name in names]
        return [f"no stack leads to {line}" for line in lines if f"{line} " not in text]

    def hung(self) -> list:
        """Looks until the verdict is right, or the time is up."""
        wrong = ["no verdict"]
        while wrong and time.monotonic() < self.deadline:
            if any(process.poll() is not None for process in self.processes):
                self.statuses()
                return [f"a process ended before its time: {self.last_words(0)}"]
            time.sleep(0.2)
            if self.user.graph:
                # The culprit is outside NCCL, and where, only a dump tells.
                self.tool("nccltrace", "dump", "--dir", str(self.traces))
            seen = self.verdict()
            wrong = self.misjudged(seen)
        return wrong

    def misjudged(self, seen: dict) -> list:
        first = (seen.get("findings") or [{}])[0]
        found = (seen["verdict"], first.get("blame"), first.get("op"), first.get("seq"))
        # A process of several ranks is a rank of the job; which of its own is to blame is said.
        blame = "0" if self.user.in_one_process else str(CULPRIT)
        if self.user.in_one_process and f"communicator rank {CULPRIT} " not in first.get("summary", ""):
            return [f"found {first.get('summary')}"]
        wanted = ("missing", blame, "cudaGraphLaunch" if self.user.graph else "AllReduce", 7)
        if found != wanted and (not self.user.loose or found[:3] != wanted[:3]):
            return [f"found {found}"]
        # Where the wait on the host is seen, that is where the culprit is.
        places = [line_of("CALL all-reduce"), line_of("WAIT all-reduce")]
        if self.user.graph:
            places = ["wait_for_a_request"]
        named = self.user.native or self.user.loose or any(place in json.dumps(first) for place in places)
        return [] if named else [f"{' or '.join(places)} is not named"]


def check(user: User, fault: bool, setting: Setting, site: pathlib.Path | None) -> list:
    """What is wrong; raises Skip."""
    run = Run(user.on(setting.gpus), fault, setting, site)
    try:
        return run.hung() if fault else run.healthy()
    finally:
        run.end()


def outcomes(user: User, setting: Setting, most_megabytes: int, wheels: pathlib.Path | None):
    """(name, what is wrong, reason to skip) of the runs of a user."""
    names = [f"user {user.name}: every call is seen", f"user {user.name}: who left out a call is named"]
    try:
        site = site_of(PACKAGES[user.package], most_megabytes, wheels) if user.package else None
        for fault in user.faults:
            if fault and user.in_one_process and setting.gpus <= CULPRIT:
                continue    # there is no such rank
            yield names[fault], check(user, fault, setting, site), ""
    except (Missing, Skip) as reason:
        yield f"user {user.name}", [], str(reason)
