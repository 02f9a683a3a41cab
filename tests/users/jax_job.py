#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of the job of job.py, written for JAX: XLA makes the calls, and finds NCCL by name at the first of them.

Takes the arguments of job.py. The ranks meet at JAX's coordinator. XLA compiles a step anew for each size, so
that what a rank calls can be told apart from what another one calls.
"""
import argparse
import os
import pathlib
import socket
import sys
import time

sys.dont_write_bytecode = True

UNUSABLE = 77
STEPS = 10
FAULT_STEP = 6

# No graph capture, so that each call is made when it is due; several ranks may share a GPU.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_enable_command_buffer=")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def coordinator(place: pathlib.Path, rank: int) -> str:
    path = place / "address"
    if rank == 0:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        path.with_suffix(".new").write_text(address)
        path.with_suffix(".new").rename(path)
    while not path.exists():
        time.sleep(0.01)
    return path.read_text()


def programs(jax, size):
    """All-reduce, exchange and all-gather over all ranks, each on an array with one row a rank."""
    mesh = jax.sharding.Mesh(jax.devices(), ("rank",))
    rows = jax.sharding.PartitionSpec("rank")
    ring = [(rank, (rank + 1) % size) for rank in range(size)]
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map

    def over_ranks(function):
        return jax.jit(shard_map(function, mesh=mesh, in_specs=rows, out_specs=rows))
    return (jax.sharding.NamedSharding(mesh, rows),
            over_ranks(lambda x: jax.lax.psum(x, "rank")),
            over_ranks(lambda x: jax.lax.ppermute(x, "rank", ring)),
            over_ranks(lambda x: jax.lax.all_gather(x, "rank", axis=0, tiled=True)))


def expect(what, array, wanted):
    found = array.addressable_shards[0].data
    if not (found == wanted).all():
        raise AssertionError(f"{what}: {found.ravel()[:4]}…, not {wanted}")


def run(jax, args):
    import numpy
    sharding, all_reduce, exchange, all_gather = programs(jax, args.size)

    def rows_of(count):
        row = numpy.full((1, count), args.rank + 1.0, "float32")
        return jax.make_array_from_process_local_data(sharding, row, (args.size, count))
    for number in range(STEPS):
        if args.fault == "skip" and args.rank == args.culprit and number == FAULT_STEP:
            continue
        given = rows_of(1000 + number)
        expect("all-reduce", all_reduce(given).block_until_ready(), args.size * (args.size + 1) / 2)  # CALL all-reduce
        expect("exchange", exchange(given).block_until_ready(), (args.rank - 1) % args.size + 1)  # CALL exchange
    gathered = all_gather(rows_of(8)).block_until_ready().addressable_shards[0].data  # CALL all-gather
    assert [float(row[0]) for row in gathered] == [rank + 1.0 for rank in range(args.size)], gathered


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("user")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--meet", type=pathlib.Path, required=True)
    parser.add_argument("--fault", choices=["none", "skip"], default="none")
    parser.add_argument("--culprit", type=int, default=2)
    parser.add_argument("--platform", default="cuda")
    args = parser.parse_args()
    try:
        import jax
    except ImportError as missing:
        print(f"JAX cannot be imported: {missing}", file=sys.stderr)
        return UNUSABLE
    jax.config.update("jax_platforms", args.platform)
    jax.distributed.initialize(coordinator(args.meet, args.rank), args.size, args.rank,
                               local_device_ids=[args.device] if args.platform == "cuda" else None)
    try:
        devices = jax.devices()
    except (RuntimeError, AssertionError) as error:
        print(f"JAX finds no GPU: {error}".splitlines()[0], file=sys.stderr)
        return UNUSABLE
    if len(devices) != args.size:
        print(f"JAX sees {len(devices)} devices for {args.size} ranks", file=sys.stderr)
        return UNUSABLE
    run(jax, args)
    jax.distributed.shutdown()
    print("the results are right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
