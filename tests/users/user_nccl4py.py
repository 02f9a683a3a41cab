# SPDX-License-Identifier: Apache-2.0
"""NCCL through nccl4py, NVIDIA's own bindings, with streams and events of cuda.core."""
from cudart import Unusable

try:
    import nccl.core as nccl
    from cuda.core import Device
except ImportError as missing:
    raise Unusable(f"nccl4py cannot be imported: {missing}") from missing


class User:
    def __init__(self, cuda, _path):
        self.device = Device(cuda.device)
        self.device.set_current()
        self.cuda, self.stream, self.comm = cuda, self.device.create_stream(), None
        cuda.stream = int(self.stream.handle)

    def unique_id(self):
        return bytes(nccl.get_unique_id())

    def connect(self, size, rank, unique_id):
        self.comm = nccl.Communicator.init(size, rank, nccl.UniqueId.from_bytes(unique_id))

    def all_reduce(self, given, taken):
        self.comm.allreduce(given, taken, nccl.SUM, stream=self.stream)

    def exchange(self, given, after, taken, before):
        with nccl.group():
            self.comm.send(given, after, stream=self.stream)
            self.comm.recv(taken, before, stream=self.stream)

    def broadcast(self, array, root):
        self.comm.broadcast(array, array, root, stream=self.stream)

    def all_gather(self, given, taken):
        self.comm.allgather(given, taken, stream=self.stream)

    def close(self):
        self.comm.destroy()
