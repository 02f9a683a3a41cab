# SPDX-License-Identifier: Apache-2.0
"""NCCL through CuPy: cupy.cuda.nccl, an extension module that is linked to libnccl."""
from cudart import Unusable

try:
    from cupy.cuda import nccl
except ImportError as missing:
    raise Unusable(f"CuPy cannot be imported: {missing}") from missing


class User:
    def __init__(self, cuda, _path):
        if not nccl.available:
            raise Unusable("this CuPy finds no NCCL")
        self.stream, self.comm = cuda.stream, None

    def unique_id(self):
        # bytes since CuPy 14, signed numbers before
        made = nccl.get_unique_id()
        return made if isinstance(made, bytes) else bytes(number & 255 for number in made)

    def connect(self, size, rank, unique_id):
        if not isinstance(nccl.get_unique_id(), bytes):
            unique_id = tuple(number - 256 if number > 127 else number for number in unique_id)
        self.comm = nccl.NcclCommunicator(size, unique_id, rank)

    def all_reduce(self, given, taken):
        self.comm.allReduce(given.pointer, taken.pointer, given.count, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, self.stream)

    def exchange(self, given, after, taken, before):
        nccl.groupStart()
        self.comm.send(given.pointer, given.count, nccl.NCCL_FLOAT32, after, self.stream)
        self.comm.recv(taken.pointer, taken.count, nccl.NCCL_FLOAT32, before, self.stream)
        nccl.groupEnd()

    def broadcast(self, array, root):
        self.comm.broadcast(array.pointer, array.pointer, array.count, nccl.NCCL_FLOAT32, root, self.stream)

    def all_gather(self, given, taken):
        self.comm.allGather(given.pointer, taken.pointer, given.count, nccl.NCCL_FLOAT32, self.stream)

    def close(self):
        self.comm.destroy()
