# SPDX-License-Identifier: Apache-2.0
"""The durations in a trace beside what CUDA events around the same operations say."""

from __future__ import annotations

import json
import pathlib
import shutil
import statistics
import subprocess
import sys

from native import HERE, end_all, tool, traced

LIMIT_S = 90
FEWEST = 5          # timed operations of a size
AROUND_US = 15.0    # what PyTorch puts between its events beside the operation: waits of streams for each other
SHARE = 0.1         # by which the medians may differ besides


def measured(trace: pathlib.Path, events: pathlib.Path) -> dict:
    """Size -> list of (microseconds in the trace, microseconds between the events) of the same operations."""
    by_number = json.loads(events.read_text())
    calls = json.loads(tool("nccltrace", "show", "--json", str(trace)).stdout)[0]["calls"]
    pairs: dict = {}
    for call in calls:
        if call["function"] == "AllReduce" and call["gpu_ns"] is not None and str(call["seq"]) in by_number:
            size, microseconds = by_number[str(call["seq"])]
            pairs.setdefault(size, []).append((call["gpu_ns"] / 1000, microseconds))
    return pairs


def compare(rank: int, pairs: dict) -> tuple:
    """(what was seen, what is wrong)."""
    seen, wrong = [], []
    for size, both in sorted(pairs.items()):
        ours, events = (statistics.median(column) for column in zip(*both))
        seen.append(f"{4 * size >> 20} MiB: {ours:.0f} us, events {events:.0f} us ({len(both)} times)")
        if len(both) < FEWEST:
            wrong.append(f"rank {rank}, {size} elements: only {len(both)} were timed")
        if not events * (1 - SHARE) - AROUND_US <= ours <= events * (1 + SHARE):
            wrong.append(f"rank {rank}, {size} elements: {ours:.0f} us, but {events:.0f} us between events")
    if not pairs:
        wrong.append(f"rank {rank}: the trace holds no duration")
    return "; ".join(seen), wrong


def duration_cases(out: pathlib.Path, gpus: int) -> list:
    """One row: the durations of rank 0, if those of no rank are wrong."""
    directory, ranks = out / "traces-durations", max(2, gpus)
    name = ("GPU durations", f"in the trace as between CUDA events, {ranks} ranks on {gpus} GPUs")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
               str(HERE / "duration_job.py"), str(gpus), str(directory)]
    try:
        done = subprocess.run(command, env=traced(directory, OMP_NUM_THREADS="1"), capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return [(*name, f"FAIL: not done within {LIMIT_S} s")]
    finally:
        end_all(directory)
    if done.returncode:
        return [(*name, "FAIL: " + (done.stderr.strip().splitlines() or ["the job failed"])[-1])]
    results = [compare(rank, measured(directory / f"rank{rank}.trace", directory / f"rank{rank}.json"))
               for rank in range(ranks)]
    wrong = [text for _, texts in results for text in texts]
    row = (*name, "FAIL: " + "; ".join(wrong) if wrong else "ok, rank 0: " + results[0][0])
    print(*row, flush=True)
    return [row]
