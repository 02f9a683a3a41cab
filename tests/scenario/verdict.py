# SPDX-License-Identifier: Apache-2.0
"""Compares a report with a scenario's expectations.

Each difference becomes one string `expected …, got …`. The first finding is what most expectations
speak of; warnings are never first, but `also` and `not` look at them, because the classes config and
slow occur nowhere else. Sets of ranks are compared as sets, however they were written.
"""

from __future__ import annotations

from scenario.program import Plan
from scenario.syntax import Expect, Scenario, format_ranks, parse_ranks


def check_run(scenario: Scenario, run: str) -> list:
    """Differences between how the job ended and what was expected."""
    return [f"expected run {expect.value}, got {run}" for expect in scenario.expects
            if expect.what == "run" and run not in expect.value.split("|")]


def check_report(scenario: Scenario, plan: Plan, report: dict, text: str) -> list:
    """Differences between tracediff's report and what was expected."""
    return [difference for expect in scenario.expects if expect.what != "run"
            for difference in _check(expect, scenario, plan, report, text)]


def _check(expect: Expect, scenario: Scenario, plan: Plan, report: dict, text: str) -> list:
    findings = report.get("findings") or []
    first = findings[0] if findings else {}
    what, wanted = expect.what, expect.value
    if what == "class":
        return _one(expect, report.get("verdict"))
    if what in ("op", "seq", "field"):
        got = first.get(what)
        return _one(expect, None if got is None else str(got))
    if what in ("blame", "waiting"):
        got = _ranks(first.get(what)) if findings or wanted == "none" else None
        options = [_ranks(option, scenario.ranks) for option in wanted.split("|")]
        return [] if got in options else [_difference(expect, "no finding" if got is None else format_ranks(got))]
    if what == "comm":
        return _check_comm(expect, plan, first)
    if what == "innocent":
        innocent = _ranks(wanted, scenario.ranks)
        blamed = [finding for finding in findings if _ranks(finding.get("blame")) & innocent]
        return [_difference(expect, f"{finding.get('class')} blaming {finding.get('blame')}") for finding in blamed]
    if what == "text":
        return [] if wanted in text else [f'expected text "{wanted}", got a report without it']
    warnings = report.get("warnings") or []
    classes = [item.get("class") for item in (findings[1:] if what == "also" else findings) + warnings]
    if any(name in wanted.split("|") for name in classes) == (what == "also"):
        return []
    return [_difference(expect, " ".join(filter(None, classes)) or "nothing")]


def _check_comm(expect: Expect, plan: Plan, finding: dict) -> list:
    comm = finding.get("comm") or {}
    got = (frozenset(_ranks(comm.get("ranks"))), comm.get("ordinal"))
    wanted: set = set()
    for option in expect.value.split("|"):
        name, _, color = option.partition(":")
        wanted |= plan.communicator(name, int(color) if color else None)
    if got in wanted:
        return []
    described = " or ".join(_describe(*item) for item in sorted(wanted, key=lambda item: (item[1], sorted(item[0]))))
    return [f"expected comm {expect.value} ({described or 'never made'}), got "
            f"{_describe(*got) if comm else 'none'}"]


def _describe(members: frozenset, ordinal) -> str:
    return f"{format_ranks(members)} #{ordinal}"


def _one(expect: Expect, got: str | None) -> list:
    return [] if got in expect.value.split("|") else [_difference(expect, got or "none")]


def _difference(expect: Expect, got: str) -> str:
    return f"expected {expect.what} {expect.value}, got {got}"


def _ranks(text: str | None, world: int | None = None) -> set:
    """A set of ranks from a scenario or, with no `world`, from a report."""
    if not text or text == "none":
        return set()
    try:
        return set(parse_ranks(text, 1 << 30 if world is None else world))
    except ValueError:
        return {text}
