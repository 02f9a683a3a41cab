# SPDX-License-Identifier: Apache-2.0
"""One rank's device as the runtime sees it: the shim's functions, streams, events and buffers.

All of it is set up before the first statement: an allocation or a copy in the middle of a program
could block behind work that hangs, and would then change what the scenario shows.
"""

from __future__ import annotations

import ctypes

from scenario import data
from scenario.syntax import TYPE_SIZES, Scenario

_POINTERS = {   # functions whose arguments are not all plain ints
    "scn_malloc": (ctypes.c_void_p, ctypes.c_size_t),
    "scn_copy": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
    "scn_stream": (ctypes.c_void_p,),
    "scn_event": (ctypes.c_void_p,),
    "scn_record": (ctypes.c_void_p, ctypes.c_void_p),
    "scn_wait": (ctypes.c_void_p, ctypes.c_void_p),
    "scn_sync": (ctypes.c_void_p,),
    "scn_query": (ctypes.c_void_p,),
    "scn_gpu_spin": (ctypes.c_void_p, ctypes.c_void_p),
    "scn_capture": (ctypes.c_void_p,),
    "scn_capture_end": (ctypes.c_void_p, ctypes.c_void_p),
    "scn_instantiate": (ctypes.c_void_p, ctypes.c_void_p),
    "scn_launch": (ctypes.c_void_p, ctypes.c_void_p),
    "scn_unique_id": (ctypes.c_void_p,),
    "scn_init": (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p),
    "scn_split": (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p),
    "scn_async_error": (ctypes.c_void_p, ctypes.c_void_p),
    "scn_abort": (ctypes.c_void_p,),
    "scn_finalize": (ctypes.c_void_p,),
    "scn_destroy": (ctypes.c_void_p,),
}
_OPERATION = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
              ctypes.c_void_p, ctypes.c_void_p)


class DeviceError(Exception):
    """CUDA refused something that every scenario needs."""


def load_shim(path: str, operations) -> ctypes.CDLL:
    """The shim, opened with RTLD_LOCAL, its functions' arguments declared."""
    shim = ctypes.CDLL(path)
    for name, argtypes in _POINTERS.items():
        getattr(shim, name).argtypes = argtypes
    for word in operations:
        getattr(shim, "scn_" + word).argtypes = _OPERATION
    for name in ("scn_cuda_error", "scn_nccl_error"):
        getattr(shim, name).restype = ctypes.c_char_p
    return shim


class Device:
    """Streams, events and buffers of this process, by their names in the scenario."""

    def __init__(self, shim: ctypes.CDLL, scenario: Scenario, rank: int, number: int, buffers: list) -> None:
        self.shim, self.number = shim, number
        self.enter_thread()
        self.streams = {name: self._make(shim.scn_stream) for name in scenario.streams()}
        self.copies = self._make(shim.scn_stream)
        self.events = {stmt.args["event"]: self._make(shim.scn_event)
                       for stmt in scenario.statements() if stmt.word == "record"}
        self.buffers: dict = {}
        for key, size in buffers:
            fill = data.pattern(rank, key[2], size) if key[0] == "send" else b"\xee" * size
            self.buffers[tuple(key)] = self._allocate(size, fill)
        self.spin_word = self._allocate(4, bytes(4))

    def enter_thread(self) -> None:
        """Makes the device the current one of the calling thread."""
        self._check(self.shim.scn_set_device(self.number))

    def read(self, address: int, size: int) -> bytes:
        """Copies from the device."""
        host = ctypes.create_string_buffer(size)
        self._check(self.shim.scn_copy(host, address, size, self.copies))
        return host.raw

    def busy(self) -> bool:
        """Whether some stream has unfinished work."""
        return any(self.shim.scn_query(stream) != 0 for stream in self.streams.values())

    def matches(self, address: int, kind: str, count: int, blocks: list) -> str:
        """Compares received blocks (see data.expected) with the buffer; says what is wrong, or ""."""
        size = TYPE_SIZES[kind]
        for offset, want in blocks:
            for first, length in data.windows(count):
                got = data.decode(kind, self.read(address + (offset + first) * size, length * size))
                for index, item in enumerate(got, first):
                    if not data.equal(kind, item, want(index)):
                        return f"element {offset + index} is {item}, not {want(index)}"
        return ""

    def _make(self, create) -> int:
        handle = ctypes.c_void_p()
        self._check(create(ctypes.byref(handle)))
        return handle.value or 0

    def _allocate(self, size: int, content: bytes) -> int:
        memory = ctypes.c_void_p()
        self._check(self.shim.scn_malloc(ctypes.byref(memory), max(size, 64)))
        if size:
            self._check(self.shim.scn_copy(memory, content, size, self.copies))
        return memory.value or 0

    def _check(self, code: int) -> None:
        if code:
            raise DeviceError(self.shim.scn_cuda_error(code).decode())
