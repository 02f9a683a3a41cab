# SPDX-License-Identifier: Apache-2.0
"""What ranks send, and what they must have received.

Every element a rank sends is 1 or 2, drawn from a short sequence of the rank's own. So sums over any
sensible number of ranks and products over eight are exact in every type, bf16 included, and data that
comes from the wrong rank or place shows within a few elements.
"""

from __future__ import annotations

import struct

from scenario.syntax import TYPE_SIZES

PERIOD = 61
HEAD = 32                           # elements checked at the beginning of each block; and its last one

_FORMATS = {"i8": "b", "u8": "B", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
            "f16": "e", "f32": "f", "f64": "d", "bf16": "H"}


def value(rank: int, index: int) -> int:
    """Element `index` of what world rank `rank` sends."""
    mixed = ((rank + 1) * 2654435761 ^ (index % PERIOD + 1) * 2246822519) * 3266489917
    return 1 + (mixed >> 15 & 1)


def pattern(rank: int, kind: str, nbytes: int) -> bytes:
    """`nbytes` of the rank's data as elements of type `kind`."""
    one_period = encode(kind, [value(rank, index) for index in range(PERIOD)])
    return (one_period * (nbytes // len(one_period) + 1))[:nbytes]


def encode(kind: str, values: list) -> bytes:
    if kind == "bf16":
        values = [struct.unpack("<I", struct.pack("<f", item))[0] >> 16 for item in values]
    return struct.pack(f"<{len(values)}{_FORMATS[kind]}", *values)


def decode(kind: str, raw: bytes) -> list:
    values = list(struct.unpack(f"<{len(raw) // TYPE_SIZES[kind]}{_FORMATS[kind]}", raw))
    if kind == "bf16":
        values = [struct.unpack("<f", struct.pack("<I", item << 16))[0] for item in values]
    return values


def reduced(op: str, kind: str, values: list):
    """The values of all members reduced to one."""
    if op == "prod":
        product = 1
        for item in values:
            product *= item
        return product
    if op in ("max", "min"):
        return max(values) if op == "max" else min(values)
    total = sum(values)
    if op == "avg":
        return total / len(values) if kind in ("f16", "f32", "f64", "bf16") else total // len(values)
    return total


def expected(word: str, kind: str, count: int, op: str | None, root: int, rank: int, members: tuple) -> list:
    """What an operation leaves in the receive buffer of comm rank `rank`; `members` are world ranks.

    A list of (offset in elements, function from the index within the block to its value), empty where
    this rank receives nothing. Each block has `count` elements.
    """
    def sent_by(member: int, shift: int = 0):
        return lambda index: value(members[member], shift + index)

    def reduction(shift: int = 0):
        return lambda index: reduced(op, kind, [value(member, shift + index) for member in members])

    everyone = range(len(members))
    if word in ("reduce", "gather") and rank != root:
        return []
    if word in ("allreduce", "reduce"):
        return [(0, reduction())]
    if word == "reducescatter":
        return [(0, reduction(rank * count))]
    if word in ("allgather", "gather"):
        return [(member * count, sent_by(member)) for member in everyone]
    if word == "alltoall":
        return [(member * count, sent_by(member, rank * count)) for member in everyone]
    if word == "scatter":
        return [(0, sent_by(root, rank * count))]
    return [(0, sent_by(root))] if word in ("broadcast", "recv") else []


def equal(kind: str, got, want) -> bool:
    """Whether a received value is the wanted one: exact, but for averages and overflowing integers."""
    if kind in ("f32", "f64"):
        return abs(got - want) <= 1e-5 * abs(want)
    if kind in ("f16", "bf16"):
        return abs(got - want) <= abs(want) / 64
    return (got - want) % (1 << 8 * TYPE_SIZES[kind]) == 0


def windows(count: int) -> list:
    """(first, length) in elements of what is looked at in a block of `count`."""
    head = min(count, HEAD)
    return [(0, head)] + ([(count - 1, 1)] if count > head else [])
