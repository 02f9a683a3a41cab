# SPDX-License-Identifier: Apache-2.0
"""One PyTorch process that measures on request: a word on stdin, `value SECONDS` on stdout.

Started by tests/gpu/bench, several at a time, each with its own settings; only one works at a time. RANK,
WORLD_SIZE and BENCH_STORE say which rank of which job it is, BENCH_GPUS over how many GPUs the ranks are spread.

    issue     issuing one all-reduce, 16 frames deep. In place and with one rank the GPU has nothing to do.
    stream    a matrix product of some 50 us and an all-gather, both on the compute stream. With one rank
              an all-gather is a copy of 4 MiB; issuing both takes the host less than the GPU needs for them, so
              what is measured is the device's time, and the marks around the copy stand between kernels.
    overlap   the same with async_op=True: the copy goes to NCCL's own stream, beside the product.
    step      a step of a small transformer under DDP: forward, backward with its all-reduces, optimizer.
    inline    the same without DDP: all gradients are reduced at once after the backward pass, on the compute stream.
    step-small, inline-small   with so small a batch that the host takes as long as the GPU.

With a GPU for each rank:

    latency       an all-reduce of 8 bytes, and waiting for it.
    ddp           a step of a larger model under DDP, whose all-reduces run beside the backward pass …
    ddp-serial    … and with all gradients in one bucket, reduced after it …
    ddp-inline    … and without DDP, as above.
    fsdp          a step under FSDP, whose gathers run ahead of the backward pass …
    fsdp-serial   … and without prefetching …
    fsdp-small    … and with so small a batch that the host takes longer than the GPU.
"""
import inspect
import os
import statistics
import sys
import time

DEPTH = 14          # of the loop around all_reduce; PyTorch adds two frames
CALLS, BATCHES, PAIRS, STEPS = 200, 5, 100, 4
ISSUED = CALLS * BATCHES        # all-reduces in one asking for `issue`
ALONE = ["issue", "stream", "overlap", "step", "inline", "step-small", "inline-small"]
ON_SEVERAL_GPUS = ["latency", "ddp", "ddp-serial", "ddp-inline", "fsdp", "fsdp-serial", "fsdp-small"]


def deep(frames, work):
    """work(), so many frames further down."""
    return deep(frames - 1, work) if frames > 0 else work()


class Bench:
    def __init__(self, torch, dist):
        self.torch, self.dist = torch, dist
        self.small = torch.ones(1024, device="cuda")
        self.part = torch.ones(1 << 20, device="cuda")
        self.whole = torch.empty(dist.get_world_size() << 20, device="cuda")
        self.a = torch.ones(2560, 2560, device="cuda", dtype=torch.bfloat16)
        self.product = torch.empty_like(self.a)
        self.models = {}        # word -> what trained() makes
        self.warm = set()

    def timed(self, work, count):
        """Seconds for each of `count`, all that the device does included."""
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        self.torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    def issue(self):
        def calls():
            start = time.perf_counter()
            for _ in range(CALLS):
                self.dist.all_reduce(self.small)
            spent = time.perf_counter() - start
            self.torch.cuda.synchronize()
            return spent / CALLS
        above, samples = len(inspect.stack(0)), []
        for _ in range(BATCHES):
            samples.append(deep(DEPTH - above - 2, calls))
        return statistics.median(samples)

    def stream(self):
        def pairs():
            for _ in range(PAIRS):
                self.torch.mm(self.a, self.a, out=self.product)
                self.dist.all_gather_into_tensor(self.whole, self.part)
        return statistics.median(self.timed(pairs, PAIRS) for _ in range(3))

    def overlap(self):
        def pairs():
            for _ in range(PAIRS):
                work = self.dist.all_gather_into_tensor(self.whole, self.part, async_op=True)
                self.torch.mm(self.a, self.a, out=self.product)
                work.wait()
        return statistics.median(self.timed(pairs, PAIRS) for _ in range(3))

    def make_encoder(self, word):
        """Of 3 M parameters; under DDP unless inline."""
        torch = self.torch
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
        model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
        if word.startswith("step"):
            model = torch.nn.parallel.DistributedDataParallel(model)
        return self.trained(model, 8 if word.endswith("small") else 512, 64, 256)

    def reduce_gradients(self, model):
        flat = self.torch.cat([parameter.grad.view(-1) for parameter in model.parameters()])
        self.dist.all_reduce(flat)

    def trained(self, model, *batch):
        """What steps() takes."""
        return (model, self.torch.optim.SGD(model.parameters(), lr=1e-4), self.torch.ones(*batch, device="cuda"))

    def steps(self, word):
        """Seconds for one; the first ever are not timed."""
        if word not in self.models:
            self.models[word] = self.make_larger(word) if word in ON_SEVERAL_GPUS else self.make_encoder(word)
        model, optimizer, batch = self.models[word]

        def some():
            for _ in range(STEPS):
                optimizer.zero_grad()
                model(batch).pow(2).mean().backward()
                if "inline" in word:
                    self.reduce_gradients(model)
                optimizer.step()
        if word not in self.warm:
            self.warm.add(word)
            some()
        return self.timed(some, STEPS)

    def latency(self):
        two = self.torch.ones(2, device="cuda")

        def waits():
            for _ in range(CALLS):
                self.dist.all_reduce(two)
                self.torch.cuda.synchronize()
        return self.timed(waits, CALLS)

    def make_larger(self, word):
        """Four blocks of 8 M parameters each."""
        torch = self.torch
        from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel
        torch.manual_seed(0)
        blocks = [torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
                  for _ in range(4)]
        model = torch.nn.Sequential(*blocks)
        if word.startswith("fsdp"):
            ahead = None if word == "fsdp-serial" else BackwardPrefetch.BACKWARD_PRE
            model = FullyShardedDataParallel(
                torch.nn.Sequential(*(FullyShardedDataParallel(block, backward_prefetch=ahead) for block in blocks)),
                backward_prefetch=ahead, device_id=torch.cuda.current_device())
        elif word != "ddp-inline":
            model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=25 if word == "ddp" else 1000)
        return self.trained(model, 6144 if word in ("fsdp", "fsdp-serial") else 2048, 1024)

    def measure(self, word):
        return getattr(self, word)() if hasattr(self, word) else self.steps(word)


def answer(seconds):
    print(f"value {seconds:.9f}", flush=True)


def main():
    rank, world, gpus = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "BENCH_GPUS"))
    if world > gpus:
        from torch_job import several_ranks_on_one_gpu
        several_ranks_on_one_gpu(rank, gpus)
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank % gpus)
    dist.init_process_group("nccl", init_method="file://" + os.environ["BENCH_STORE"], rank=rank, world_size=world)
    bench = Bench(torch, dist)
    for word in sys.argv[1:] or (ON_SEVERAL_GPUS if gpus > 1 else ["step"] if world > 1 else ALONE):
        bench.measure(word)
    answer(0)
    for line in sys.stdin:
        answer(bench.measure(line.strip()))
    os._exit(0)         # nobody waits for anybody


if __name__ == "__main__":
    main()
