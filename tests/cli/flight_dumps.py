#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes dumps as PyTorch's flight recorder does, for jobs with a known fault.

    flight_dumps.py CASE DIR [VERSION [FORM]]     FORM: p2 to p5 (pickle protocols), json
    flight_dumps.py --cases                       all cases, one a line, with what must be said of them
    flight_dumps.py --all DIR                     all of them in DIR/CASE.VERSION.FORM
"""
import json
import os
import pickle
import sys
import time

MS = 1000000
LIBRARY = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"


class Job:
    def __init__(self, size, keep=None):
        # Long before the files are written, unless the job is to be one that moves.
        self.start = int(os.environ.get("NOW", time.time_ns())) - (0 if os.environ.get("MOVING") else 600 * 1000 * MS)
        self.start -= int(os.environ.get("EARLIER", "0")) * 1000 * MS
        self.size, self.keep = size, keep
        self.groups = {}
        self.ranks = [{"entries": [], "next": 0, "groups": {}} for _ in range(size)]
        self.clock = 0
        self.group("0", "default_pg", list(range(size)))

    def group(self, name, desc, members):
        self.groups[name] = (desc, members)
        for rank in members:
            groups = self.ranks[rank]["groups"]
            groups[name] = {"id": len(groups), "coll": 0, "p2p": 0, "op": 0}

    def record(self, rank, name, title, size, done, dtype="Float", p2p=False, out=None, line=9, step=1,
               state=None):
        self.clock += 1
        me = self.ranks[rank]
        group = me["groups"][name]
        group["p2p" if p2p else "coll"] += step
        group["op"] += 1
        created = self.start + self.clock * MS
        frames = [("all_reduce", LIBRARY, 3068), ("step", "/home/user/train.py", line),
                  ("<module>", "/home/user/train.py", 99)]
        me["entries"].append({
            "frames": [{"name": n, "filename": f, "line": l} for n, f, l in frames],
            "record_id": me["next"], "pg_id": group["id"], "process_group": (name, self.groups[name][0]),
            "thread_name": "python", "thread_id": "139881829798208",
            "collective_seq_id": group["coll"], "p2p_seq_id": group["p2p"], "op_id": group["op"],
            "profiling_name": title, "time_created_ns": created,
            "input_sizes": [[size]], "input_dtypes": [dtype],
            "output_sizes": [[size if out is None else out]], "output_dtypes": [dtype],
            "state": state or ("completed" if done else "scheduled"), "time_discovered_started_ns": None,
            "time_discovered_completed_ns": created + MS if done else None, "retired": done,
            "timeout_ms": 600000, "is_p2p": p2p})
        me["next"] += 1

    def all(self, count, done, title="nccl:all_reduce", size=1024, name="0", but=(), **more):
        for _ in range(count):
            for rank in self.groups[name][1]:
                if rank not in but:
                    self.record(rank, name, title, size, done, **more)

    def send(self, rank, peer, done, name="0", size=4096, **more):
        self.record(rank, name, f"nccl:send {rank}->{peer}", size, done, p2p=True, **more)

    def recv(self, rank, peer, done, name="0", size=4096, **more):
        self.record(rank, name, f"nccl:recv {rank}<-{peer}", size, done, p2p=True, **more)

    def coalesced(self, rank, done, name="0", p2p=False):
        self.record(rank, name, "nccl:coalesced", 0, done, p2p=p2p, step=0)

    def dump(self, rank, version):
        me = self.ranks[rank]
        minor = int(version.split(".")[1])
        entries = me["entries"][-self.keep - rank:] if self.keep else me["entries"]
        config = {name: {"name": name, "desc": self.groups[name][0],
                         "ranks": str(self.groups[name][1])} for name in me["groups"]}
        status = {str(g["id"]): {"last_enqueued_collective": g["coll"] or g["p2p"],
                                 "last_started_collective": -1, "last_completed_collective": 0}
                  for g in me["groups"].values()}
        newer = {"is_p2p": 1, "input_dtypes": 1, "output_dtypes": 1, "timeout_ms": 2,
                 "thread_id": 9, "thread_name": 9}
        entries = [{k: v for k, v in e.items() if newer.get(k, 0) <= minor} for e in entries]
        if minor == 0:
            for entry in entries:
                entry["seq_id"] = entry.pop("p2p_seq_id" if "<-" in entry["profiling_name"] or
                                            "->" in entry["profiling_name"] else "collective_seq_id")
                entry.pop("collective_seq_id", None)
                entry.pop("p2p_seq_id", None)
        dump = {"version": version, "pg_config": config, "pg_status": status, "entries": entries}
        if minor < 3:
            del dump["pg_status"]
        if minor >= 6:
            dump["comm_lib_version" if minor >= 10 else "nccl_version"] = "2.28.9"
        return dump

    def write(self, directory, version, form, but=()):
        for rank in range(self.size):
            if rank in but:
                continue
            path = os.path.join(directory, f"nccl_trace_rank_{rank}" + (".json" if form == "json" else ""))
            dump = self.dump(rank, version)
            with open(path, "wb") as out:
                if form == "json":
                    for entry in dump["entries"]:
                        del entry["frames"]
                        entry["time_discovered_started_ns"] = entry["time_discovered_started_ns"] or 0
                    dump["pg_status"] = {k: {n: str(v) for n, v in s.items()}
                                         for k, s in dump.get("pg_status", {}).items()}
                    out.write(json.dumps(dict(sorted(dump.items()))).encode())
                else:
                    pickle.dump(dump, out, protocol=int(form[1:]))


# Each case makes a job; its comment says what must come of it: class, blame, sequence number (- for any).
CASES = {}


def case(expected):
    def add(function):
        CASES[function.__name__.replace("_", "-")] = (expected, function)
        return function
    return add


@case("consistent - -")
def healthy():
    job = Job(4)
    job.all(9, True)
    return job


@case("missing 2 7")
def skip():
    job = Job(4)
    for i in range(6):
        job.all(1, True, size=1000 + i)
    for i in range(6, 10):
        job.all(1, False, size=1000 + i, but=(2,) if i == 6 else ())
    return job


@case("mismatch 1 5")
def size():
    job = Job(4)
    job.all(4, True)
    for rank in range(4):
        job.record(rank, "0", "nccl:all_reduce", 2048 if rank == 1 else 1024, False)
    return job


@case("mismatch 0 5")
def dtype():
    job = Job(4)
    job.all(4, True)
    for rank in range(4):
        job.record(rank, "0", "nccl:all_reduce", 1024, False, dtype="Float" if rank else "Half")
    return job


@case("mismatch 3 5")
def wrong_collective():
    job = Job(4)
    job.all(4, True)
    for rank in range(4):
        if rank == 3:
            job.record(rank, "0", "nccl:_all_gather_base", 1024, False, out=4096)
        else:
            job.record(rank, "0", "nccl:all_reduce", 1024, False)
    job.all(1, False)
    return job


@case("order 2 5")
def swapped():
    job = Job(4)
    job.all(4, True)
    for rank in range(4):
        calls = [("nccl:broadcast", 64), ("nccl:all_reduce", 512)]
        for title, count in reversed(calls) if rank == 2 else calls:
            job.record(rank, "0", title, count, False)
    job.all(3, False)
    return job


def ring(job, rounds, done, wrong=None):
    for _ in range(rounds):
        for rank in range(job.size):
            to, source = (rank + 1) % job.size, (rank - 1) % job.size
            if rank == wrong:
                to = (rank + 2) % job.size
            job.send(rank, to, done, step=1)
            job.recv(rank, source, done, step=0)
            job.coalesced(rank, done, p2p=True)


@case("p2p 1 -")
def wrong_peer():
    job = Job(4)
    ring(job, 3, True)
    ring(job, 1, False, wrong=1)
    return job


@case("consistent - -")
def healthy_ring():
    job = Job(4)
    ring(job, 5, True)
    return job


@case("missing 5 3")
def sub_group():
    job = Job(8)
    job.group("1", "tensor", [0, 1, 2, 3])
    job.group("2", "tensor", [4, 5, 6, 7])
    job.all(5, True)
    job.all(3, True, name="1", title="nccl:_all_gather_base")
    job.all(2, True, name="2", title="nccl:_all_gather_base")
    job.all(1, False, name="2", title="nccl:_all_gather_base", but=(5,))
    job.all(1, False, but=(4, 5, 6, 7))
    return job


@case("missing 3 7")
def host_stuck():
    job = Job(4)
    job.all(6, True)
    job.all(1, False, but=(3,))
    return job


@case("missing 2 51")
def wrapped():
    job = Job(4, keep=20)
    job.all(50, True)
    job.all(1, False, but=(2,))
    return job


@case("p2p 3 -")
def wrapped_ring():
    job = Job(4, keep=30)
    ring(job, 40, True)
    ring(job, 1, False, wrong=3)
    return job


@case("missing 1 6")
def coalesced():
    job = Job(4)
    for turn in range(6):
        for rank in range(4):
            if (turn, rank) == (5, 1):
                continue
            # inside a group the order is free, and only the end has a state
            sizes = (256, 512) if rank % 2 else (512, 256)
            job.record(rank, "0", "nccl:all_gather_into_tensor_coalesced", sizes[0], False)
            job.record(rank, "0", "nccl:all_gather_into_tensor_coalesced", sizes[1], False, step=0)
            job.coalesced(rank, turn < 5)
    return job


@case("consistent - -")
def wrapped_coalesced():
    """The ring ends inside a group, on each rank elsewhere; types differ, and so does the order of them."""
    job = Job(4, keep=7)
    for _ in range(9):
        for rank in range(4):
            kinds = [("Float", 256), ("BFloat16", 512)]
            for i, (kind, count) in enumerate(reversed(kinds) if rank % 2 else kinds):
                job.record(rank, "0", "nccl:all_gather_into_tensor_coalesced", count, False, dtype=kind, step=not i)
            job.coalesced(rank, True)
    return job


@case("consistent - -")
def uneven_all_to_all():
    job = Job(4)
    for rank in range(4):
        job.record(rank, "0", "nccl:all_to_all", 1000 + rank, True, out=1010 - rank)
    job.all(3, True)
    return job


@case("stalled - 4")
def stalled():
    job = Job(4)
    job.all(3, True)
    job.all(1, False)
    return job


@case("gpu 2 4")
def broken_device():
    job = Job(4)
    job.all(3, True)
    for rank in range(4):
        job.record(rank, "0", "nccl:all_reduce", 1024, rank != 2)
    job.all(1, False, but=(2,))
    return job


@case("gpu 2 4")
def behind_other_work():
    """With timing on, starts are recorded: rank 2's device never came to the operation."""
    job = Job(4)
    job.all(3, True)
    for rank in range(4):
        job.record(rank, "0", "nccl:all_reduce", 1024, False, state="scheduled" if rank == 2 else "started")
    for rank in job.ranks:
        for entry in rank["entries"]:
            if entry["state"] != "scheduled":
                entry["time_discovered_started_ns"] = entry["time_created_ns"] + 1
    return job


@case("missing 2 4")
def active_only():
    """Completed operations are left out, as TORCH_NCCL_TRACE's onlyactive does."""
    job = Job(4)
    job.all(3, True)
    job.all(2, False, but=(2,))
    for rank in job.ranks:
        rank["entries"] = [e for e in rank["entries"] if e["state"] != "completed"]
    return job


@case("missing 2 51")
def stuck_early():
    """Rank 2 made its last call two minutes before the first that the rings of the others still hold."""
    job = Job(4, keep=4)
    job.all(50, True)
    job.clock += 120 * 1000
    job.all(8, False, but=(2,))
    return job


def main():
    if sys.argv[1:] == ["--cases"]:
        for name, (expected, _) in CASES.items():
            print(name, expected)
        return
    if sys.argv[1] == "--all":
        for name in CASES:
            forms = [("2.10", "p2")]
            if name in ("skip", "sub-group"):
                forms += [(f"2.{minor}", "p2") for minor in range(10)]
            if name in ("skip", "wrong-peer"):
                forms += [("2.10", form) for form in ("p3", "p4", "p5", "json")]
            if name == "active-only":
                forms += [("2.2", "p2")]
            for version, form in forms:
                directory = os.path.join(sys.argv[2], f"{name}.{version}.{form}")
                os.makedirs(directory)
                CASES[name][1]().write(directory, version, form)
        return
    name, directory = sys.argv[1:3]
    version = sys.argv[3] if len(sys.argv) > 3 else "2.10"
    form = sys.argv[4] if len(sys.argv) > 4 else "p2"
    os.makedirs(directory, exist_ok=True)
    but = [int(r) for r in os.environ.get("LEFT_OUT", "").split()]
    CASES[name][1]().write(directory, version, form, but)


if __name__ == "__main__":
    main()
