#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small PyTorch data-parallel job with an optional fault, started by torchrun.

All ranks share one GPU unless --gpus says otherwise: NCCL then needs a host id per rank. The faults are
those of a real job: a rank that leaves out a call, dies, or stays in host code.
"""
import argparse
import os
import signal
import sys
import time


def several_ranks_on_one_gpu(rank):
    """NCCL refuses two ranks on one GPU of one host: pretend that each is a host of its own."""
    os.environ.update(
        NCCL_HOSTID=f"gpu-test-{rank}",
        NCCL_SOCKET_IFNAME="lo",
        NCCL_IB_DISABLE="1",
        NCCL_MAX_NCHANNELS="2",
        NCCL_NVLS_ENABLE="0",
    )


def stuck_in_host_code():
    while True:
        time.sleep(3600)


def allreduces(dist, torch, rank, args):
    """Ten all-reduces of growing size; the fault strikes before the seventh."""
    for i in range(10):
        if i == 6 and rank == args.culprit:
            if args.fault == "skip":
                continue
            if args.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if args.fault == "stuck":
                stuck_in_host_code()
        x = torch.full((1000 + i,), float(rank + 1), device="cuda")
        dist.all_reduce(x)
        torch.cuda.synchronize()


def train(dist, torch, rank, steps):
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["none", "skip", "kill", "stuck"], default="none")
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--gpus", type=int, default=1)
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    if args.gpus == 1:
        several_ranks_on_one_gpu(rank)
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % args.gpus)
    dist.init_process_group("nccl")
    if args.fault == "none":
        train(dist, torch, rank, args.steps)
    else:
        allreduces(dist, torch, rank, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
