# SPDX-License-Identifier: Apache-2.0
"""The few calls into the CUDA runtime that users of NCCL need for their buffers, through ctypes."""

from __future__ import annotations

import ctypes

TO_DEVICE, TO_HOST = 1, 2
THREAD_LOCAL = 1        # a mode of capture


class Unusable(Exception):
    """A library is not here, or not one that this NCCL can serve; says what and why."""


class Cuda:
    """One device and a stream on it. Any failed call is an exception."""

    def __init__(self, path: str, device: int) -> None:
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise Unusable(str(error)) from error
        self.call("cudaSetDevice", ctypes.c_int(device))
        stream = ctypes.c_void_p()
        self.call("cudaStreamCreate", ctypes.byref(stream))
        self.stream = stream.value
        self.device = device

    def call(self, name: str, *arguments) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} gave {status}")

    def synchronize(self) -> None:
        self.call("cudaStreamSynchronize", ctypes.c_void_p(self.stream))

    def capture(self, function) -> "ctypes.c_void_p":
        """What `function` puts into the stream, as a graph that can be launched."""
        graph, launchable = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cudaStreamBeginCapture", ctypes.c_void_p(self.stream), ctypes.c_int(THREAD_LOCAL))
        function()
        self.call("cudaStreamEndCapture", ctypes.c_void_p(self.stream), ctypes.byref(graph))
        self.call("cudaGraphInstantiateWithFlags", ctypes.byref(launchable), graph, ctypes.c_ulonglong(0))
        self.call("cudaGraphDestroy", graph)
        return launchable

    def launch(self, launchable) -> None:
        self.call("cudaGraphLaunch", launchable, ctypes.c_void_p(self.stream))


class Array:
    """Floats in device memory, which any library can take as they are: __cuda_array_interface__."""

    def __init__(self, cuda: Cuda, count: int, value: float = 0.0) -> None:
        self.cuda, self.count = cuda, count
        pointer = ctypes.c_void_p()
        cuda.call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(4 * count))
        self.pointer = pointer.value
        self.copy((ctypes.c_float * count)(*[value] * count), TO_DEVICE)
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (self.pointer, False),
                                         "version": 3, "stream": None}

    def copy(self, host: ctypes.Array, direction: int) -> ctypes.Array:
        device = ctypes.c_void_p(self.pointer)
        self.cuda.call("cudaMemcpy", *((device, host) if direction == TO_DEVICE else (host, device)),
                       ctypes.c_size_t(4 * self.count), ctypes.c_int(direction))
        return host

    def read(self) -> list:
        return list(self.copy((ctypes.c_float * self.count)(), TO_HOST))
