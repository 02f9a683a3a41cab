# SPDX-License-Identifier: Apache-2.0
"""How far the ranks of a job are: a file that all map, one number of steps into NCCL or CUDA for each rank."""

from __future__ import annotations

import mmap

WORD = 8


class Progress:
    """`path` is made by the runner before the ranks start."""

    def __init__(self, path: str, make_for: int = 0) -> None:
        if make_for:
            with open(path, "wb") as file:
                file.truncate(WORD * make_for)
        with open(path, "r+b") as file:
            self.steps = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

    def advance(self, rank: int) -> None:
        """A step of this rank is done. Threads of one rank may lose a step to each other; it moves all the same."""
        self.steps[rank] += 1

    def total(self) -> int:
        return sum(self.steps)
