# SPDX-License-Identifier: Apache-2.0
"""Two copies of NCCL in one process: CuPy is linked to one, the other is opened by its path, as vLLM does with
VLLM_NCCL_SO_PATH beside PyTorch's. Each communicator belongs to the copy that made it."""
import os
import pathlib
import shutil

import user_ctypes
import user_cupy
from cudart import Unusable


def own_copy(path):
    copy = pathlib.Path.cwd() / f"copy-{os.getpid()}" / "libnccl.so.2"
    try:
        copy.parent.mkdir()
        shutil.copy(path, copy)
    except OSError as error:
        raise Unusable(f"NCCL cannot be copied: {error}") from error
    return str(copy)


class User:
    def __init__(self, cuda, path):
        self.linked, self.opened = user_cupy.User(cuda, path), user_ctypes.User(cuda, own_copy(path))

    def unique_id(self):
        return self.linked.unique_id() + self.opened.unique_id()

    def connect(self, size, rank, unique_id):
        self.linked.connect(size, rank, unique_id[:128])
        self.opened.connect(size, rank, unique_id[128:])

    def all_reduce(self, given, taken):
        self.linked.all_reduce(given, taken)

    def exchange(self, given, after, taken, before):
        self.opened.exchange(given, after, taken, before)

    def broadcast(self, array, root):
        self.linked.broadcast(array, root)

    def all_gather(self, given, taken):
        self.opened.all_gather(given, taken)

    def close(self):
        self.linked.close()
        self.opened.close()
