# SPDX-License-Identifier: Apache-2.0
"""Where a scenario runs: on the simulator or on real NCCL. Libraries, environment, patience."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# A job that dies while it uses NVLink multicast can leave the GPUs of its host unusable for everybody.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


class TargetError(Exception):
    """Something that is needed to run scenarios is not there; says what to do."""


class Target:
    """Common to both: paths of the build, and the environment that torchrun would give a rank."""

    patience = 1                        # factor on every timeout, as long as ranks get on …
    quiet = 1.0                         # … which they do if one makes a step in so many seconds

    def __init__(self, build: str) -> None:
        self.build = os.path.abspath(build)
        self.pycache = os.path.join(self.build, "scenario", "pycache")
        self.tracer = os.path.join(self.build, "libnccltrace.so")
        self.shim = ""
        self.library_dirs: list = []
        self.python = [sys.executable]  # what runs a rank: an emulator's command line, for another processor
        self.tools = self.build

    def tool(self, name: str) -> str:
        return os.path.join(self.tools, name)

    def interpreter(self, environment: dict) -> list:
        """The start of a rank's command line. What its emulator runs is preloaded, not the emulator."""
        if os.path.basename(self.python[0]).startswith("qemu-"):
            return [self.python[0], "-E", f"LD_PRELOAD={environment.pop('LD_PRELOAD')}", *self.python[1:]]
        return self.python

    def device(self, _rank: int) -> int:
        return 0

    def environment(self, rank: int, world: int, folder: str) -> dict:
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("NCCL", "PYTHON", "CUDA_VISIBLE"))}
        environment.update(
            RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world),
            GROUP_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500",
            TORCHELASTIC_RUN_ID=os.path.basename(folder), TORCHELASTIC_RESTART_COUNT="0")
        environment["LD_LIBRARY_PATH"] = ":".join(
            [*self.library_dirs, *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])])
        # What the runner itself was preloaded with (a sanitizer's library) has to stay first.
        preloads = [os.environ.get("LD_PRELOAD", ""), self.tracer if os.path.exists(self.tracer) else ""]
        environment["LD_PRELOAD"] = ":".join(filter(None, preloads))
        return environment

    def clean(self, folder: str) -> None:
        """Removes what killed processes leave outside their folder."""

    def build_shim(self, nccl: str, cudart: str) -> None:
        """Builds the shim against these libraries if it is older than they are."""
        for library in (nccl, cudart):
            if not os.path.exists(library):
                raise TargetError(f"{library} is missing: build it first (make sim)")
        command = ["make", "--no-print-directory", "-C", ROOT, "-f", "tests/scenario/shim.mk",
                   f"BUILD={self.build}", f"SHIM={self.shim}", f"SHIM_NCCL={nccl}", f"SHIM_CUDART={cudart}"]
        environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            raise TargetError(f"the shim does not build:\n{result.stdout}{result.stderr}")


class Simulator(Target):
    """The CPU implementation of NCCL and CUDA in tests/sim."""

    def __init__(self, build: str) -> None:
        super().__init__(build)
        self.shim = os.path.join(self.build, "scenario", "libscnshim.so")
        simulator = os.path.join(self.build, "sim")
        self.library_dirs = [simulator]
        self.build_shim(os.path.join(simulator, "libnccl.so.2"), os.path.join(simulator, "libcudart.so.13"))

    def environment(self, rank: int, world: int, folder: str) -> dict:
        return {**super().environment(rank, world, folder), "NTSIM_DIR": self.shared_dir(folder)}

    def clean(self, folder: str) -> None:
        shutil.rmtree(self.shared_dir(folder), ignore_errors=True)

    @staticmethod
    def shared_dir(folder: str) -> str:
        """Where the simulated ranks of one job meet."""
        return f"/dev/shm/ntsim-{os.getpid()}-{os.path.basename(folder)}"


class RealNccl(Target):
    """Real NCCL on `gpus` GPUs of this machine, rank r on GPU r modulo `gpus`.

    NCCL accepts two ranks on one GPU if it takes them for different hosts: each batch of `gpus`
    ranks is a host of its own, and hosts talk through the loopback interface.
    """

    patience = 10                       # contexts and communicators take their time to be made
    quiet = 10.0

    def __init__(self, build: str, gpus: int) -> None:
        super().__init__(build)
        self.gpus = gpus
        self.shim = os.path.join(self.build, "scenario", "real", "libscnshim.so")
        nccl, cudart = find_nccl(), find_cudart()
        self.library_dirs = [os.path.dirname(nccl), os.path.dirname(cudart)]
        self.build_shim(nccl, cudart)

    def device(self, rank: int) -> int:
        return rank % self.gpus

    def environment(self, rank: int, world: int, folder: str) -> dict:
        environment = super().environment(rank, world, folder)
        environment.update(NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", **NO_MULTICAST)
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            environment["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
        if world > self.gpus:
            environment.update(NCCL_HOSTID=f"{os.path.basename(folder)}-{rank // self.gpus}",
                               NCCL_MAX_NCHANNELS="2")
        return environment


def _first(patterns: list, what: str, variable: str) -> str:
    for pattern in patterns:
        for path in sorted(glob.glob(pattern), reverse=True):
            return path
    raise TargetError(f"{what} was not found; set {variable}. Looked for: {' '.join(patterns)}")


def _site_patterns(*tails: str) -> list:
    return [os.path.join(folder, "nvidia", tail) for folder in sys.path if folder for tail in tails]


def find_nccl() -> str:
    """libnccl.so.2: NCCL_HOME, the package of the active python, the system."""
    if "NCCL_HOME" in os.environ:
        home = os.environ["NCCL_HOME"]
        return _first([f"{home}/lib/libnccl.so.2", f"{home}/lib64/libnccl.so.2", f"{home}/libnccl.so.2"],
                      "libnccl.so.2", "NCCL_HOME")
    return _first([*_site_patterns("nccl/lib/libnccl.so.2"), "/usr/lib/*/libnccl.so.2", "/usr/local/lib/libnccl.so.2"],
                  "libnccl.so.2", "NCCL_HOME")


def find_cudart() -> str:
    """libcudart: CUDA_HOME, the toolkit, the package of the active python."""
    if "CUDA_HOME" in os.environ:
        home = os.environ["CUDA_HOME"]
        return _first([f"{home}/lib64/libcudart.so.1?", f"{home}/lib/libcudart.so.1?"], "libcudart", "CUDA_HOME")
    return _first(["/usr/local/cuda/lib64/libcudart.so.1?",
                   *_site_patterns("cu1?/lib/libcudart.so.1?", "cuda_runtime/lib/libcudart.so.1?"),
                   "/usr/lib/*/libcudart.so.1?"], "libcudart", "CUDA_HOME")
