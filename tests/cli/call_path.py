# SPDX-License-Identifier: Apache-2.0
"""What one call executes and stores, counted by valgrind: the same on every run. Used by tests/cli/call_path.sh.

    call_path.py BUILD      prints `ok …` and `FAIL …` lines
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
LIBRARY = os.path.join(BUILD, "libnccltrace.so")
PROGRAM = os.path.join(BUILD, "preload/path_calls")
NCCL = os.path.join(BUILD, "bench/null/libnccl.so.2")
HERE = os.path.dirname(os.path.abspath(__file__))
LINE = 64
COUNT = 200  # all in one chunk of records
# The functions of the path besides those that record; which of them are in line is the compiler's choice.
PATH = {"ncclAllReduce", "ncclSend", "ncclGroupStart", "ncclGroupEnd", "cudaEventRecord", "cudaStreamWaitEvent",
        "nt_settle", "nt_resolve", "open_call", "nt_call_begin_slowly", "nt_comm_resolve_all", "nt_gpu_next"}
RECORDERS = re.compile(r"nt_(enter|exit)_\w+$")
ROWS = {"send": "grouped_send", "depend": "dependency", "foreign": "foreign_event"}
work = tempfile.TemporaryDirectory()
failed = False


def check(name, good, detail=""):
    global failed
    failed |= not good
    print("ok " + name if good else "FAIL %s: %s" % (name, detail))


def valgrind(arguments, program, traced):
    environment = dict(os.environ, NCCLTRACE_DIR=work.name, LD_PRELOAD=LIBRARY if traced else "")
    done = subprocess.run(["valgrind"] + arguments + program, env=environment, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit("FAIL %s: %s" % (" ".join(program), done.stdout[-500:]))
    return done.stdout


def instructions(toggle, program, traced=True):
    """Executed below the function, and by which function of which file: {(file, function): instructions}."""
    out = os.path.join(work.name, "callgrind")
    valgrind(["--tool=callgrind", "--toggle-collect=" + toggle, "--callgrind-out-file=" + out], program, traced)
    names, costs, place = {}, collections.Counter(), {"ob": "", "fn": ""}
    inclusive = False
    for line in open(out):
        named = re.match(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?", line)
        if named:
            callee, kind, number, name = named.groups()
            if name:
                names[kind, number] = name.strip()
            if not callee:
                place[kind] = names[kind, number]
        elif line.startswith("calls="):
            inclusive = True
        elif re.match(r"[0-9+*-]", line):
            if not inclusive:
                costs[os.path.basename(place["ob"]), place["fn"]] += int(line.split()[1])
            inclusive = False
    return costs


def limits():
    rows = (line.split() for line in open(os.path.join(HERE, "call_path.tsv")) if not line.startswith("#"))
    return {name: int(value) for name, value in rows}


LIMITS = limits()


def gate(name, value):
    limit = LIMITS[name]
    print("%s %.0f target %d" % (name, value, limit))
    check("%s is what the table says" % name, 0.9 * limit <= value <= limit, "%.1f, the table has %d" % (value, limit))


def path_of(kind):
    costs = instructions("path_measured", [PROGRAM, kind, str(COUNT)])
    bare = instructions("path_measured", [PROGRAM, kind, str(COUNT)], traced=False)
    gate(ROWS.get(kind, kind) + "_instructions", (sum(costs.values()) - sum(bare.values())) / COUNT)
    entered = {place for place, cost in costs.items() if cost}
    # Who enters neither the C library, the loader nor the driver allocates nothing, and asks the kernel only by an
    # instruction of its own.
    others = {place for place in entered if place[0] not in ("path_calls", "libnccltrace.so", "libnccl.so.2", "libcudart.so.12")}
    check("%s: nothing but the library and NCCL is entered" % kind, not others, others)
    own = {name.split("@")[0] for file, name in entered if file == "libnccltrace.so"}
    check("%s: no lock is taken and nothing slow is called" % kind,
          own and all(name in PATH or RECORDERS.match(name) for name in own), own)
    text = "".join(subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--disassemble=" + name, LIBRARY],
                                  stdout=subprocess.PIPE, text=True).stdout for name in own)
    check("%s: no system call" % kind, "ret" in text and not re.search(r"\b(syscall|sysenter|int +\$0x80)\b", text),
          "one of %s has the instruction" % own)


def windows():
    """Of each of two threads, several times: (lines of code, lines of data, lines stored to) of one call."""
    log = os.path.join(work.name, "lackey")
    begin_0, begin_1, end = (int(word, 16) for word in valgrind(
        ["-q", "--tool=lackey", "--trace-mem=yes", "--log-file=" + log], [PROGRAM, "threads"], True).split()[:3])
    begins = {begin_0: 0, begin_1: 1}
    found, now = ([], []), None
    for line in open(log, errors="replace"):
        if now is None and not line.startswith(" S"):
            continue
        entry = re.match(r"(I | S| L| M) +([0-9a-f]+),(\d+)", line)
        if not entry:
            continue
        kind, address, size = entry[1].strip(), int(entry[2], 16), int(entry[3])
        if kind == "S" and address in begins:
            now = (set(), set(), set())
            found[begins[address]].append(now)
        elif kind == "S" and address == end:
            now = None
        elif now:
            lines = range(address // LINE, (address + size - 1) // LINE + 1)
            now[0 if kind == "I" else 1].update(lines)
            if kind in "SM":
                now[2].update(lines)
    return found


def lines():
    threads = windows()
    check("each thread has its windows", all(len(of) == 5 and all(w[2] for w in of) for of in threads),
          [len(of) for of in threads])
    # Whatever else runs for a moment, as the helper does, is in one window and not in the others.
    gate("allreduce_code_lines", min(len(w[0]) for w in threads[0]))
    gate("allreduce_data_lines", min(len(w[1]) for w in threads[0]))
    always = [set.intersection(*(w[2] for w in of)) for of in threads]
    shared = always[0] & always[1]
    check("no cache line is written by the calls of two threads", all(always) and not shared,
          ["%#x" % (line * LINE) for line in shared])


def python_stack():
    name = "python_%d.%d_entry_instructions" % sys.version_info[:2]
    if name not in LIMITS:
        print("skip %s: not in the table" % name)
        return
    script = os.path.join(HERE, "../python/path_calls.py")
    few, many = (sum(instructions("nt_enter_collective", [sys.executable, script, NCCL, str(count)]).values())
                 for count in (50, 150))
    gate(name, (many - few) / 100)


path_of("allreduce")
path_of("send")
path_of("depend")
path_of("foreign")
lines()
python_stack()
sys.exit(failed)
