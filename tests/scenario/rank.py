# SPDX-License-Identifier: Apache-2.0
"""The process of one rank: `python3 -S -E rank.py JOB.json RANK`, started by job.py.

It prepares everything, says `ready`, waits for `go`, and becomes the scenario's program. A second
thread listens to the runner: `leave stuck` ends the process as a framework's watchdog would if the
program waits for NCCL or the device (else the answer is `stay`), `leave` ends it in any case.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import traceback

if not __package__:
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from scenario.codegen import compile_program
from scenario.device import Device, load_shim
from scenario.parse import load
from scenario.progress import Progress
from scenario.runtime import Runtime
from scenario.store import Client
from scenario.syntax import DATA_OPS

PR_SET_PDEATHSIG = 1


def listen(client: Client, runtime: Runtime) -> None:
    """Obeys the runner until it is gone. Leaves through libc's exit, from this thread."""
    while True:
        word = client.control.recv(64).decode()
        if not word:
            return
        if word == "leave stuck" and not runtime.stuck():
            client.say("stay")
        else:
            ctypes.CDLL(None).exit(1)


def isolate() -> None:
    """Dies with the runner, dumps no core, takes signals as a C program does."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    rank = int(sys.argv[2])
    isolate()
    client = Client(job["store"], rank)
    try:
        scenario = load(job["scenario"])
        code, statements = compile_program(scenario)
        shim = load_shim(job["shim"], DATA_OPS)
        plan = job["plans"][rank]
        device = Device(shim, scenario, rank, job["devices"][rank], plan["buffers"])
        runtime = Runtime(scenario, rank, plan, shim, device, client, Progress(job["progress"]))
        client.say("ready")
        client.control.recv(64)
        threading.Thread(target=listen, args=(client, runtime), daemon=True).start()
        exec(code, {"R": runtime, "S": statements, "i0": 0})
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        client.say("crash", text=traceback.format_exc())
        signal.pause()


if __name__ == "__main__":
    main()
