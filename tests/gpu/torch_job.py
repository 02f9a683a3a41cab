#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small PyTorch data-parallel job with an optional fault, started by torchrun.

Ranks share one GPU unless --gpus says otherwise: NCCL then needs host ids. Each fault is a
mistake of a real job in a function of its own. The comments `# FAULT name`, `# CALL name` and
`# WAIT name` mark lines that tests/gpu/torch_cases.py looks for in reports.
"""
import argparse
import ctypes
import os
import signal
import sys
import time

STEPS = 10
FAULT_STEP = 6      # counted from 0: the fault strikes before the seventh all-reduce


def several_ranks_on_one_gpu(rank, gpus=1):
    """NCCL refuses two ranks on one GPU of one host: pretend that each batch of `gpus` ranks is a host of its own."""
    os.environ.update(
        NCCL_HOSTID=f"gpu-test-{rank // gpus}",
        NCCL_SOCKET_IFNAME="lo",
        NCCL_IB_DISABLE="1",
        NCCL_MAX_NCHANNELS="2",
    )


class Samples:
    """A data set; item `hangs_at` is on a file system that does not answer."""

    def __init__(self, hangs_at):
        self.hangs_at = hangs_at

    def __len__(self):
        return 2 * STEPS

    def __getitem__(self, index):
        if index == self.hangs_at:
            time.sleep(3600)
        return index


class Job:
    """What a rank works with; `fault` is "none" on all ranks but the culprit."""

    def __init__(self, torch, dist, rank, args):
        self.torch, self.dist, self.rank = torch, dist, rank
        self.fault = args.fault if rank == args.culprit else "none"
        self.others_fault = args.fault
        hangs = self.fault == "host-stuck"
        loader = torch.utils.data.DataLoader(Samples(FAULT_STEP if hangs else -1), num_workers=1 if hangs else 0)
        self.batches = iter(loader)
        self.experts = dist.new_group() if args.fault == "opposite-order" else None


# ---- faults ------------------------------------------------------------------------------------------


def tokenize_with_c_library():
    """A C function called without letting go of the interpreter's lock."""
    ctypes.PyDLL(None).sleep(3600)  # FAULT gil


def stopped_by_somebody():
    os.kill(os.getpid(), signal.SIGSTOP)  # FAULT sigstop


def out_of_memory():
    os.kill(os.getpid(), signal.SIGKILL)  # FAULT kill


def launch_endless_kernel(torch):
    """A quarter of an hour of work on the compute stream."""
    for _ in range(18):
        torch.cuda._sleep(10**11)


def raise_for_bad_sample():
    raise ValueError("cannot decode this sample")


def strike(job):
    """The fault, in the middle of a step. True: leave out the rest of the step."""
    if job.fault == "gil":
        tokenize_with_c_library()
    if job.fault == "sigstop":
        stopped_by_somebody()
    if job.fault == "kill":
        out_of_memory()
    if job.fault == "gpu-stuck":
        launch_endless_kernel(job.torch)
    if job.fault == "swallowed":
        raise_for_bad_sample()
    return job.fault == "skip"


def leave_before_the_others(job):
    """One batch short: cleans up while the others are in their last step, and goes on without NCCL."""
    job.dist.destroy_process_group()  # FAULT leaves-early
    upload_checkpoint()


def upload_checkpoint():
    time.sleep(3600)


# ---- the job -----------------------------------------------------------------------------------------


def fetch_next_batch(job):
    return next(job.batches)  # FAULT host-stuck


def reduce_in_both_groups(job, step):
    """Of experts and of all, in an order that has to be the same everywhere."""
    gradient = job.torch.ones(1000, device="cuda")
    groups = [None, job.experts]
    if job.fault == "opposite-order" and step == FAULT_STEP:
        groups.reverse()
    for group in groups:
        job.dist.all_reduce(gradient, group=group)  # CALL opposite-order
    job.torch.cuda.synchronize()


def train_step(job, step):
    fetch_next_batch(job)
    if job.experts:
        reduce_in_both_groups(job, step)
        return
    if step == FAULT_STEP and strike(job):
        return
    gradient = job.torch.full((1000 + step,), float(job.rank + 1), device="cuda")
    job.dist.all_reduce(gradient)  # CALL step
    job.torch.cuda.synchronize()  # WAIT step


def validate(job):
    score = job.torch.full((16,), float(job.rank), device="cuda")
    scores = job.torch.empty(16 * job.dist.get_world_size(), device="cuda")
    job.dist.all_gather_into_tensor(scores, score)  # CALL validate
    job.torch.cuda.synchronize()


def steps_of(job):
    """How many batches this rank has."""
    if job.fault == "leaves-early":
        return STEPS - 1
    if job.others_fault == "finished-waited-for" and job.fault == "none":
        return STEPS + 1
    return STEPS


def run_epoch(job):
    """False if the rank is to end without further ado."""
    try:
        for step in range(steps_of(job)):
            train_step(job, step)
    except ValueError as error:
        print(f"rank {job.rank}: {error}: the rest of this epoch is left out", flush=True)
    if job.fault == "leaves-early":
        leave_before_the_others(job)
    if job.fault == "finished-waited-for":
        return False
    validate(job)
    return True


def train(torch, dist, rank, steps):
    """Training steps of a small DDP model; the parameters' bits are printed at the end."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(100 + rank)
    for _ in range(steps):
        x = torch.randn(64, 256, device="cuda")
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    import hashlib
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    if rank == 0:
        print("parameters", digest.hexdigest(), flush=True)


FAULTS = ["none", "skip", "kill", "host-stuck", "gpu-stuck", "gil", "sigstop", "swallowed", "leaves-early",
          "finished-waited-for", "opposite-order"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--gpus", type=int, default=1)
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    if int(os.environ["WORLD_SIZE"]) > args.gpus:
        several_ranks_on_one_gpu(rank, args.gpus)
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % args.gpus)
    dist.init_process_group("nccl")
    if args.fault == "none":
        train(torch, dist, rank, args.steps)
    elif not run_epoch(Job(torch, dist, rank, args)):
        return
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
