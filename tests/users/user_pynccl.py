# SPDX-License-Identifier: Apache-2.0
"""NCCL through pynccl_wrapper.py, the ctypes binding of vLLM and of SGLang, as published.

Where the whole package cannot be imported the file is loaded on its own, and what it names of PyTorch and of its
package is stood in for: it uses them for messages and for types that are not needed here.
"""
import ctypes
import importlib
import importlib.util
import logging
import pathlib
import sys
import types

from cudart import Unusable

WRAPPER = "distributed.device_communicators.pynccl_wrapper"


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    made.__path__ = []
    sys.modules[name] = made
    return made


def stand_in(package, path):
    """What pynccl_wrapper.py imports."""
    if not importlib.util.find_spec("torch"):
        module("torch", dtype=object, version=types.SimpleNamespace(cuda="13.0", hip=None))
        module("torch.distributed", ReduceOp=types.SimpleNamespace())
    log = logging.getLogger(package)
    log.warning_once = log.info_once = log.debug_once = log.debug
    module(package, envs=module(package + ".envs", VLLM_NCCL_SO_PATH=path, VLLM_USE_NCCL_SYMM_MEM=False))
    module(package + ".logger", init_logger=lambda _name: log)
    module(package + ".platforms", current_platform=types.SimpleNamespace(is_rocm=lambda: False))
    module(package + ".utils")
    module(package + ".utils.nccl", find_nccl_library=lambda: path)


def load_wrapper(package, path):
    """package: vllm or sglang.srt."""
    name = f"{package}.{WRAPPER}"
    try:
        return importlib.import_module(name)
    except ImportError:
        pass
    relative = pathlib.Path(*name.split(".")).with_suffix(".py")
    file = next((folder / relative for folder in map(pathlib.Path, sys.path) if (folder / relative).exists()), None)
    if not file:
        raise Unusable(f"no {relative} in Python's path")
    stand_in(package, path)
    spec = importlib.util.spec_from_file_location(name, file)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Wrapped:
    def __init__(self, package, cuda, path):
        self.wrapper = load_wrapper(package, path)
        try:
            self.nccl = self.wrapper.NCCLLibrary(path)
        except (AttributeError, OSError) as error:
            raise Unusable(f"{package} does not take this NCCL: {error}") from error
        self.stream, self.comm = ctypes.c_void_p(cuda.stream), None
        self.float32, self.sum = 7, 0

    @staticmethod
    def at(array):
        return ctypes.c_void_p(array.pointer)

    def unique_id(self):
        return bytes(self.nccl.ncclGetUniqueId())

    def connect(self, size, rank, unique_id):
        identity = self.wrapper.ncclUniqueId.from_buffer_copy(unique_id)
        self.comm = self.nccl.ncclCommInitRank(size, identity, rank)

    def all_reduce(self, given, taken):
        self.nccl.ncclAllReduce(self.at(given), self.at(taken), given.count, self.float32, self.sum, self.comm,
                                self.stream)

    def exchange(self, given, after, taken, before):
        self.nccl.ncclGroupStart()
        self.nccl.ncclSend(self.at(given), given.count, self.float32, after, self.comm, self.stream)
        self.nccl.ncclRecv(self.at(taken), taken.count, self.float32, before, self.comm, self.stream)
        self.nccl.ncclGroupEnd()

    def broadcast(self, array, root):
        self.nccl.ncclBroadcast(self.at(array), self.at(array), array.count, self.float32, root, self.comm, self.stream)

    def all_gather(self, given, taken):
        self.nccl.ncclAllGather(self.at(given), self.at(taken), given.count, self.float32, self.comm, self.stream)

    def close(self):
        self.nccl.ncclCommDestroy(self.comm)
