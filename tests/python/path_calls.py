# SPDX-License-Identifier: Apache-2.0
"""All-reduces 16 frames deep, for tests/cli/call_path.sh.

    path_calls.py LIBNCCL COUNT
"""
import ctypes
import sys

nccl = ctypes.CDLL(sys.argv[1])
count = int(sys.argv[2])
buffer = ctypes.create_string_buffer(4096)
comm = ctypes.c_void_p()


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t] + [ctypes.c_int] * 2 + [ctypes.c_void_p] * 2
nccl.ncclCommInitRank(ctypes.byref(comm), 8, UniqueId(b"1"), 0)


def below(depth):
    if depth:
        return below(depth - 1)
    for _ in range(count):
        nccl.ncclAllReduce(buffer, buffer, 1024, 7, 0, comm, None)


below(14)  # and this module's frame
