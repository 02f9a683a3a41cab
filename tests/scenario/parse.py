# SPDX-License-Identifier: Apache-2.0
"""Reads a scenario file. Every error names the file and the line.

The grammar is line based: a line is one statement, or opens a block with a closing `{`, or is `}`.
Prefixes (`on`, `unless`) take the rest of their line as a statement, so the parser works on the list
of words of a line and recurses. Names are checked while reading: a communicator, stream or event has
to stand earlier in the file than its use, except after `nonblocking`, which precedes its `comm`.
"""

from __future__ import annotations

import re
import signal

from scenario.syntax import (DATA_OPS, OP_CODES, TYPE_CODES, Expect, Num, Scenario, ScenarioError, Stmt,
                             parse_ranks)

HEADER = ("title", "source", "ranks", "real", "timeout", "evidence", "env", "drop")
CLASSES = ("consistent", "missing", "extra", "order", "mismatch", "p2p", "cycle", "dead", "left", "gpu",
           "stalled", "outside", "init", "teardown", "error", "config", "slow", "undecided")
RUNS = ("hung", "done", "failed")
EVIDENCE = ("live", "dump", "kill", "exit")
EXITS = ("_exit", "quick_exit", "exec", "handler", "finalization")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NUMBER = re.compile(r"-?(\d|\$(i|rank|next|prev))+")


def load(path: str) -> Scenario:
    """Reads the file at `path`; raises ScenarioError."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(path, 0, f"cannot be read: {error}") from error
    return parse(text, path)


def parse(text: str, path: str = "scenario.scn") -> Scenario:
    """The scenario written in `text`; `path` is only for names and messages."""
    return _Parser(text, path).run()


def strip_comment(line: str) -> str:
    """The line without its comment; a # inside double quotes is text."""
    quoted = False
    for position, char in enumerate(line):
        if char == '"' and (position == 0 or line[position - 1] != "\\"):
            quoted = not quoted
        elif char == "#" and not quoted:
            return line[:position]
    return line


class _Parser:
    def __init__(self, text: str, path: str) -> None:
        self.scenario = Scenario(path)
        self.lines = [strip_comment(line).strip() for line in text.splitlines()]
        self.line = 0                      # of the statement being read, from 1
        self.next = 0                      # index of the next unread line
        self.repeats = 0                   # enclosing repeat blocks
        self.comms: set = set()
        self.streams = {"main"}
        self.events: set = set()
        self.graphs: set = set()
        self.enclosing: list = []          # words of the group and graph blocks around the statement
        self.future_comms: list = []       # (name, line) used before their comm statement

    def fail(self, message: str, line: int | None = None):
        raise ScenarioError(self.scenario.path, self.line if line is None else line, message)

    # ---- the three parts of a file ----

    def run(self) -> Scenario:
        self.read_world_size()
        self.read_header()
        self.scenario.body = self.read_block(inside=False)
        last = [stmt.line for stmt in self.scenario.statements()]
        self.scenario.end_line = max(last, default=max(self.line, 1))
        self.read_expectations()
        for name, line in self.future_comms:
            if name not in self.comms:
                self.fail(f"unknown communicator '{name}'", line)
        return self.scenario

    def read_world_size(self) -> None:
        """`ranks` first, because any other header line may hold a list of ranks."""
        for index, line in enumerate(self.lines):
            words = line.split()
            if words and words[0] == "ranks":
                self.line = index + 1
                if len(words) != 2 or not words[1].isdigit() or int(words[1]) < 1:
                    self.fail("ranks takes one positive number")
                self.scenario.ranks = int(words[1])
                return
        self.fail("no 'ranks' line says how many processes the job has", 1)

    def read_header(self) -> None:
        while self.next < len(self.lines):
            words = self.lines[self.next].split()
            if words and words[0] not in HEADER:
                return
            self.line = self.next + 1
            self.next += 1
            if words:
                self.header_line(words[0], words[1:], self.lines[self.line - 1])

    def header_line(self, word: str, args: list, line: str) -> None:
        scenario = self.scenario
        rest = line[len(word):].strip()
        if word in ("title", "source"):
            setattr(scenario, word, rest)
        elif word == "real":
            scenario.real = self.one_of(args, word, ("yes", "no")) == "yes"
        elif word == "timeout":
            if len(args) != 1 or not re.fullmatch(r"\d+(\.\d+)?", args[0]) or float(args[0]) <= 0:
                self.fail("timeout takes a positive number of seconds")
            scenario.timeout = float(args[0])
        elif word == "evidence":
            scenario.evidence = self.one_of(args, word, EVIDENCE)
        elif word == "env":
            match = re.fullmatch(r"(\S+)\s+([A-Za-z_][A-Za-z0-9_]*)=(.*)", rest)
            if not match:
                self.fail("env takes RANKS NAME=VALUE")
            scenario.env.append((set(self.ranks(match.group(1))), match.group(2), match.group(3)))
        elif word == "drop":
            if len(args) != 1:
                self.fail("drop takes one list of ranks")
            scenario.drop |= set(self.ranks(args[0]))

    def read_expectations(self) -> None:
        while self.next < len(self.lines):
            line = self.lines[self.next]
            self.next += 1
            self.line = self.next
            words = line.split()
            if not words:
                continue
            if words[0] != "expect":
                self.fail(f"'{words[0]}' after the first expect: expectations stand at the end")
            if len(words) < 3:
                self.fail("expect takes what is expected and its value")
            self.scenario.expects.append(self.expectation(words[1], words[2:], line))

    def expectation(self, what: str, args: list, line: str) -> Expect:
        if what == "text":
            match = re.fullmatch(r'expect\s+text\s+"(.*)"', line)
            if not match:
                self.fail('expect text takes one "SUBSTRING" in double quotes')
            return Expect(self.line, what, match.group(1).replace('\\"', '"'))
        if len(args) != 1:
            self.fail(f"expect {what} takes one value")
        for value in args[0].split("|"):
            self.check_expected(what, value)
        return Expect(self.line, what, args[0])

    def check_expected(self, what: str, value: str) -> None:
        if what == "run":
            self.one_of([value], "expect run", RUNS)
        elif what in ("class", "also", "not"):
            if value not in CLASSES:
                self.fail(f"unknown class '{value}'")
        elif what == "comm":
            name, _, color = value.partition(":")
            if name not in self.comms:
                self.fail(f"unknown communicator '{name}'")
            if color and not color.isdigit():
                self.fail(f"'{color}' is no colour")
        elif what == "seq":
            if not value.isdigit():
                self.fail(f"'{value}' is no position")
        elif what in ("blame", "innocent", "waiting"):
            if value != "none":
                self.ranks(value)
        elif what not in ("op", "field"):
            self.fail(f"unknown expectation '{what}'")

    # ---- statements ----

    def read_block(self, inside: bool) -> list:
        """Statements up to the closing brace, or to the first expectation where not `inside` a block."""
        opened, block = self.line, []
        while self.next < len(self.lines):
            words = self.lines[self.next].split()
            if words and words[0] == "expect" and not inside:
                return block
            self.next += 1
            self.line = self.next
            if not words:
                continue
            if words[0] == "}":
                if not inside:
                    self.fail("'}' closes nothing")
                if len(words) > 1:
                    self.fail("'}' stands on a line of its own")
                return block
            block.append(self.statement(words))
        if inside:
            self.fail("this block is never closed", opened)
        return block

    def statement(self, words: list) -> Stmt:
        word, args = words[0], words[1:]
        if word in DATA_OPS:
            return self.data_op(word, args)
        if word in HEADER:
            self.fail(f"'{word}' belongs to the header, before the first statement")
        method = getattr(self, "read_" + word, None) if word in _STATEMENTS else None
        if method is None:
            self.fail(f"unknown word '{word}'")
        return method(args)

    def body(self, args: list, word: str) -> list:
        """The block after `word …`, whose line's remaining words are `args`."""
        if args != ["{"]:
            self.fail(f"{word} takes a block: '{{' at the line's end")
        return self.read_block(inside=True)

    def restricted(self, word: str, args: list) -> Stmt:
        line = self.line
        if not args:
            self.fail(f"{word} takes ranks and a statement or a block")
        ranks, rest, turn = set(self.ranks(args[0])), args[1:], None
        if rest[:1] == ["at"]:
            if len(rest) < 2:
                self.fail("at takes the number of a turn")
            if not self.repeats:
                self.fail("at needs an enclosing repeat")
            turn, rest = self.number(rest[1]), rest[2:]
        if not rest:
            self.fail(f"{word} takes a statement or a block")
        inner = self.read_block(inside=True) if rest == ["{"] else [self.statement(rest)]
        return Stmt(word, line, {"ranks": ranks, "turn": turn}, inner)

    def read_on(self, args: list) -> Stmt:
        return self.restricted("on", args)

    def read_unless(self, args: list) -> Stmt:
        return self.restricted("unless", args)

    def read_repeat(self, args: list) -> Stmt:
        line = self.line
        if len(args) < 2:
            self.fail("repeat takes a number and a block")
        turns = self.number(args[0])
        self.repeats += 1
        inner = self.body(args[1:], "repeat N")
        self.repeats -= 1
        return Stmt("repeat", line, {"turns": turns}, inner)

    def outside(self, word: str, *blocks: str) -> None:
        """Refuses `word` inside one of these blocks."""
        for block in self.enclosing:
            if block in blocks:
                self.fail(f"{word} cannot stand inside a {block}")

    def enclosed(self, word: str, args: list, form: str) -> list:
        self.enclosing.append(word)
        body = self.body(args, form)
        self.enclosing.pop()
        return body

    def read_group(self, args: list) -> Stmt:
        line = self.line
        return Stmt("group", line, {}, self.enclosed("group", args, "group"))

    def read_thread(self, args: list) -> Stmt:
        line = self.line
        self.outside("thread", "group", "graph")
        return Stmt("thread", line, {}, self.body(args, "thread"))

    def read_graph(self, args: list) -> Stmt:
        line = self.line
        self.outside("graph", "group", "graph")
        name = self.name(args[:1], "graph")
        self.graphs.add(name)
        return Stmt("graph", line, {"name": name}, self.enclosed("graph", args[1:], "graph NAME"))

    def read_launch(self, args: list) -> Stmt:
        self.outside("launch", "graph")
        name = self.name(args[:1], "launch")
        if name not in self.graphs:
            self.fail(f"unknown graph '{name}'")
        options = self.options(args[1:], ("stream",))
        return Stmt("launch", self.line, {"name": name, "stream": options.get("stream", "main")})

    def read_comm(self, args: list) -> Stmt:
        if len(args) < 4 or args[1] != "=":
            self.fail("comm takes NAME = init RANKS … or NAME = split PARENT color …")
        name, how, rest = self.name(args[:1], "comm"), args[2], args[3:]
        if how == "init":
            members = self.ranks(rest[0])
            if len(set(members)) != len(members):
                self.fail("a rank is listed twice")
            options = self.options(rest[1:], ("size", "rank", "id"))
            for key in ("size", "rank"):
                if key in options:
                    options[key] = self.number(options[key])
            result = Stmt("init", self.line, {"name": name, "members": tuple(members), **options})
        elif how == "split":
            parent = self.comm(rest[0])
            if len(rest) < 3 or rest[1] != "color":
                self.fail("split takes PARENT color RANKS:C[,RANKS:C…]")
            result = Stmt("split", self.line, {"name": name, "parent": parent,
                                               "colors": self.colors("".join(rest[2:]))})
        else:
            self.fail(f"unknown word '{how}': a communicator is made by init or split")
        self.comms.add(name)
        return result

    def colors(self, text: str) -> dict:
        """Colour by world rank."""
        colors: dict = {}
        for item in text.split(","):
            ranks, _, color = item.partition(":")
            if not color.isdigit():
                self.fail(f"'{item}' is no RANKS:COLOUR")
            for rank in self.ranks(ranks):
                if rank in colors:
                    self.fail(f"rank {rank} is given two colours")
                colors[rank] = int(color)
        return colors

    def data_op(self, word: str, args: list) -> Stmt:
        fields = DATA_OPS[word]
        if len(args) < 1 + len(fields):
            self.fail(f"{word} takes C {' '.join(fields).upper()}")
        values: dict = {"comm": self.comm(args[0])}
        for field, text in zip(fields, args[1:]):
            if field == "type":
                values[field] = self.one_of([text], "TYPE", tuple(TYPE_CODES))
            elif field == "op":
                values[field] = self.one_of([text], "OP", tuple(OP_CODES))
            else:
                values[field] = self.number(text, in_comm=True)
        options = self.options(args[1 + len(fields):], ("stream", "buf"))
        values["stream"] = options.get("stream", "main")
        values["buf"] = options.get("buf", "")
        return Stmt(word, self.line, values)

    def read_stream(self, args: list) -> Stmt:
        name = self.name(args, "stream")
        self.streams.add(name)
        return Stmt("stream", self.line, {"name": name})

    def read_sync(self, args: list) -> Stmt:
        return Stmt("sync", self.line, {"stream": self.stream(args)})

    def read_gpuspin(self, args: list) -> Stmt:
        return Stmt("gpuspin", self.line, {"stream": self.stream(args)})

    def read_record(self, args: list) -> Stmt:
        if len(args) != 2:
            self.fail("record takes EVENT STREAM")
        self.events.add(args[0])
        return Stmt("record", self.line, {"event": args[0], "stream": self.stream(args[1:])})

    def read_wait(self, args: list) -> Stmt:
        if len(args) != 2:
            self.fail("wait takes EVENT STREAM")
        if args[0] not in self.events:
            self.fail(f"unknown event '{args[0]}'")
        return Stmt("wait", self.line, {"event": args[0], "stream": self.stream(args[1:])})

    def read_hostbarrier(self, args: list) -> Stmt:
        if len(args) not in (1, 2):
            self.fail("hostbarrier takes NAME and perhaps RANKS")
        ranks = self.ranks(args[1] if len(args) == 2 else "all")
        return Stmt("hostbarrier", self.line, {"name": args[0], "ranks": tuple(sorted(ranks))})

    def read_sleep(self, args: list) -> Stmt:
        text = args[0] if len(args) == 1 else ""
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return Stmt("sleep", self.line, {"seconds": float(text)})
        return Stmt("sleep", self.line, {"seconds": self.number(text)})

    def read_exit(self, args: list) -> Stmt:
        if len(args) not in (1, 3) or args[1:2] not in ([], ["by"]):
            self.fail("exit takes a code, and may say by what")
        how = self.one_of(args[2:], "exit CODE by", EXITS) if len(args) == 3 else ""
        return Stmt("exit", self.line, {"code": self.number(args[0]), "how": how})

    def read_kill(self, args: list) -> Stmt:
        name = args[0] if len(args) == 1 else ""
        number = getattr(signal, name if name.startswith("SIG") else "SIG" + name, None)
        if not isinstance(number, signal.Signals):
            self.fail(f"unknown signal '{name}'")
        return Stmt("kill", self.line, {"signal": int(number)})

    def read_ending(self, word: str, args: list) -> Stmt:
        if len(args) != 1:
            self.fail(f"{word} takes one communicator")
        return Stmt(word, self.line, {"comm": self.comm(args[0])})

    def read_abort(self, args: list) -> Stmt:
        return self.read_ending("abort", args)

    def read_finalize(self, args: list) -> Stmt:
        return self.read_ending("finalize", args)

    def read_destroy(self, args: list) -> Stmt:
        return self.read_ending("destroy", args)

    def read_nonblocking(self, args: list) -> Stmt:
        name = self.name(args, "nonblocking")
        self.future_comms.append((name, self.line))
        return Stmt("nonblocking", self.line, {"name": name})

    def read_bare(self, word: str, args: list) -> Stmt:
        if args:
            self.fail(f"{word} takes nothing")
        return Stmt(word, self.line, {})

    def read_devsync(self, args: list) -> Stmt:
        return self.read_bare("devsync", args)

    def read_spin(self, args: list) -> Stmt:
        return self.read_bare("spin", args)

    def read_fork(self, args: list) -> Stmt:
        return self.read_bare("fork", args)

    # ---- words ----

    def ranks(self, text: str) -> list:
        try:
            return parse_ranks(text, self.scenario.ranks)
        except ValueError as error:
            self.fail(str(error))

    def one_of(self, args: list, what: str, values: tuple) -> str:
        if len(args) != 1 or args[0] not in values:
            got = f", not '{' '.join(args)}'" if args else ""
            self.fail(f"{what} is one of {' '.join(values)}{got}")
        return args[0]

    def name(self, args: list, word: str) -> str:
        if len(args) != 1 or not _NAME.fullmatch(args[0]):
            self.fail(f"{word} takes a name")
        return args[0]

    def comm(self, name: str) -> str:
        if name not in self.comms:
            self.fail(f"unknown communicator '{name}'")
        return name

    def stream(self, args: list) -> str:
        name = args[0] if args else "main"
        if len(args) > 1 or name not in self.streams:
            self.fail(f"unknown stream '{' '.join(args)}'")
        return name

    def number(self, text: str, in_comm: bool = False) -> Num:
        if not _NUMBER.fullmatch(text):
            self.fail(f"'{text}' is no number")
        number = Num(text)
        used = number.variables()
        if "i" in used and not self.repeats:
            self.fail("$i needs an enclosing repeat")
        if used & {"next", "prev"} and not in_comm:
            self.fail("$next and $prev need a statement on a communicator")
        return number

    def options(self, args: list, allowed: tuple) -> dict:
        """Trailing `word value` pairs."""
        found: dict = {}
        for position in range(0, len(args), 2):
            word, value = args[position], args[position + 1:position + 2]
            if word not in allowed:
                self.fail(f"unknown word '{word}'")
            if not value or word in found:
                self.fail(f"'{word}' takes one value, once")
            found[word] = self.stream(value) if word == "stream" else value[0]
        return found


_STATEMENTS = {name[len("read_"):] for name in vars(_Parser) if name.startswith("read_")} - {
    "block", "header", "expectations", "world_size", "bare", "ending"}
