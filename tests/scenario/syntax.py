# SPDX-License-Identifier: Apache-2.0
"""What a scenario is made of once it has been read: statements, numbers, sets of ranks, errors.

Every rank's process imports this module before its first statement, so it stays free of anything
that is slow to import (dataclasses, typing).
"""

from __future__ import annotations

import re

TYPE_SIZES = {"i8": 1, "u8": 1, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
              "f16": 2, "f32": 4, "f64": 8, "bf16": 2}
TYPE_CODES = {name: code for code, name in enumerate(
    ["i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16"])}
OP_CODES = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}

COLLECTIVES = {
    "allreduce": ("type", "count", "op"),
    "reduce": ("type", "count", "op", "root"),
    "broadcast": ("type", "count", "root"),
    "allgather": ("type", "count"),
    "reducescatter": ("type", "count", "op"),
    "alltoall": ("type", "count"),
    "gather": ("type", "count", "root"),
    "scatter": ("type", "count", "root"),
}
P2P = {"send": ("type", "count", "peer"), "recv": ("type", "count", "peer")}
DATA_OPS = {**COLLECTIVES, **P2P}

_VARIABLE = re.compile(r"\$(i|rank|next|prev)")


class ScenarioError(Exception):
    """A scenario that cannot be run: says which line of which file, and why."""

    def __init__(self, path: str, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}")
        self.path, self.line, self.message = path, line, message


class Num:
    """An integer that may contain $i, $rank, $next or $prev, replaced as text before it is read."""

    __slots__ = ("text", "constant")

    def __init__(self, text: str) -> None:
        self.text = text
        self.constant = None if "$" in text else int(text)

    def variables(self) -> set:
        return set(_VARIABLE.findall(self.text))

    def value(self, variables: dict) -> int:
        if self.constant is not None:
            return self.constant
        return int(_VARIABLE.sub(lambda match: str(variables[match.group(1)]), self.text))


class Stmt:
    """One statement: its word, its line, its arguments by name, and the block it encloses."""

    __slots__ = ("word", "line", "args", "body")

    def __init__(self, word: str, line: int, args: dict, body: list | None = None) -> None:
        self.word, self.line, self.args, self.body = word, line, args, body

    def walk(self):
        """This statement and everything inside it, in textual order."""
        yield self
        for inner in self.body or ():
            yield from inner.walk()


class Expect:
    """One `expect` line: what is compared, and the value as written."""

    __slots__ = ("line", "what", "value")

    def __init__(self, line: int, what: str, value: str) -> None:
        self.line, self.what, self.value = line, what, value


class Scenario:
    """A scenario file as read. `name` is the file's name without its ending, `file` with it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = path.rsplit("/", 1)[-1]
        self.name = self.file[:-4] if self.file.endswith(".scn") else self.file
        self.title = self.source = ""
        self.ranks = 0
        self.real = True
        self.timeout = 3.0
        self.evidence = "live"
        self.env: list = []          # (set of ranks, name, value)
        self.drop: set = set()
        self.body: list = []
        self.expects: list = []
        self.end_line = 1            # line of the last statement: where the closing wait stands

    def statements(self):
        for stmt in self.body:
            yield from stmt.walk()

    def streams(self) -> list:
        """Names of all streams, `main` first."""
        names = ["main"]
        for stmt in self.statements():
            if stmt.word == "stream" and stmt.args["name"] not in names:
                names.append(stmt.args["name"])
        return names


def parse_ranks(text: str, world: int) -> list:
    """World ranks in the order written; raises ValueError with the reason."""
    if text == "all":
        return list(range(world))
    ranks: list = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        if not match:
            raise ValueError(f"'{text}' is no list of ranks such as all or 0,2-5")
        first = int(match.group(1))
        last = int(match.group(2)) if match.group(2) else first
        if last < first:
            raise ValueError(f"the range {item} runs backwards")
        if last >= world:
            raise ValueError(f"rank {last} is outside this job of {world}")
        ranks.extend(range(first, last + 1))
    return ranks


def format_ranks(ranks) -> str:
    """Compact form: 0-2,5. The empty set is `none`."""
    parts: list = []
    for rank in sorted(set(ranks)):
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or "none"
