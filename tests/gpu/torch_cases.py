# SPDX-License-Identifier: Apache-2.0
"""The faults of torch_job.py under torchrun, and what must be said of each, first live and then after a dump."""

from __future__ import annotations

import concurrent.futures
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

from native import HERE, LIBRARY, end_all, tool, traced

JOB = HERE / "torch_job.py"
LIMIT_S = 90        # for one case until its verdict
SETTLED_S = 20      # a wrong verdict that has not changed for so long will not change
DUMP_S = 20         # for a dump that is to come by itself
ARRIVE_S = 20       # for a rank to come to where it stays


@dataclasses.dataclass(frozen=True)
class Case:
    """Lines are named by the comment that marks them in torch_job.py."""

    fault: str
    ranks: int
    culprit: int | None
    verdict: str                        # several, separated by |
    call: tuple | None = ("AllReduce", 7)
    blame: str | None = ""              # "": the culprit
    at: str = ""                        # the live report names this line for the culprit …
    says: str = ""                      # … and this word
    stands: tuple = ()                  # function and line that the report names once a dump was asked for
    watchdog: bool = False              # the dump comes by itself

    @property
    def name(self) -> str:
        return f"{'watchdog' if self.watchdog else self.fault}-{self.ranks}"

    @property
    def blamed(self) -> str | None:
        return str(self.culprit) if self.blame == "" else self.blame


def healthy(ranks: int) -> Case:
    return Case("none", ranks, None, "consistent", call=None, blame=None)


def gpu_stuck(ranks: int, culprit: int) -> Case:
    return Case("gpu-stuck", ranks, culprit, "gpu", at="CALL step", stands=("train_step", "WAIT step"))


def host_stuck(ranks: int, culprit: int, **more) -> Case:
    return Case("host-stuck", ranks, culprit, "missing", at="CALL step",
                stands=("fetch_next_batch", "FAULT host-stuck"), **more)


def kill(ranks: int, culprit: int) -> Case:
    return Case("kill", ranks, culprit, "dead", at="CALL step", says="vanished")


# Of four ranks or more NCCL holds who leaves inside CommDestroy until the others close their connections, of two it goes on to
# upload_checkpoint: both are called from one function.
def leaves_early(ranks: int, culprit: int) -> Case:
    return Case("leaves-early", ranks, culprit, "left", call=("AllReduce", 10), at="FAULT leaves-early",
                says="running", stands=("leave_before_the_others", ""))


# The longest first.
CASES = [
    gpu_stuck(8, 5), host_stuck(8, 6), kill(8, 3), leaves_early(8, 7),
    healthy(4), gpu_stuck(4, 2), host_stuck(4, 0), host_stuck(4, 3, watchdog=True), kill(4, 3), leaves_early(4, 1),
    Case("gil", 4, 1, "missing", at="CALL step", stands=("tokenize_with_c_library", "FAULT gil")),
    Case("sigstop", 4, 2, "missing", at="CALL step", says="stopped"),
    Case("swallowed", 4, 3, "mismatch|missing", at="CALL validate", says="AllGather"),
    Case("finished-waited-for", 4, 2, "left", call=("AllReduce", 11), at="CALL step", says="exited with code 0"),
    Case("skip", 4, 2, "missing", at="CALL step"),
    Case("opposite-order", 4, 2, "cycle", at="CALL opposite-order"),
    # two ranks that differ from the 7th on: either may be wrong
    healthy(2), Case("skip", 2, 1, "mismatch|extra", blame="none"), kill(2, 1), host_stuck(2, 1),
]


def with_a_gpu_each(ranks: int) -> list:
    """The cases for several GPUs beside those of CASES."""
    names = {case.name for case in CASES}
    opposite = Case("opposite-order", ranks, 1, "cycle", at="CALL opposite-order") if ranks > 2 else \
        Case("opposite-order", ranks, 1, "cycle", blame="0-1")
    more = [healthy(ranks), kill(ranks, 1), gpu_stuck(ranks, 1), opposite,
            Case("sigstop", ranks, 1, "missing", at="CALL step", says="stopped")]
    return [case for case in more if case.name not in names]


def place(marker: str) -> str:
    """torch_job.py:LINE of the line with this comment."""
    for number, line in enumerate(JOB.read_text(encoding="utf-8").splitlines(), 1):
        if line.endswith("# " + marker):
            return f"{JOB.name}:{number}"
    raise KeyError(marker)


# ---- reports -----------------------------------------------------------------------------------------


def verdict(directory: pathlib.Path) -> dict:
    done = tool("tracediff", "--json", str(directory))
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"verdict": "unreadable: " + (done.stderr.strip() or done.stdout)[:200], "findings": []}


def first_of(seen: dict) -> dict:
    return (seen.get("findings") or [{}])[0]


def summary(seen: dict) -> str:
    first = first_of(seen)
    return seen["verdict"] + (f" blame {first.get('blame') or 'none'} {first.get('op')} #{first.get('seq')}" if first
                              else "")


def is_named(text: str, line: str) -> bool:
    """Whether torch_job.py:LINE occurs, and not as the beginning of another line's number."""
    return re.search(re.escape(line) + r"(?!\d)", text) is not None


def of_culprit(seen: dict, case: Case) -> str:
    """All that the first finding says of the culprit itself."""
    first = first_of(seen)
    return json.dumps([item for item in first.get("culprits", []) if item.get("rank") == case.culprit] +
                      [line for line in first.get("evidence", []) if line.startswith(f"rank {case.culprit} ")])


def stands_instead(first: dict, case: Case) -> str:
    """Where the report has the culprit, and what it says of its latest call."""
    for item in first.get("culprits", []):
        if item.get("rank") == case.culprit:
            return json.dumps({key: item[key] for key in ("state", "last", "now", "stack") if key in item})[:300]
    return "nothing"


def shortcomings(seen: dict, case: Case, dumped: bool) -> list:
    """What the verdict lacks."""
    first, wrong = first_of(seen), []
    if seen["verdict"] not in case.verdict.split("|") or (first and (first.get("blame") or "none") != case.blamed) \
            or (case.call and (first.get("op"), first.get("seq")) != case.call):
        return [summary(seen)]
    if case.blamed in (None, "none"):
        return []
    about = json.dumps(first) if dumped else of_culprit(seen, case)
    if case.at and not dumped and not is_named(about, place(case.at)):
        wrong.append(f"{place(case.at)} ({case.at}) is not named")
    if case.says and case.says not in json.dumps(first):
        wrong.append(f"'{case.says}' is not said")
    if dumped:
        function, line = case.stands
        if function not in about:
            wrong.append(f"after the dump {function} is not named, but {stands_instead(first, case)}")
        if line and not is_named(about, place(line)):
            wrong.append(f"after the dump {place(line)} ({line}) is not named")
    return wrong


def expectation(case: Case) -> str:
    parts = [case.verdict + (f" blame {case.blamed}" if case.blamed else "")]
    if case.call:
        parts[0] += f" {case.call[0]} #{case.call[1]}"
    if case.at:
        parts.append(place(case.at))
    if case.says:
        parts.append(f"'{case.says}'")
    if case.stands:
        parts.append(("dump by itself: " if case.watchdog else "dump: ") + case.stands[0])
    return ", ".join(parts)


# ---- running -----------------------------------------------------------------------------------------


def torchrun(ranks: int, arguments: list, environment: dict, gpus: int, log: pathlib.Path) -> subprocess.Popen:
    """--standalone: a port of its own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(JOB),
               f"--gpus={gpus}", *arguments]
    with open(log, "w", encoding="utf-8") as sink:
        return subprocess.Popen(command, env=environment, stdout=sink, stderr=subprocess.STDOUT,
                                stdin=subprocess.DEVNULL, start_new_session=True)


def end(job: subprocess.Popen, directory: pathlib.Path) -> None:
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    end_all(directory)
    job.wait(timeout=30)


def await_verdict(job: subprocess.Popen, case: Case, directory: pathlib.Path) -> dict:
    """Looks at the job as it runs until the verdict is as expected, or will not become so."""
    deadline = time.monotonic() + LIMIT_S
    seen, since, ended = {"verdict": "no trace", "findings": []}, time.monotonic(), False
    while time.monotonic() < deadline and not ended:
        ended = job.poll() is not None
        before = summary(seen)
        if directory.exists():
            seen = verdict(directory)
        if seen["verdict"] in ("consistent", "no trace") or summary(seen) != before:
            since = time.monotonic()
        if case.verdict != "consistent" and not shortcomings(seen, case, False):
            break
        if time.monotonic() - since > SETTLED_S:
            break
        time.sleep(0.5)
    return seen


def has_dumps() -> bool:
    return "--dump" in tool("nccltrace", "show", "--help").stdout


def holds_watchdog_dump(directory: pathlib.Path) -> bool:
    """Whether a trace holds a dump that nobody has asked for."""
    traces = sorted(map(str, directory.glob("*.trace")))
    return '"watchdog"' in tool("nccltrace", "show", "--json", "--dump", *traces).stdout


def check_dump(case: Case, directory: pathlib.Path) -> tuple:
    """(verdict after the dump, what is wrong)."""
    if case.watchdog:
        deadline = time.monotonic() + DUMP_S
        while not holds_watchdog_dump(directory):
            if time.monotonic() > deadline:
                return verdict(directory), [f"no dump came by itself within {DUMP_S} s"]
            time.sleep(0.5)
        seen = verdict(directory)
        return seen, shortcomings(seen, case, True)
    # A rank may still be on its way to where it stays, inside the end of a communicator for instance.
    deadline = time.monotonic() + ARRIVE_S
    while True:
        done = tool("nccltrace", "dump", "--dir", str(directory), seconds=20)
        seen = verdict(directory)
        if done.returncode:
            return seen, ["dump: " + (done.stderr or done.stdout).strip().replace("\n", "; ")]
        wrong = shortcomings(seen, case, True)
        if not wrong or time.monotonic() > deadline:
            return seen, wrong
        time.sleep(1)


def run_case(case: Case, out: pathlib.Path, gpus: int, keep: bool) -> tuple:
    """One row: name, expectation, "ok" or what was wrong."""
    directory = out / ("traces-" + case.name)
    shutil.rmtree(directory, ignore_errors=True)
    more = {"NCCLTRACE_WATCHDOG": "5"} if case.watchdog else {}
    arguments = ["--fault", case.fault] + ([] if case.culprit is None else ["--culprit", str(case.culprit)])
    job = torchrun(case.ranks, arguments, traced(directory, TORCH_NCCL_ENABLE_MONITORING="0", OMP_NUM_THREADS="1",
                                                 **more), gpus, out / (case.name + ".log"))
    note = ""
    try:
        seen = await_verdict(job, case, directory)
        wrong = shortcomings(seen, case, False)
        if seen["verdict"] == "no trace":
            wrong += (out / (case.name + ".log")).read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        if case.stands and not wrong and not has_dumps():
            note = "; dumps cannot be shown yet: not checked"
        elif case.stands and not wrong:
            seen, wrong = check_dump(case, directory)
        report = tool("tracediff", str(directory))
        (out / (case.name + ".report")).write_text(report.stdout + report.stderr, encoding="utf-8")
        (out / (case.name + ".json")).write_text(json.dumps(seen, indent=1), encoding="utf-8")
    finally:
        end(job, directory)
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)
    return ("torchrun " + case.name, expectation(case), "FAIL: " + "; ".join(wrong) if wrong else "ok" + note)


def identical_results(out: pathlib.Path, gpus: int) -> tuple:
    """The same training with and without the library ends in the same bits."""
    digests = []
    for preload in ("", str(LIBRARY)):
        directory, log = out / "traces-bits", out / "bits.log"
        job = torchrun(2, ["--fault", "none"], dict(traced(directory, OMP_NUM_THREADS="1"), LD_PRELOAD=preload), gpus,
                       log)
        try:
            job.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            pass
        end(job, directory)
        match = re.search(r"parameters (\w+)", log.read_text(encoding="utf-8", errors="replace"))
        digests.append(match.group(1) if match else "no result")
    same = digests[0] == digests[1] and digests[0] != "no result"
    return ("training with and without the library", "identical bits", "ok" if same else f"FAIL: {digests}")


def torch_cases(names: list | None, out: pathlib.Path, gpus: int, keep: bool, jobs: int) -> list:
    """All rows, some cases at a time; a case that cannot be run at all is a row that says so."""
    cases = CASES + (with_a_gpu_each(gpus) if gpus > 1 else [])
    chosen = [case for case in cases if not names or case.name in names]

    def guarded(work, name: str, *arguments) -> tuple:
        try:
            row = work(*arguments)
        except Exception as error:      # pylint: disable=broad-except
            row = (name, "a verdict", f"FAIL: {type(error).__name__}: {error}")
        print(*row, flush=True)
        return row
    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        rows = [pool.submit(guarded, run_case, "torchrun " + case.name, case, out, gpus, keep) for case in chosen]
        if not names:
            rows.append(pool.submit(guarded, identical_results, "identical results", out, gpus))
        return [row.result() for row in rows]
