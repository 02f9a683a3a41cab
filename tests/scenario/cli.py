# SPDX-License-Identifier: Apache-2.0
"""The command line of tests/run-scenario: runs files, a few at a time, prints a line for each."""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import shutil
import sys
import tempfile

from scenario import properties, verdict
from scenario.evidence import Report, ToolError, take
from scenario.job import Job, JobError
from scenario.parse import load
from scenario.program import Plan
from scenario.syntax import Scenario, ScenarioError
from scenario.target import ROOT, RealNccl, Simulator, Target, TargetError


class Result:
    """One scenario's line, and what --explain or a failure adds to it."""

    def __init__(self, status: str, name: str, reason: str = "", explanation: str = "") -> None:
        self.status, self.name, self.reason, self.explanation = status, name, reason, explanation

    def __str__(self) -> str:
        return f"{self.status} {self.name}" + (f": {self.reason}" if self.reason else "")


def run_file(path: str, target: Target, options: argparse.Namespace) -> Result:
    """Runs one scenario from its file to its verdict."""
    name = os.path.basename(path)
    name = name[:-4] if name.endswith(".scn") else name
    try:
        scenario = load(path)
    except ScenarioError as error:
        return Result("FAIL", name, str(error))
    reason = reason_to_skip(scenario, options.real)
    if reason:
        return Result("skip", name, reason)
    folder = make_folder(name, options.keep)
    try:
        return run_scenario(scenario, target, folder, options)
    except Exception as error:
        return Result("FAIL", name, f"the runner failed: {error!r}")
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def reason_to_skip(scenario: Scenario, real: bool) -> str:
    return "not for real NCCL" if real and not scenario.real else ""


def make_folder(name: str, keep: str | None) -> str:
    """A new folder for one run: below `keep`, with a number if the name is taken, or a temporary one."""
    if not keep:
        return tempfile.mkdtemp(prefix="ncclscn-")
    os.makedirs(keep, exist_ok=True)
    number = 0
    while True:
        folder = os.path.join(os.path.abspath(keep), name + (f".{number}" if number else ""))
        try:
            os.mkdir(folder)
            return folder
        except FileExistsError:
            number += 1


def run_scenario(scenario: Scenario, target: Target, folder: str, options: argparse.Namespace) -> Result:
    plan = Plan(scenario)
    job = Job(scenario, plan, target, folder)
    differences: list = []
    report: Report | None = None
    try:
        run = job.run()
        differences += verdict.check_run(scenario, run)
        if options.verdict:
            report = take(job, run == "hung")
            save(report, folder)
            differences += verdict.check_report(scenario, plan, report.json, report.text)
        if options.properties:
            job.kill()
            copy = properties.take_copy(job, os.path.join(folder, "copy"))
            differences += properties.check(scenario, target, copy)
    except (JobError, ToolError) as error:
        differences.append(str(error))
    finally:
        job.close()
    if job.wrong:
        more = f" (and {len(job.wrong) - 1} more)" if len(job.wrong) > 1 else ""
        differences.append(f"expected right data, got a wrong result: {job.wrong[0]}{more}")
    told = options.explain or differences
    explanation = job.logs() + (report.text if report else "") if told else ""
    return Result("FAIL" if differences else "ok", scenario.name, "; ".join(differences), explanation)


def save(report: Report, folder: str) -> None:
    """Puts what tracediff said beside the traces it spoke of, for --keep."""
    with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
        json.dump(report.json, file, indent=2)
    with open(os.path.join(folder, "report.txt"), "w", encoding="utf-8") as file:
        file.write(report.text)


def parse_arguments(argv: list) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run-scenario", description="Runs scenarios and checks tracediff's verdicts.")
    parser.add_argument("files", nargs="+", metavar="FILE.scn")
    parser.add_argument("--real", action="store_true", help="on real NCCL and a GPU instead of the simulator")
    parser.add_argument("--gpus", type=int, default=1, metavar="N",
                        help="with --real: spread the ranks over N GPUs (default 1)")
    parser.add_argument("--keep", metavar="DIR", help="keep each scenario's traces and logs below DIR")
    parser.add_argument("--explain", action="store_true", help="print the ranks' output and tracediff's report, as is done for what fails")
    parser.add_argument("--no-verdict", dest="verdict", action="store_false",
                        help="check only how the jobs end and their data, not tracediff")
    parser.add_argument("--properties", action="store_true",
                        help="check as well what must hold of any verdict: see scenario/properties.py")
    parser.add_argument("--list", action="store_true", help="print names and titles; run nothing")
    parser.add_argument("-j", dest="jobs", type=int, default=4, metavar="N", help="scenarios at a time (default 4)")
    parser.add_argument("--build", default=os.environ.get("BUILD", "build"), metavar="DIR",
                        help="build directory (default: $BUILD or build, below the project)")
    parser.add_argument("--python", metavar="COMMAND", help="what runs the ranks, for a build for another processor")
    parser.add_argument("--tools", metavar="DIR", help="the build directory whose tracediff is asked (default: the same)")
    return parser.parse_args(argv)


def list_files(files: list) -> int:
    status = 0
    for path in files:
        try:
            scenario = load(path)
            print(f"{scenario.name:40} {scenario.title}")
        except ScenarioError as error:
            print(f"FAIL {error}")
            status = 1
    return status


def main(argv: list) -> int:
    options = parse_arguments(argv)
    if options.list:
        return list_files(options.files)
    build = os.path.join(ROOT, options.build)
    try:
        target = RealNccl(build, options.gpus) if options.real else Simulator(build)
        target.python = options.python.split() if options.python else target.python
        target.tools = os.path.join(ROOT, options.tools) if options.tools else target.tools
    except TargetError as error:
        print(f"run-scenario: {error}", file=sys.stderr)
        return 2
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
        results = [pool.submit(run_file, path, target, options) for path in options.files]
        try:
            for result in (future.result() for future in results):
                print(result, flush=True)
                print(result.explanation, end="", flush=True)
                counts[result.status] += 1
        except KeyboardInterrupt:
            print("run-scenario: interrupted; the running scenarios still clean up", file=sys.stderr)
            for future in results:
                future.cancel()
            return 130
    skipped = f", {counts['skip']} skipped" if counts["skip"] else ""
    print(f"{counts['ok']} passed, {counts['FAIL']} failed{skipped}")
    return 1 if counts["FAIL"] else 0
