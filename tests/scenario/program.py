# SPDX-License-Identifier: Apache-2.0
"""What a scenario makes each rank do, known without running it.

`View` is one rank's eyes on the program: which statements it executes, what its numbers are, which
communicators it holds. The rank's process advances a View while it runs; `trace_rank` advances one
without running anything. From the traces of all ranks `Plan` derives what needs all of them: how many
operations of a communicator all members call alike (only their results are checked), the size of
every buffer, and the members and creation order of each communicator for the expectations.
"""

from __future__ import annotations

from scenario.syntax import COLLECTIVES, DATA_OPS, P2P, TYPE_SIZES, Num, Scenario, Stmt

STOPPING_SIGNALS_IGNORED = frozenset({17, 18, 23, 28})   # SIGCHLD, SIGCONT, SIGURG, SIGWINCH


class Comm:
    """A communicator as one rank holds it. Equal keys on two ranks mean the same communicator."""

    __slots__ = ("key", "name", "color", "members", "rank", "size", "regular", "splits")

    def __init__(self, key: tuple, name: str, members: tuple, rank: int, size: int, regular: bool,
                 color: int | None = None) -> None:
        self.key, self.name, self.color = key, name, color
        self.members, self.rank, self.size = members, rank, size   # world ranks; own rank; size passed
        self.regular = regular          # made with no overriding size, rank or id
        self.splits = 0                 # splits of it so far


class View:
    """One rank's state while it goes through the program."""

    def __init__(self, scenario: Scenario, rank: int) -> None:
        self.scenario, self.rank = scenario, rank
        self.comms: dict = {}           # name -> Comm this rank holds
        self.inits: dict = {}           # (name, members) -> number of inits so far

    def number(self, num, turn: int, comm: Comm | None = None) -> int:
        variables = {"i": turn, "rank": self.rank}
        if comm is not None:
            variables["next"] = (comm.rank + 1) % comm.size
            variables["prev"] = (comm.rank - 1) % comm.size
        return num.value(variables)

    def selected(self, stmt: Stmt, turn: int) -> bool:
        """Whether an `on` or `unless` lets this rank through in this turn of the repeat."""
        hit = self.rank in stmt.args["ranks"]
        if stmt.args["turn"] is not None:
            hit = hit and self.number(stmt.args["turn"], turn) == turn
        return hit == (stmt.word == "on")

    def make(self, stmt: Stmt, turn: int) -> Comm | None:
        """The communicator that an `init` gives this rank, or the state of a `split` it calls.

        None: this rank passes over the statement. A split member without a colour gets a Comm of
        rank -1, which `adopt` does not keep.
        """
        return self._init(stmt, turn) if stmt.word == "init" else self._split(stmt)

    def _init(self, stmt: Stmt, turn: int) -> Comm | None:
        args, members = stmt.args, stmt.args["members"]
        if self.rank not in members and "rank" not in args:
            return None
        size = self.number(args["size"], turn) if "size" in args else len(members)
        rank = self.number(args["rank"], turn) if "rank" in args else members.index(self.rank)
        visit = (args["name"], tuple(sorted(members)))
        self.inits[visit] = self.inits.get(visit, 0) + 1
        key = ("init", *visit, self.inits[visit])
        return Comm(key, args["name"], members, rank, size, not {"size", "rank", "id"} & set(args))

    def _split(self, stmt: Stmt) -> Comm | None:
        parent = self.comms.get(stmt.args["parent"])
        if parent is None:
            return None
        parent.splits += 1
        colors, name = stmt.args["colors"], stmt.args["name"]
        color = colors.get(self.rank)
        key = ("split", parent.key, parent.splits, color)
        members = tuple(rank for rank in parent.members if color is not None and colors.get(rank) == color)
        own = members.index(self.rank) if color is not None else -1
        return Comm(key, name, members, own, len(members), parent.regular, color)

    def adopt(self, comm: Comm) -> None:
        """From here on the communicator's name means `comm`; without a colour it means nothing."""
        if comm.rank >= 0:
            self.comms[comm.name] = comm
        else:
            self.comms.pop(comm.name, None)


class Call:
    """One operation of one rank: what the others must call alike."""

    __slots__ = ("comm", "stmt", "count", "root", "unit", "captured")

    def __init__(self, comm: Comm, stmt: Stmt, count: int, root: int, unit: int, captured: bool) -> None:
        self.comm, self.stmt, self.count, self.root = comm, stmt, count, root
        self.unit = unit                # calls of one group share it
        self.captured = captured

    def signature(self) -> tuple:
        args = self.stmt.args
        return (self.stmt.word, args["type"], self.count, args.get("op"), self.root, self.captured)


MAX_CALLS = 20000


class Trace:
    """What a rank does, in order: communicators made and operations called.

    Only the first MAX_CALLS operations are kept; of later ones only the buffers they need are known.
    """

    def __init__(self) -> None:
        self.comms: list = []
        self.calls: list = []
        self.units = 0
        self.buffers: dict = {}         # see Plan.sizes
        self.slots = SlotCounter()
        self.thread = 0                 # that is being followed: the line of its block, 0 for the main one
        self.graph = ""                 # that is being captured
        self.users: dict = {}           # threads that use a communicator, by its key
        self.graphs: set = set()        # captured so far
        self.launches: list = []        # (graph, operations called before)

    @property
    def full(self) -> bool:
        return len(self.calls) == MAX_CALLS

    def add(self, call: Call) -> None:
        args = call.stmt.args
        nbytes = max(call.count, 0) * TYPE_SIZES[args["type"]]
        sends, receives = spread(call.stmt.word, call.comm.size)
        for key, wanted in ((("send", args["buf"], args["type"]), nbytes * sends),
                            (self.slots.receive_key(args, call.unit, self.graph), nbytes * receives)):
            self.buffers[key] = max(self.buffers.get(key, 0), wanted)
        self.users.setdefault(call.comm.key, set()).add(self.thread)
        if not self.full:
            self.calls.append(call)


class _Ended(Exception):
    """The rank never gets further than here."""


def trace_rank(scenario: Scenario, rank: int) -> Trace:
    """The trace of a rank that is never held up by another one."""
    trace, view = Trace(), View(scenario, rank)
    try:
        _follow(scenario.body, view, trace, 0, grouped=False)
    except _Ended:
        pass
    return trace


def _follow(block: list, view: View, trace: Trace, turn: int, grouped: bool) -> None:
    for stmt in block:
        word = stmt.word
        if word in DATA_OPS:
            _call(stmt, view, trace, turn, grouped)
        elif word in ("on", "unless"):
            if view.selected(stmt, turn):
                _follow(stmt.body, view, trace, turn, grouped)
        elif word == "repeat":
            for inner in range(1, view.number(stmt.args["turns"], turn) + 1):
                _follow(stmt.body, view, trace, inner, grouped)
                if trace.full and _is_steady(stmt):
                    break
        elif word == "group":
            trace.units += not grouped
            _follow(stmt.body, view, trace, turn, grouped=True)
            trace.units += not grouped
        elif word == "thread":
            _follow_thread(stmt, view, trace, turn)
        elif word == "graph":
            trace.graph = stmt.args["name"]
            _follow(stmt.body, view, trace, turn, grouped)
            trace.graph = ""
            trace.graphs.add(stmt.args["name"])
        elif word == "launch":
            if stmt.args["name"] in trace.graphs:
                trace.launches.append((stmt.args["name"], len(trace.calls)))
        elif word in ("init", "split"):
            comm = view.make(stmt, turn)
            if comm is not None:
                view.adopt(comm)
                if comm.rank >= 0:
                    trace.comms.append(comm)
        elif word in ("abort", "destroy"):
            view.comms.pop(stmt.args["comm"], None)
        elif word in ("exit", "spin"):
            raise _Ended
        elif word == "kill" and stmt.args["signal"] not in STOPPING_SIGNALS_IGNORED:
            raise _Ended


def _follow_thread(stmt: Stmt, view: View, trace: Trace, turn: int) -> None:
    """The other threads go on whatever becomes of this one."""
    outer = trace.thread, trace.slots
    trace.thread, trace.slots = stmt.line, SlotCounter(f"@{stmt.line}")
    try:
        _follow(stmt.body, view, trace, turn, grouped=False)
    except _Ended:
        trace.graph = ""
    trace.thread, trace.slots = outer


def _is_steady(repeat: Stmt) -> bool:
    """Whether every turn of a repeat makes the same calls, on the same communicators."""
    for stmt in repeat.walk():
        if stmt.word in ("init", "split", "abort", "destroy", "exit", "kill", "spin") or stmt.args.get("turn"):
            return False
        if any(isinstance(value, Num) and "i" in value.variables() for value in stmt.args.values()):
            return False
    return True


def _call(stmt: Stmt, view: View, trace: Trace, turn: int, grouped: bool) -> None:
    comm = view.comms.get(stmt.args["comm"])
    if comm is None:
        return
    if not grouped:
        trace.units += 1
    where = stmt.args.get("root", stmt.args.get("peer"))
    root = -1 if where is None else view.number(where, turn, comm)
    count = view.number(stmt.args["count"], turn, comm)
    trace.add(Call(comm, stmt, count, root, trace.units, bool(trace.graph)))


class Plan:
    """What only a look at all ranks together can tell."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.traces = [trace_rank(scenario, rank) for rank in range(scenario.ranks)]
        self.sizes = self._buffer_sizes()
        self._calls_of = self._sort_calls()
        self.agreed = self._agreed_collectives()
        self.agreed_p2p = self._agreed_p2p()
        # What replays leave in memory is checked only where all ranks launch alike.
        self.replays_agree = all(trace.launches == self.traces[0].launches for trace in self.traces)

    def for_rank(self, rank: int) -> dict:
        """The part of the plan that this rank's process needs, as JSON-able lists."""
        return {"buffers": [[list(key), size] for key, size in sorted(self.sizes.items())],
                "collectives": [[repr(key), limits[rank]] for key, limits in self.agreed.items()
                                if rank in limits],
                "recvs": [[repr(key), peer, count] for (key, peer, to), count in self.agreed_p2p.items()
                          if to == rank],
                "replays": self.replays_agree}

    def communicator(self, name: str, color: int | None) -> set:
        """(members, ordinal) of every communicator with this name and, if given, this colour."""
        found = set()
        for trace in self.traces:
            seen: dict = {}
            for comm in trace.comms:
                members = frozenset(comm.members)
                seen[members] = seen.get(members, 0) + 1
                if comm.name == name and color in (None, comm.color):
                    found.add((members, seen[members]))
        return found

    def _buffer_sizes(self) -> dict:
        """Bytes by buffer: ("send", name, type) and ("recv", name, stream, slot).

        Every rank makes a buffer as large as any rank needs it: an operation that does not match may
        move more than its caller asked for. Sent data depends on the type alone, so that any number
        of operations can send from one buffer; where nobody names a buffer, operations of one group
        must not receive into the same one.
        """
        sizes: dict = {}
        for trace in self.traces:
            for key, wanted in trace.buffers.items():
                sizes[key] = max(sizes.get(key, 0), wanted)
        return sizes

    def _sort_calls(self) -> dict:
        """Calls by communicator and world rank."""
        table: dict = {}
        alike = self._calls_before_launches_differ()
        for rank, trace in enumerate(self.traces):
            for comm in trace.comms:
                table.setdefault(comm.key, {}).setdefault(rank, [])
            for call in trace.calls[:alike]:
                table[call.comm.key][rank].append(call)
        return {key: ranks for key, ranks in table.items() if self._is_whole(key, ranks) and not self._is_shared(key)}

    def _calls_before_launches_differ(self) -> int | None:
        """How many operations ranks call before not all make the same launch; None: they launch alike. What is called
        later may pair up with a launch."""
        rows = [trace.launches for trace in self.traces]
        alike = _common_prefix(rows)
        return min((row[alike][1] for row in rows if len(row) > alike), default=None)

    def _is_shared(self, key: tuple) -> bool:
        """Whether several threads of a rank use the communicator: in which order is not known."""
        return any(len(trace.users.get(key, ())) > 1 for trace in self.traces)

    def _is_whole(self, key: tuple, ranks: dict) -> bool:
        """Whether all members, and only they, made the communicator as declared."""
        comms = [comm for trace in self.traces for comm in trace.comms if comm.key == key]
        return len(comms) == len(ranks) and all(comm.regular and set(comm.members) == set(ranks) for comm in comms)

    def _agreed_collectives(self) -> dict:
        """How many collectives all members call alike, by communicator and rank.

        Inside a group NCCL reorders, so calls of a group are compared as a set; an agreement that
        would end inside a group ends before it.
        """
        agreed = {}
        for key, ranks in self._calls_of.items():
            calls = {rank: [call for call in calls if call.stmt.word in COLLECTIVES]
                     for rank, calls in ranks.items()}
            ordered = [[call.signature() for call in sorted(row, key=lambda c: (c.unit, c.signature()))]
                       for row in calls.values()]
            length = _common_prefix(ordered)
            agreed[key] = {rank: _whole_units(row, length) for rank, row in calls.items()}
        return agreed

    def _agreed_p2p(self) -> dict:
        """How many messages of a queue both sides describe alike: {(comm, sender's comm rank, receiver): n}."""
        agreed = {}
        for key, ranks in self._calls_of.items():
            sent: dict = {}
            received: dict = {}
            for rank, calls in ranks.items():
                for call in calls:
                    if call.stmt.word in P2P:
                        table = sent if call.stmt.word == "send" else received
                        queue = (call.comm.rank, call.root) if table is sent else (call.root, call.comm.rank)
                        table.setdefault(queue, []).append((*call.signature()[1:3], call.captured))
            members = next((calls[0].comm.members for calls in ranks.values() if calls), ())
            for (source, target), row in received.items():
                agreed[key, source, members[target]] = _common_prefix([row, sent.get((source, target), [])])
        return agreed


class SlotCounter:
    """Numbers the unnamed receive buffers that the operations of one group use at the same time."""

    def __init__(self, owner: str = "") -> None:
        self.unit = -1
        self.used: dict = {}
        self.owner = owner              # sets a thread's buffers apart

    def receive_key(self, args: dict, unit: int, graph: str) -> tuple:
        if args["buf"]:
            return ("recv", args["buf"], "", 0)
        if unit != self.unit:
            self.unit, self.used = unit, {}
        slot = self.used[args["stream"]] = self.used.get(args["stream"], -1) + 1
        return ("recv", "", args["stream"] + self.owner + (f"@{graph}" if graph else ""), slot)


def spread(word: str, size: int) -> tuple:
    """How many times COUNT elements an operation sends from and receives into."""
    sends = size if word in ("reducescatter", "alltoall", "scatter") else 1
    receives = size if word in ("allgather", "gather", "alltoall") else 1
    return sends, receives


def _common_prefix(rows: list) -> int:
    length = 0
    for column in zip(*rows):
        if any(item != column[0] for item in column):
            break
        length += 1
    return length


def _whole_units(calls: list, length: int) -> int:
    """The largest number of calls up to `length` that does not cut through a group."""
    while 0 < length < len(calls) and calls[length].unit == calls[length - 1].unit:
        length -= 1
    return length
