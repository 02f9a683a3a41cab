# SPDX-License-Identifier: Apache-2.0
"""Runs one scenario's processes: starts them, decides whether the job hung, ends them, cleans up.

Everything that happens arrives in one queue: ranks report through the store, and one thread per
process waits for its end. The job counts as hung once nothing has ended for the scenario's timeout;
the clock starts when every process is ready or gone, and at each end. Real NCCL is given ten times as long,
if ranks still get on. The caller then looks at the job, which keeps hanging until `close`.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import queue
import signal
import subprocess
import threading
import time

from scenario.program import Plan
from scenario.progress import Progress
from scenario.store import Store
from scenario.syntax import Scenario
from scenario.target import Target

START_SECONDS = 120.0
LEAVE_SECONDS = 5.0


class JobError(Exception):
    """The driver, not the scenario, went wrong."""


class Job:
    """The processes of one run. `folder` is the job's own; its subfolder `trace` holds the traces."""

    def __init__(self, scenario: Scenario, plan: Plan, target: Target, folder: str) -> None:
        self.scenario, self.target, self.folder = scenario, target, folder
        self.trace_dir = os.path.join(folder, "trace")
        os.makedirs(self.trace_dir, exist_ok=True)
        self.grace = LEAVE_SECONDS + target.quiet
        self.wrong: list = []           # results that failed their check
        self.events: queue.Queue = queue.Queue()
        self.store = Store(self.events)
        self.processes: list = []
        self.names: list = []           # what the names of each process's live areas begin with
        self.codes: dict = {}           # rank -> exit code, negative for a signal
        self.ready: set = set()
        self.job_file = os.path.join(folder, "job.json")
        steps = os.path.join(folder, "progress")
        self.progress = Progress(steps, make_for=scenario.ranks)
        ranks = range(scenario.ranks)
        with open(self.job_file, "w", encoding="utf-8") as file:
            json.dump({"scenario": os.path.abspath(scenario.path), "store": self.store.address,
                       "shim": target.shim, "progress": steps, "devices": [target.device(rank) for rank in ranks],
                       "plans": [plan.for_rank(rank) for rank in ranks]}, file)

    @property
    def pids(self) -> list:
        return [process.pid for process in self.processes]

    def live_areas(self) -> list:
        """(rank, path) of what the ranks have left for tools on this machine, and no tool has collected yet."""
        return [(rank, path) for rank, name in enumerate(self.names)
                for path in glob.glob(os.path.join(live_area_dir(), name + "-*"))]

    @property
    def alive(self) -> list:
        """Ranks whose process has not ended."""
        return [rank for rank in range(len(self.processes)) if rank not in self.codes]

    def run(self) -> str:
        """hung, done or failed. A hung job still hangs when this returns."""
        for rank in range(self.scenario.ranks):
            self._start(rank)
        self._gather(lambda: len(self.ready | set(self.codes)) == self.scenario.ranks, START_SECONDS)
        if len(self.ready | set(self.codes)) < self.scenario.ranks:
            raise JobError(f"not all processes reached the first statement within {START_SECONDS:.0f} s")
        for rank in self.alive:
            self.store.tell(rank, "go")
        while self.alive:
            ended = len(self.codes)
            self._gather(lambda: len(self.codes) > ended, self.scenario.timeout)
            if len(self.codes) == ended and not self._ends_later(ended):
                return "hung"
        return "failed" if any(self.codes.values()) else "done"

    def _ends_later(self, ended: int) -> bool:
        """Whether one more rank ends while the target's patience lasts: as long as steps are made."""
        deadline, before = time.monotonic() + self.scenario.timeout * (self.target.patience - 1), -1
        while time.monotonic() < deadline and self.progress.total() != before and len(self.codes) == ended:
            before = self.progress.total()
            self._gather(lambda: len(self.codes) > ended, self.target.quiet)
        return len(self.codes) > ended

    def leave(self) -> None:
        """Ends the job as frameworks do: processes with unfinished work give up, the launcher ends the rest."""
        stayed: set = set()
        for rank in self.alive:
            self.store.tell(rank, "leave stuck")
        self._gather(lambda: set(self.alive) <= stayed, self.grace, stayed)
        for rank in self.alive:
            self.store.tell(rank, "leave")
        self._gather(lambda: not self.alive, self.grace)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to every process of the job, children included; returns when all ranks are gone."""
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        deadline = time.monotonic() + self.grace
        while self.alive and time.monotonic() < deadline:
            try:
                self._gather(lambda: not self.alive, self.grace)
            except JobError:
                continue                # said before the end that is waited for here

    def close(self) -> None:
        """Leaves nothing of the job behind but its folder."""
        self.kill()
        self.store.close()
        remove(path for _, path in self.live_areas())
        self.target.clean(self.folder)

    def logs(self) -> str:
        """What the ranks printed."""
        parts = []
        for rank in range(len(self.processes)):
            with open(self._log(rank), encoding="utf-8", errors="replace") as file:
                parts += [f"    rank {rank}: {line.rstrip()}\n" for line in file]
        return "".join(parts)

    def _log(self, rank: int) -> str:
        return os.path.join(self.folder, f"rank{rank}.log")

    def _start(self, rank: int) -> None:
        environment = self.target.environment(rank, self.scenario.ranks, self.folder)
        environment["NCCLTRACE_DIR"] = self.trace_dir
        for ranks, name, value in self.scenario.env:
            if rank in ranks:
                environment[name] = value
        command = [*self.target.interpreter(environment), "-S", "-E", "-X", f"pycache_prefix={self.target.pycache}",
                   os.path.join(os.path.dirname(__file__), "rank.py"), self.job_file, str(rank)]
        with open(self._log(rank), "wb") as log:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       cwd=self.folder, start_new_session=True)
        self.processes.append(process)
        self.names.append(f"{process.pid}-{start_time(process.pid)}")
        threading.Thread(target=lambda: self.events.put(("ended", rank, process.wait())), daemon=True).start()

    def _gather(self, enough, seconds: float, stayed: set | None = None) -> None:
        """Takes events until `enough()` or until the time is over."""
        deadline = time.monotonic() + seconds
        while not enough():
            try:
                event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return
            self._take(event, stayed)

    def _take(self, event: tuple, stayed: set | None) -> None:
        what, rank = event[:2]
        if what == "ended":
            self.codes[rank] = event[2]
        elif what == "ready":
            self.ready.add(rank)
        elif what == "stay" and stayed is not None:
            stayed.add(rank)
        elif what == "crash":
            raise JobError(f"the driver of rank {rank} failed: {event[2].strip().splitlines()[-1]}")
        elif what == "wrong":
            self.wrong.append(f"rank {rank}: {event[2]}")


def live_area_dir() -> str:
    return f"/dev/shm/nccltrace-{os.getuid()}"


def remove(paths) -> None:
    """Removes live areas; any tool that runs meanwhile may have done so."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def start_time(pid: int) -> str:
    """In ticks since boot: with the number, which the next process may get, it names a process. See proc(5)."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[19]
