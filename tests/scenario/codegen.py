# SPDX-License-Identifier: Apache-2.0
"""Turns a scenario into a Python code object that carries the scenario's file name and lines.

A statement becomes one line of Python:

    if (c := R.prepare(S[7], i0)): c.finish(c.fn(*c.args))

R, the rank's runtime, works out what to call; the call itself stands in the generated code, so that
a stack taken inside NCCL, CUDA or a host wait has the scenario's line as its innermost Python frame,
as the stack of a user's script would. Only the control flow is translated here; numbers, membership
and buffers are the runtime's.
"""

from __future__ import annotations

import ast

from scenario.syntax import Scenario, Stmt

# Statements that make more than one call: one after the other, each from the statement's line.
PHASES = {"init": ("prepare_id", "prepare_make_id", "prepare")}
# Statements with a block between calls: those before it, those after it.
BRACKETS = {"group": (("prepare_group",), ("prepare_group_end",)),
            "graph": (("prepare_capture",), ("prepare_capture_end", "prepare_instantiate"))}


class _Generator:
    def __init__(self, statements: list) -> None:
        self.statements = statements
        self.depth = 0              # of enclosing repeats; i0 is the turn outside of all

    def refer(self, stmt: Stmt) -> int:
        self.statements.append(stmt)
        return len(self.statements) - 1

    def block(self, statements: list) -> list:
        return [node for stmt in statements for node in self.statement(stmt)]

    def statement(self, stmt: Stmt) -> list:
        if stmt.word == "repeat":
            return self.repeat(stmt)
        index = self.refer(stmt)
        if stmt.word in ("on", "unless"):
            return self.compound(f"if R.selected(S[{index}], i{self.depth}): pass", stmt)
        if stmt.word == "thread":
            return self.thread(stmt, index)
        if stmt.word in BRACKETS:
            before, after = BRACKETS[stmt.word]
            return [*self.calls(stmt, index, before), *self.block(stmt.body), *self.calls(stmt, index, after)]
        return self.calls(stmt, index, PHASES.get(stmt.word, ("prepare",)))

    def thread(self, stmt: Stmt, index: int) -> list:
        """A function of the block, with the thread's own runtime as R, and its start."""
        turn = f"i{self.depth}"
        return [*self.compound(f"def thread(R, {turn}): pass", stmt),
                *_at(f"R.start(S[{index}], thread, {turn})", stmt.line)]

    def repeat(self, stmt: Stmt) -> list:
        index, outer = self.refer(stmt), self.depth
        self.depth += 1
        nodes = self.compound(f"for i{self.depth} in range(1, R.number(S[{index}].args['turns'], i{outer}) + 1): pass",
                              stmt)
        self.depth -= 1
        return nodes

    def compound(self, source: str, stmt: Stmt) -> list:
        node = _at(source, stmt.line)[0]
        node.body = self.block(stmt.body) or node.body
        return [node]

    def calls(self, stmt: Stmt, index: int, methods: tuple) -> list:
        return [node for method in methods for node in
                _at(f"if (c := R.{method}(S[{index}], i{self.depth})): c.finish(c.fn(*c.args))", stmt.line)]


def _at(source: str, line: int) -> list:
    """The statements of `source`, all of them on `line`."""
    nodes = ast.parse(source).body
    for top in nodes:
        for node in ast.walk(top):
            if hasattr(node, "lineno"):
                node.lineno = node.end_lineno = line
    return nodes


def compile_program(scenario: Scenario):
    """(code, S): run the code with the globals R, the runtime, S, the list returned, and i0 = 0."""
    statements: list = []
    generator = _Generator(statements)
    threads = any(stmt.word == "thread" for stmt in scenario.statements())
    closing = [Stmt(word, scenario.end_line, {}) for word in (*(["join"] if threads else []), "devsync")]
    nodes = generator.block([*scenario.body, *closing])
    module = ast.Module(body=nodes, type_ignores=[])
    return compile(module, scenario.file, "exec"), statements
