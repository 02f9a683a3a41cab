# SPDX-License-Identifier: Apache-2.0
"""What must hold of every verdict, whatever the scenario: --properties.

  order    the order in which files are named changes nothing, not a byte of the JSON
  names    other world ranks give the same verdict, with the ranks renamed
  absence  without the traces of some ranks nobody is blamed who is not to blame
  rest     while one who waits still has a trace, something is found; and who is missing, dead or has left is no matter
           of votes: the same ranks are blamed, or it is undecided
  digest   digests of the traces, made while the job was there as the traces were, give the same verdict: class, blame,
           operation and position; smaller ones the same, or it is undecided, nobody else is blamed, and of devices and
           messages somebody is named who is to blame
  away     from files alone, read on another machine, nobody is blamed who is not to blame
  cut      where a file lacks its end, and its live area is gone, nobody is blamed who is not to blame
  window   of the files alone, and of digests, the verdict is the same, however few calls of each are read first

The files are copies taken once all processes have ended, live areas included. Where something is told by the
order of ranks, names do matter and are left alone: who lacks a trace, who has not come to a creation, and who
claims another's place in one.
A finding that is `undecided` blames nobody: it names those among whom somebody is.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import random
import re
import shutil
import subprocess

from scenario.evidence import TOOL_SECONDS, ToolError
from scenario.job import Job
from scenario.syntax import Scenario, format_ranks, parse_ranks
from scenario.target import Target

ORDERS = 3              # orders of the files
NAMES = 2               # permutations of world ranks
ABSENCES = 6            # sets of ranks that are left out
CUTS = (0.2, 0.85, 0.97)        # how much is left of a file
FEW = 8                 # calls that are left in a small digest
WINDOWS = 3, 5, 8, 16   # calls that are read first
MANY = 1 << 20
BY_ORDER = {"init"}                             # classes that may rest on the order of ranks
# Who died first, whom an error reached first, and in what a rank that still works is killed, is told by a moment that a
# busy machine does not keep.
BY_MOMENT = {"healthy-killed-within-a-tick",
             "mismatch-whose-error-ends-an-innocent-rank"}
# What does not hold yet: scenario -> property. One that holds again must be taken out.
OPEN: dict = {}


class Copy:
    """Files of an ended job: `files` by rank, each of a rank that has one, and the areas' folder."""

    def __init__(self, folder: str) -> None:
        self.folder, self.areas = folder, os.path.join(folder, "areas")
        self.files: list = []           # (rank, path)
        self.area_files: list = []      # likewise
        os.makedirs(self.areas)

    def paths(self, without=()) -> list:
        return [path for rank, path in self.files if rank not in without]


def take_copy(job: Job, folder: str) -> Copy:
    """All that an ended job has left. Areas first: any tool may collect one meanwhile, into its file."""
    copy = Copy(folder)
    for rank, path in job.live_areas():
        with contextlib.suppress(FileNotFoundError):
            copy.area_files.append((rank, shutil.copyfile(path, os.path.join(copy.areas, os.path.basename(path)))))
    for path in sorted(glob.glob(os.path.join(job.trace_dir, "*.trace"))):
        rank = int(re.match(r"rank(\d+)", os.path.basename(path)).group(1))
        copy.files.append((rank, shutil.copy2(path, folder)))
    known = {rank for rank, _ in copy.files}
    copy.files += [(rank, path) for rank, path in copy.area_files if rank not in known]
    return copy


def renamed(target: Target, copy: Copy, order: list, folder: str) -> Copy:
    """The same with other world ranks: rank r is order[r]."""
    other = Copy(folder)
    there = {path: shutil.copy2(path, other.areas) for _, path in copy.area_files}
    there |= {path: shutil.copy2(path, folder) for _, path in copy.files if path not in there}
    other.files = [(order[rank], there[path]) for rank, path in copy.files]
    files = sorted(there.values())
    result = subprocess.run([target.tool("scenario/renumber"), ",".join(map(str, order)), *files], check=False,
                            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TOOL_SECONDS)
    if result.returncode:
        raise ToolError(f"renumber: {result.stderr.strip()}")
    return other


def diagnose(target: Target, copy: Copy, paths: list, *options: str, areas: str = "") -> str:
    """tracediff's JSON on these files."""
    try:
        result = subprocess.run([target.tool("tracediff"), "--json", *options, *paths], capture_output=True, text=True, check=False,
                                errors="replace", stdin=subprocess.DEVNULL, timeout=TOOL_SECONDS,
                                env={**os.environ, "NCCLTRACE_SHM": areas or copy.areas})
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"tracediff did not end within {TOOL_SECONDS:.0f} s") from error
    if result.returncode not in (0, 1):
        raise ToolError(f"tracediff ended with status {result.returncode}: {result.stderr.strip()[-200:]}")
    return result.stdout


def check(scenario: Scenario, target: Target, copy: Copy) -> list:
    """Differences, as in verdict.py. `copy` has the scenario's evidence."""
    if not copy.files:
        return []
    chance = random.Random(scenario.name)
    base = diagnose(target, copy, copy.paths())
    present = {rank for rank, _ in copy.files}
    found = {"order": check_order(target, copy, base, chance), "names": [],
             "absence": [], "rest": [], "cut": [], "away": []}
    found["digest"] = check_digests(scenario, target, copy, json.loads(base))
    found["window"] = check_windows(target, copy)
    if scenario.name not in BY_MOMENT:
        found |= check_absence(scenario, target, copy, json.loads(base), chance)
        found["away"] = check_away(scenario, target, copy, json.loads(base))
        found["cut"] = check_cuts(scenario, target, copy, json.loads(base), chance)
    if not scenario.drop and present == set(range(scenario.ranks)) \
            and json.loads(base)["verdict"] not in BY_ORDER:
        found["names"] = check_names(scenario, target, copy, json.loads(base), chance)
    known = OPEN.get(scenario.name, "")
    if known and not found[known]:
        return [f"expected {known} not to hold yet, got that it does: take the scenario out of OPEN"]
    return [difference for name, differences in found.items() if name != known for difference in differences]


def check_order(target: Target, copy: Copy, base: str, chance: random.Random) -> list:
    paths = copy.paths()
    orders = [paths[::-1], paths[1:] + paths[:1]] + [chance.sample(paths, len(paths)) for _ in range(ORDERS - 2)]
    for order in orders:
        if order != paths and diagnose(target, copy, order) != base:
            return [f"expected one verdict in every order, got another for {' '.join(map(os.path.basename, order))}"]
    return []


def check_names(scenario: Scenario, target: Target, copy: Copy, base: dict, chance: random.Random) -> list:
    ranks = list(range(scenario.ranks))
    orders = [ranks[::-1]] + [chance.sample(ranks, len(ranks)) for _ in range(NAMES - 1)]
    differences = []
    for number, order in enumerate(orders):
        if order == ranks:
            continue
        other = renamed(target, copy, order, os.path.join(copy.folder, f"names{number}"))
        got = summary(json.loads(diagnose(target, other, other.paths())), ranks)
        wanted = summary(base, order)
        differences += [f"expected the same with ranks {','.join(map(str, ranks))} named {','.join(map(str, order))}, "
                        f"got {what} {got[what]}, not {wanted[what]}" for what in wanted if wanted[what] != got[what]]
        shutil.rmtree(other.folder, ignore_errors=True)
    return differences


def check_absence(scenario: Scenario, target: Target, copy: Copy, base: dict, chance: random.Random) -> dict:
    present = sorted({rank for rank, _ in copy.files})
    guilty = blamed(base) | expected_ranks(scenario, "blame")
    innocents = expected_ranks(scenario, "innocent") or set(range(scenario.ranks))
    found: dict = {"absence": [], "rest": []}
    for absent in absences(present, chance):
        report = json.loads(diagnose(target, copy, copy.paths(absent)))
        innocent = (blamed(report) & innocents) - guilty - set(absent)
        got = f"without the traces of {format_ranks(absent)}, got {report['verdict']}"
        if innocent:
            found["absence"].append(f"expected nobody else to be blamed {got} blaming {format_ranks(innocent)}")
        first = base["findings"][0] if base["findings"] else None
        if not first or set(absent) & set(ranks_of(first["blame"])) or first["confidence"] == "undecided" \
                or not set(ranks_of(first["waiting"])) - set(ranks_of(first["blame"])) - set(absent):
            continue
        other = report["findings"][0] if report["findings"] else None
        if not other:
            found["rest"].append(f"expected a finding {got}")
        elif first["class"] in ("missing", "dead", "left") and other["confidence"] != "undecided" \
                and other["blame"] != first["blame"]:
            found["rest"].append(f"expected {first['class']} blaming {first['blame']} {got} blaming {other['blame']}")
    return found


def check_away(scenario: Scenario, target: Target, copy: Copy, base: dict) -> list:
    other = Copy(os.path.join(copy.folder, "away"))
    files = [shutil.copy2(path, other.folder) for _, path in copy.files if path.endswith(".trace")]
    if not files:
        return []
    result = subprocess.run([target.tool("scenario/renumber"), "elsewhere", *files], check=False, capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, timeout=TOOL_SECONDS)
    if result.returncode:
        raise ToolError(f"renumber: {result.stderr.strip()}")
    report = json.loads(diagnose(target, other, files))
    shutil.rmtree(other.folder, ignore_errors=True)
    innocent = (blamed(report) & (expected_ranks(scenario, "innocent") or set(range(scenario.ranks)))) \
        - blamed(base) - expected_ranks(scenario, "blame")
    return [f"expected nobody else to be blamed on another machine, got {report['verdict']} blaming "
            f"{format_ranks(innocent)}"] if innocent else []


def check_cuts(scenario: Scenario, target: Target, copy: Copy, base: dict, chance: random.Random) -> list:
    guilty = blamed(base) | expected_ranks(scenario, "blame")
    innocents = expected_ranks(scenario, "innocent") or set(range(scenario.ranks))
    files = [(rank, path) for rank, path in copy.files if path.endswith(".trace")]
    differences = []
    for (rank, path), left in itertools.product(chance.sample(files, min(len(files), 2)), CUTS):
        others = Copy(os.path.join(copy.folder, "cut"))
        for other, area in copy.area_files:
            if other != rank:
                shutil.copy2(area, others.areas)
        with open(path, "rb") as file:
            data = file.read()
        short = os.path.join(others.folder, os.path.basename(path))
        with open(short, "wb") as file:
            file.write(data[:int(len(data.rstrip(b"\0")) * left)])
        report = json.loads(diagnose(target, others, [short if path == other else other for _, other in files]))
        innocent = (blamed(report) & innocents) - guilty
        if innocent:
            differences.append(f"expected nobody else to be blamed with {left:.0%} of rank {rank}'s trace, got "
                               f"{report['verdict']} blaming {format_ranks(innocent)}")
        shutil.rmtree(others.folder, ignore_errors=True)
    return differences


def check_digests(scenario: Scenario, target: Target, copy: Copy, base: dict) -> list:
    files, few = digests(target, copy, "digests"), digests(target, copy, "small", "--calls", str(FEW))
    report = json.loads(diagnose(target, copy, files))
    differences = [f"expected {what} {told(base)[what]} from digests, got {got}"
                   for what, got in told(report).items() if told(base)[what] != got]
    differences += compare_windows(target, copy, files, "of digests") + compare_windows(target, copy, few, "of small digests")
    report = json.loads(diagnose(target, copy, few))
    innocent = (blamed(report) & (expected_ranks(scenario, "innocent") or set(range(scenario.ranks)))) \
        - blamed(base) - expected_ranks(scenario, "blame")
    if innocent:
        differences.append(f"expected nobody else to be blamed from digests of {FEW} calls, got {report['verdict']} blaming "
                           f"{format_ranks(innocent)}")
    named = set(ranks_of(report["findings"][0]["blame"])) if report["verdict"] in ("gpu", "p2p") else set()
    guilty = expected_ranks(scenario, "blame") | {rank for finding in base["findings"] for rank in ranks_of(finding["blame"])}
    if named and guilty and not named & guilty:
        differences.append(f"expected one of {format_ranks(guilty)} to be named from digests of {FEW} calls, got "
                           f"{report['verdict']} naming {format_ranks(named)}")
    return differences


def collected(target: Target, copy: Copy) -> list:
    """Copies of the files, with what the areas hold of them."""
    other = Copy(os.path.join(copy.folder, "collected"))
    files = [shutil.copy2(path, other.folder) for _, path in copy.files if path.endswith(".trace")]
    areas = [shutil.copy2(path, other.areas) for _, path in copy.area_files]
    if areas and len(areas) <= len(files):
        subprocess.run([target.tool("scenario/renumber"), "collect", *areas], check=False, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=TOOL_SECONDS)
    return files


def check_windows(target: Target, copy: Copy) -> list:
    """A trace with a live area is read as a whole, so there are none. What a file lacks of its process leaves nearly all
    undecided: it is collected first."""
    files = collected(target, copy)
    if not files:
        return []
    return compare_windows(target, copy, files, "of files")


def compare_windows(target: Target, copy: Copy, files: list, whose: str) -> list:
    none = os.path.join(copy.folder, "no-areas")
    os.makedirs(none, exist_ok=True)
    base = told(json.loads(diagnose(target, copy, files, "--full", areas=none)))
    differences = []
    for calls in WINDOWS:
        report = told(json.loads(diagnose(target, copy, files, "--window", str(calls), areas=none)))
        differences += [f"expected {what} {base[what]} by the last {calls} calls {whose}, got {got}"
                        for what, got in report.items() if base[what] != got]
    return differences


def digests(target: Target, copy: Copy, name: str, *options: str) -> list:
    """Made where the copies' areas are; what cannot be cut stays as it is."""
    folder = os.path.join(copy.folder, name)
    paths = copy.paths()
    result = subprocess.run([target.tool("nccltrace"), "digest", "-q", "-o", folder, *options, *paths], check=False,
                            capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                            timeout=TOOL_SECONDS, env={**os.environ, "NCCLTRACE_SHM": copy.areas})
    if result.returncode not in (0, 1):
        raise ToolError(f"nccltrace digest ended with status {result.returncode}: {result.stderr.strip()[-200:]}")
    refused = [path for path in paths if re.search(re.escape(path) + ": at byte", result.stderr)] if result.returncode else []
    made = sorted(glob.glob(os.path.join(folder, "*.trace")))
    limit = 32 << 10
    large = [path for path in made if os.path.getsize(path) > limit]
    if large:
        raise ToolError(f"{large[0]} is larger than {limit} bytes")
    return made + refused


def told(report: dict) -> dict:
    first = report["findings"][0] if report["findings"] else {}
    return {"verdict": report["verdict"],
            **{what: first.get(what) for what in ("class", "blame", "waiting", "op", "seq", "confidence")}}


def absences(present: list, chance: random.Random) -> list:
    """Sets of up to 30 % of the ranks, at least one: all single ones first."""
    if len(present) < 3:
        return []
    sets = [(rank,) for rank in chance.sample(present, min(len(present), ABSENCES))]
    most = len(present) * 3 // 10
    if most > 1:
        sets += chance.sample(list(itertools.combinations(present, most)), 2)
    return sets[:ABSENCES]


def expected_ranks(scenario: Scenario, what: str) -> set:
    """Of all `expect blame` lines, or of another that names ranks."""
    ranks: set = set()
    for expect in scenario.expects:
        if expect.what == what:
            for option in expect.value.split("|"):
                ranks |= set() if option == "none" else set(parse_ranks(option, scenario.ranks))
    return ranks


def blamed(report: dict) -> set:
    return {rank for finding in report["findings"] if finding["confidence"] != "undecided"
            for rank in ranks_of(finding["blame"])}


def ranks_of(text: str | None) -> list:
    return [] if not text or text == "none" else parse_ranks(text, MANY)


def summary(report: dict, order: list) -> dict:
    """What must be equal however the ranks are named: with rank r named order[r]."""
    findings = [describe(finding, order) for finding in report["findings"]]
    others = [text for finding, text in zip(report["findings"], findings) if finding["class"] not in BY_ORDER]
    return {"verdict": report["verdict"], "first": findings[:1], "findings": sorted(others),
            "present": name_all(report["ranks"]["present"], order),
            "warnings": sorted(describe(warning, order) for warning in report["warnings"])}


def describe(finding: dict, order: list) -> str:
    comm = finding["comm"] or {}
    culprits = sorted((order[culprit["rank"]], culprit["state"], culprit["since"]) for culprit in finding["culprits"])
    parts = [finding["class"], finding["confidence"], finding["op"], finding["seq"], finding["field"],
             "comm", comm.get("id"), comm.get("ordinal"), comm.get("size"), name_all(comm.get("ranks"), order),
             "blame", name_all(finding["blame"], order), "waiting", name_all(finding["waiting"], order), culprits]
    return " ".join(str(part) for part in parts)


def name_all(ranks: str | None, order: list) -> str:
    return format_ranks(order[rank] for rank in ranks_of(ranks))
