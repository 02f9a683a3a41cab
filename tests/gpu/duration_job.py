# SPDX-License-Identifier: Apache-2.0
"""All-reduces of several sizes, each between two CUDA events; started by torchrun.

    duration_job.py GPUS DIR

Writes the microseconds between the events, by the operation's number in its communicator, to DIR/rankN.json.
"""
import json
import os
import sys

SIZES = [1 << 18, 1 << 21, 1 << 23]     # elements
TIMES = 512                             # each, of which the library times one in 64
AHEAD_CYCLES = 400_000                  # the device is busy so long that all is enqueued when it comes to the first event


def main():
    gpus, directory = int(sys.argv[1]), sys.argv[2]
    rank = int(os.environ["RANK"])
    if int(os.environ["WORLD_SIZE"]) > gpus:
        from torch_job import several_ranks_on_one_gpu
        several_ranks_on_one_gpu(rank, gpus)
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank % gpus)
    dist.init_process_group("nccl")
    tensors = [torch.ones(size, device="cuda") for size in SIZES]
    events = []
    for number in range(TIMES * len(SIZES)):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(AHEAD_CYCLES)
        begin.record()
        dist.all_reduce(tensors[number % len(SIZES)])
        end.record()
        torch.cuda.synchronize()
        events.append((SIZES[number % len(SIZES)], begin, end))
    with open(os.path.join(directory, f"rank{rank}.json"), "w", encoding="utf-8") as file:
        json.dump({str(number): [size, begin.elapsed_time(end) * 1000]
                   for number, (size, begin, end) in enumerate(events, 1)}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
