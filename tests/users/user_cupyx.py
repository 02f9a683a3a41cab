# SPDX-License-Identifier: Apache-2.0
"""NCCL through CuPy's distributed layer, cupyx.distributed, whose ranks meet at a server in a process of its own."""
import random
import socket
import types

from cudart import Unusable

try:
    from cupy.cuda import nccl
    from cupyx import distributed
    from numpy import dtype
except ImportError as missing:
    raise Unusable(f"CuPy cannot be imported: {missing}") from missing

FLOAT32, CONTIGUOUS = dtype("f4"), types.SimpleNamespace(c_contiguous=True, f_contiguous=True)


def as_array(array):
    """As much of a cupy.ndarray as is looked at: making a real one takes a real CUDA."""
    return types.SimpleNamespace(data=types.SimpleNamespace(ptr=array.pointer), size=array.count, dtype=FLOAT32,
                                 flags=CONTIGUOUS)


class User:
    def __init__(self, cuda, _path):
        if not nccl.available:
            raise Unusable("this CuPy finds no NCCL")
        self.stream, self.backend = types.SimpleNamespace(ptr=cuda.stream), None

    def unique_id(self):
        """A free port: the unique id travels by way of the server there. Below those that the kernel gives to whoever
        connects next, so that it is still free when the server comes."""
        while True:
            port = random.randrange(20000, 32000)
            with socket.socket() as listener:
                try:
                    listener.bind(("127.0.0.1", port))
                    return str(port).encode()
                except OSError:
                    continue

    def connect(self, size, rank, port):
        self.backend = distributed.init_process_group(size, rank, port=int(port))

    def all_reduce(self, given, taken):
        self.backend.all_reduce(as_array(given), as_array(taken), "sum", self.stream)

    def exchange(self, given, after, taken, before):
        nccl.groupStart()
        self.backend.send(as_array(given), after, self.stream)
        self.backend.recv(as_array(taken), before, self.stream)
        nccl.groupEnd()

    def broadcast(self, array, root):
        self.backend.broadcast(as_array(array), root, self.stream)

    def all_gather(self, given, taken):
        self.backend.all_gather(as_array(given), as_array(taken), given.count, self.stream)

    def close(self):
        self.backend.barrier()
        self.backend.stop()
        self.backend._comm.destroy()     # pylint: disable=protected-access
