# SPDX-License-Identifier: Apache-2.0
"""A traced program: four all-reduces from two lines of code. `calls.py kill` ends by SIGKILL."""
import ctypes
import os
import sys

# Global symbols: with the library preloaded, its wrappers.
process = ctypes.CDLL(None)
ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
runtime = ctypes.CDLL("libcudart.so.13", mode=ctypes.RTLD_GLOBAL)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def check(result):
    if result:
        sys.exit("call failed with %d" % result)


def allreduce():
    check(process.ncclAllReduce(buffer, buffer, ctypes.c_size_t(16), 7, 0, comm, None))


def train():
    for _ in range(3):
        allreduce()
    allreduce()


unique, comm, buffer = UniqueId(), ctypes.c_void_p(), ctypes.c_void_p()
check(process.ncclGetUniqueId(ctypes.byref(unique)))
check(process.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0))
check(runtime.cudaMalloc(ctypes.byref(buffer), 1024))
train()
check(runtime.cudaFree(buffer))  # waits for them, and is not traced itself
if sys.argv[1:] == ["kill"]:
    os.kill(os.getpid(), 9)
