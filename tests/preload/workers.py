# SPDX-License-Identifier: Apache-2.0
"""A training script as frameworks make it, with NCCL by way of ctypes; for tests/cli/launchers.sh, on the simulator.

    workers.py loader METHOD       a rank with data-loader workers (fork, spawn, forkserver)
    workers.py spawn METHOD SIZE   starts SIZE ranks by multiprocessing, as torch.multiprocessing.spawn does
    workers.py rank ID_FILE        one rank; RANK and WORLD_SIZE from the environment
    workers.py torchrun SIZE RESTARTS ID_FILE   starts ranks, and all again when one fails
    workers.py own                 a rank whose forked child makes a communicator of its own
    workers.py subinterpreters     calls from interpreters beside the first, in several threads
    workers.py opened PATH MODE    the library is opened (local, global) instead of preloaded, and closed again
    workers.py closes              os.fork, os.posix_spawn, subprocess, os.system, os._exit
"""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import _ctypes


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def libraries():
    """Both are in the global scope, and are called through it, as by a program that is linked with them."""
    for name in "libnccl.so.2", "libcudart.so.13":
        ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(None), ctypes.CDLL(None)


def check(result):
    if result != 0:
        raise RuntimeError(f"NCCL or CUDA says {result}")


class Rank:
    def __init__(self, rank, size, unique=None):
        self.nccl, self.cuda = libraries()
        self.comm, self.memory = ctypes.c_void_p(), ctypes.c_void_p()
        unique = unique or new_id()
        check(self.nccl.ncclCommInitRank(ctypes.byref(self.comm), size, UniqueId.from_buffer_copy(unique), rank))
        check(self.cuda.cudaMalloc(ctypes.byref(self.memory), ctypes.c_size_t(4096)))

    def launch(self, count):
        check(self.nccl.ncclAllReduce(self.memory, self.memory, ctypes.c_size_t(count), 7, 0, self.comm, None))

    def allreduce(self, count):
        self.launch(count)
        check(self.cuda.cudaStreamSynchronize(None))


def new_id():
    unique = UniqueId()
    check(libraries()[0].ncclGetUniqueId(ctypes.byref(unique)))
    return bytes(unique)


def marks():
    """What of the library's a process has: threads, mappings, its handler."""
    names = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm", encoding="utf-8") as file:
            names.append(file.read().strip())
    with open("/proc/self/status", encoding="utf-8") as file:
        caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
    own_threads = [name for name in names if name.startswith("nccltrace")]
    return own_threads, [n for n in range(34, 65) if caught >> (n - 1) & 1 and n > 43]


def batch(index):
    """A data-loader worker's work; numbers of threads of ours, and whether ours are files that it has open."""
    open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd_is_open(fd)]
    return index, len(marks()[0]), sum(".trace" in name or ".area" in name for name in open_files)


def fd_is_open(fd):
    return os.path.islink(f"/proc/self/fd/{fd}")


def loader(method):
    rank = Rank(0, 1)
    rank.allreduce(1)
    context = multiprocessing.get_context(method)
    for _ in range(2):
        with context.Pool(3) as pool:
            for index, threads, files in pool.map(batch, range(12)):
                if threads or files:
                    raise RuntimeError(f"worker of {index}: {threads} threads, {files} files of the library's")
        rank.allreduce(2)


def spawned(rank, size, unique):
    one = Rank(rank, size, unique)
    for _ in range(3):
        one.allreduce(16)


def spawn(method, size):
    context = multiprocessing.get_context(method)
    unique = new_id()
    ranks = [context.Process(target=spawned, args=(rank, size, unique)) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return max(process.exitcode for process in ranks)


def exchange(path, rank):
    if rank == 0:
        with open(path + ".new", "wb") as file:
            file.write(new_id())
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        return file.read()


def run_rank(path):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    one = Rank(rank, size, exchange(f"{path}.{attempt}", rank))
    for _ in range(attempt + 1):
        one.allreduce(16 + attempt)
    if attempt == 0 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def torchrun(size, restarts, path):
    for attempt in range(restarts + 1):
        workers = []
        for rank in range(size):
            workers.append(subprocess.Popen(
                [sys.executable, __file__, "rank", path],
                env=dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank),
                         TORCHELASTIC_RESTART_COUNT=str(attempt))))
        failed = [worker.wait() for worker in workers]
        print("launcher", *marks(), flush=True)
        if not any(failed):
            return 0
    return 1


def own():
    rank = Rank(0, 1)
    rank.allreduce(1)
    child = os.fork()
    if child == 0:
        Rank(0, 1).launch(5)  # what it launches in its parent's context is not done
        os._exit(0)
    check(os.waitpid(child, 0)[1])
    rank.allreduce(2)


def closes():
    rank = Rank(0, 1)
    rank.allreduce(1)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
    check(os.system("true"))
    subprocess.run(["true"], check=True)
    subprocess.run(["true"], check=True, close_fds=False, start_new_session=True)
    subprocess.run("exit 0", check=True, shell=True)
    rank.allreduce(2)
    os._exit(7)


SUBINTERPRETER = """
import sys
sys.path.insert(0, {directory!r})
import workers

def inner():
    rank = workers.Rank(0, 1)
    for _ in range(50):
        rank.allreduce({count})

inner()
"""


def interpret(count):
    code = SUBINTERPRETER.format(directory=os.path.dirname(os.path.abspath(__file__)), count=count)
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters  # pylint: disable=import-outside-toplevel
        create = [lambda: interpreters.create("legacy"), lambda: interpreters.create("isolated")]
        run = interpreters.exec
    else:
        import _xxsubinterpreters as interpreters  # pylint: disable=import-outside-toplevel
        create, run = [lambda: interpreters.create(isolated=False)], interpreters.run_string
    for make in create:
        interpreter = make()
        failure = run(interpreter, code)
        if failure:
            raise RuntimeError(failure)
        interpreters.destroy(interpreter)


def subinterpreters():
    first = Rank(0, 1)
    first.allreduce(1)
    interpret(2)
    threads = [threading.Thread(target=interpret, args=(3 + index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first.allreduce(1)


def opened(path, mode):
    library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL if mode == "global" else ctypes.RTLD_LOCAL)
    for _ in range(2):
        rank = Rank(0, 1)
        rank.allreduce(1)
        _ctypes.dlclose(library._handle)  # pylint: disable=protected-access
    print("done")


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    if what == "loader":
        return loader(*arguments)
    if what == "spawn":
        return spawn(arguments[0], int(arguments[1]))
    if what == "rank":
        return run_rank(*arguments)
    if what == "torchrun":
        return torchrun(int(arguments[0]), int(arguments[1]), arguments[2])
    if what == "opened":
        return opened(*arguments)
    return {"own": own, "closes": closes, "subinterpreters": subinterpreters}[what]()


if __name__ == "__main__":
    sys.exit(main())
