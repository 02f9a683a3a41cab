# SPDX-License-Identifier: Apache-2.0
"""Takes the traces of a job as a user would, and asks tracediff about them."""

from __future__ import annotations

import glob
import json
import os
import subprocess

from scenario.job import Job, remove
from scenario.target import Target

TOOL_SECONDS = 60.0
STATUS_OF = {True: 0, False: 1}     # exit status by "the verdict is consistent"


class ToolError(Exception):
    """A tool did not do what its documentation promises."""


class Report:
    """What tracediff said: its JSON, and the same for people."""

    def __init__(self, verdict: dict, text: str) -> None:
        self.json, self.text = verdict, text


def take(job: Job, hung: bool) -> Report:
    """The report on a job that hangs or has ended, by the scenario's way of taking evidence."""
    how = job.scenario.evidence
    if hung and how == "dump":
        pids = [str(job.pids[rank]) for rank in job.alive]
        _call([job.target.tool("nccltrace"), "dump", *pids], (0, 1))     # 1: some process did not answer
    elif hung and how == "kill":
        job.kill()
    elif hung and how == "exit":
        job.leave()
    for rank in sorted(job.scenario.drop):
        _drop(job, rank)
    return analyse(job.target, job.trace_dir)


def analyse(target: Target, folder: str) -> Report:
    """Both forms of tracediff's report on the traces in `folder`."""
    tool = target.tool("tracediff")
    output, status = _call([tool, "--json", folder], (0, 1))
    try:
        verdict = json.loads(output)
        consistent = verdict["verdict"] == "consistent"
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"tracediff --json wrote no verdict: {error}") from error
    if status != STATUS_OF[consistent]:
        raise ToolError(f"tracediff ended with status {status} and the verdict {verdict['verdict']}")
    text, _ = _call([tool, folder], (0, 1))
    return Report(verdict, text)


def _drop(job: Job, rank: int) -> None:
    for path in (glob.glob(os.path.join(job.trace_dir, f"rank{rank}.trace"))
                 + glob.glob(os.path.join(job.trace_dir, f"rank{rank}.*.trace"))):
        os.unlink(path)
    remove(path for other, path in job.live_areas() if other == rank)


def _call(command: list, statuses: tuple) -> tuple:
    """(output, status) of a tool; an unexpected status or a missing tool is a ToolError."""
    name = " ".join([os.path.basename(command[0]), *command[1:2]])
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                                stdin=subprocess.DEVNULL, timeout=TOOL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{name} did not end within {TOOL_SECONDS:.0f} s") from error
    except OSError as error:
        raise ToolError(f"{name} cannot be run: {error.strerror}") from error
    if result.returncode not in statuses:
        said = (result.stderr or result.stdout).strip().splitlines()
        raise ToolError(f"{name} ended with status {result.returncode}: {said[-1] if said else 'no message'}")
    return result.stdout, result.returncode
