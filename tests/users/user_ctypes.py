# SPDX-License-Identifier: Apache-2.0
"""NCCL through ctypes, as inference servers do: the library opened by its path, each function declared once."""
import ctypes

from cudart import Unusable

FLOAT32, SUM = 7, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
FUNCTIONS = {
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(POINTER), INT, UniqueId, INT],
    "ncclAllReduce": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclBroadcast": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclAllGather": [POINTER, POINTER, SIZE, INT, POINTER, POINTER],
    "ncclSend": [POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclRecv": [POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclCommDestroy": [POINTER],
}


class User:
    def __init__(self, cuda, path):
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise Unusable(str(error)) from error
        self.functions = {}
        for name, types in FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, INT
            self.functions[name] = function
        self.stream, self.comm = cuda.stream, POINTER()

    def call(self, name, *arguments):
        status = self.functions[name](*arguments)
        if status:
            raise RuntimeError(f"{name} gave {status}")

    def unique_id(self):
        made = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(made))
        return bytes(made)

    def connect(self, size, rank, unique_id):
        self.call("ncclCommInitRank", ctypes.byref(self.comm), size, UniqueId.from_buffer_copy(unique_id), rank)

    def all_reduce(self, given, taken):
        self.call("ncclAllReduce", given.pointer, taken.pointer, given.count, FLOAT32, SUM, self.comm, self.stream)

    def exchange(self, given, after, taken, before):
        self.call("ncclGroupStart")
        self.call("ncclSend", given.pointer, given.count, FLOAT32, after, self.comm, self.stream)
        self.call("ncclRecv", taken.pointer, taken.count, FLOAT32, before, self.comm, self.stream)
        self.call("ncclGroupEnd")

    def broadcast(self, array, root):
        self.call("ncclBroadcast", array.pointer, array.pointer, array.count, FLOAT32, root, self.comm, self.stream)

    def all_gather(self, given, taken):
        self.call("ncclAllGather", given.pointer, taken.pointer, given.count, FLOAT32, self.comm, self.stream)

    def close(self):
        self.call("ncclCommDestroy", self.comm)
