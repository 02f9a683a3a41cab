#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a small job that calls NCCL through a library that others wrote: `job.py USER …`.

Each user_NAME.py holds one such library behind the same few methods. Ten steps of an all-reduce and a ring of
messages, then a broadcast and an all-gather, all results looked at. --fault skip: the culprit leaves out one step, so
that all hang. With --graph the steps launch an all-reduce that was captured once, as inference servers do, and the
culprit stops before a launch. The comments `# CALL name` mark lines that launch.py looks for in reports.

Exit status: 0 the results are right, 77 this user cannot be run here, the last line on stderr says why.
"""
import argparse
import importlib
import os
import pathlib
import sys
import time

sys.dont_write_bytecode = True

from cudart import Array, Cuda, Unusable     # noqa: E402

STEPS = 10
FAULT_STEP = 6      # counted from 0, so that the seventh all-reduce is left out


def meet(place: pathlib.Path, rank: int, make) -> bytes:
    """The unique id, made by rank 0 and found by the others in a file."""
    path = place / "unique_id"
    if rank == 0:
        unique_id = make()
        path.with_suffix(".new").write_bytes(unique_id)
        path.with_suffix(".new").rename(path)
        return unique_id
    while not path.exists():
        time.sleep(0.01)
    return path.read_bytes()


def expect(what: str, found: list, wanted: float) -> None:
    if any(value != wanted for value in found):
        raise AssertionError(f"{what}: {found[:4]}…, not {wanted}")


def step(user, cuda: Cuda, number: int, args) -> None:
    """A step's results are looked at within the step, as a training loop looks at its loss."""
    count = 1000 + number
    given, taken = Array(cuda, count, args.rank + 1.0), Array(cuda, count)
    user.all_reduce(given, taken)  # CALL all-reduce
    cuda.synchronize()  # WAIT all-reduce
    expect("all-reduce", taken.read(), args.size * (args.size + 1) / 2)
    after, before = (args.rank + 1) % args.size, (args.rank - 1) % args.size
    user.exchange(given, after, taken, before)  # CALL exchange
    cuda.synchronize()
    expect("exchange", taken.read(), before + 1.0)


def wait_for_a_request() -> None:
    time.sleep(3600)


def serve(user, cuda: Cuda, args) -> None:
    given, taken = Array(cuda, 1000, args.rank + 1.0), Array(cuda, 1000)
    user.all_reduce(given, taken)
    cuda.synchronize()
    graph = cuda.capture(lambda: user.all_reduce(given, taken))
    for number in range(STEPS):
        if args.fault == "skip" and args.rank == args.culprit and number == FAULT_STEP:
            wait_for_a_request()
        cuda.launch(graph)  # CALL launch
        cuda.synchronize()  # WAIT launch
        expect("all-reduce", taken.read(), args.size * (args.size + 1) / 2)
    cuda.call("cudaGraphExecDestroy", graph)
    user.close()


def run(user, cuda: Cuda, args) -> None:
    user.connect(args.size, args.rank, meet(args.meet, args.rank, user.unique_id))
    if args.graph:
        serve(user, cuda, args)
        return
    for number in range(STEPS):
        if args.fault == "skip" and args.rank == args.culprit and number == FAULT_STEP:
            continue
        step(user, cuda, number, args)
    one, all_of_them = Array(cuda, 8, args.rank + 1.0), Array(cuda, 8 * args.size)
    user.broadcast(one, 1)  # CALL broadcast
    user.all_gather(one, all_of_them)  # CALL all-gather
    cuda.synchronize()
    expect("broadcast", one.read(), 2.0)
    expect("all-gather", all_of_them.read(), 2.0)
    user.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("user")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--meet", type=pathlib.Path, required=True, help="an empty directory that all ranks share")
    parser.add_argument("--fault", choices=["none", "skip"], default="none")
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--culprit", type=int, default=2)
    args = parser.parse_args()
    try:
        cuda = Cuda(os.environ.get("USERS_CUDART", "libcudart.so"), args.device)
        user = importlib.import_module("user_" + args.user).User(cuda, os.environ.get("USERS_NCCL", "libnccl.so.2"))
    except Unusable as reason:
        print(reason, file=sys.stderr)
        return 77
    run(user, cuda, args)
    print("the results are right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
