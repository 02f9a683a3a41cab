# SPDX-License-Identifier: Apache-2.0
"""Compares the stacks of all threads in a dump with sys._current_frames().

    dump_threads.py LIBPROBE                prints `ok NAME` or `FAIL NAME: ...` lines
    dump_threads.py LIBPROBE stress DUMPS   while threads, frames and code come and go
    dump_threads.py LIBPROBE second         of a thread in a second interpreter
    dump_threads.py LIBPROBE cost           prints how long dumps take

Runs on Python 3.8 and later; tests/python/run starts it with each interpreter that is installed.
"""
import asyncio
import ctypes
import os
import queue
import select
import sys
import threading
import time

FRAMES, CUT = 128, 1
path = sys.argv[1]
# CDLL calls without the GIL, PyDLL with it.
released, held = ctypes.CDLL(path), ctypes.PyDLL(path)
released.probe_state.restype = ctypes.c_char_p
released.probe_dump_cost.restype = ctypes.c_double
version = "%d.%d.%d" % sys.version_info[:3]
buffer = ctypes.create_string_buffer(8 << 20)
failed = False


def say(name, error=None):
    global failed
    failed = failed or error is not None
    print("%s %s: dump: %s%s" % ("FAIL" if error else "ok", version, name, ": %s" % (error,) if error else ""))
    sys.stdout.flush()


def function_of(code):
    return getattr(code, "co_qualname", code.co_name)


def expected(frame, line=None):
    out = []
    while frame and len(out) < FRAMES:
        out.append((line or frame.f_lineno or 0, function_of(frame.f_code), frame.f_code.co_filename))
        frame, line = frame.f_back, None
    return out, CUT if frame else 0


def parse(text):
    """{tid: [(frames, flags)]}, {key: value}"""
    stacks, facts, frames = {}, {}, None
    for line in text.decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("stack "):
            tid, flags = line.split()[1:]
            frames = []
            stacks.setdefault(int(tid), []).append((frames, int(flags)))
        elif "\t" in line:
            number, function, file = line.split("\t", 2)
            frames.append((int(number), function, file))
        else:
            key, value = line.split("=", 1)
            facts[key] = value
    return stacks, facts


def take(library):
    """The dump, and what the interpreter says at the same moment."""
    frames, line, size = sys._current_frames(), sys._getframe().f_lineno, library.probe_dump(buffer, len(buffer))
    stacks, facts = parse(buffer.raw[:size])
    me = threading.get_ident()
    return stacks, facts, {ident: expected(frame, line if ident == me else None) for ident, frame in frames.items()}


# ---- threads that hold still -----------------------------------------------------------------------

situations = {}
native = {}  # name: (ident, tid)


def situation(innermost):
    """Names the function in which the thread blocks."""

    def add(function):
        situations[function.__name__] = (function, innermost)
        return function

    return add


@situation("in_time_sleep")
def in_time_sleep():
    time.sleep(1000)


@situation("Condition.wait" if sys.version_info >= (3, 11) else "wait")
def in_queue_get():
    queue.Queue().get()


@situation("at_a_lock")
def at_a_lock():
    lock = threading.Lock()
    with lock:
        lock.acquire()


@situation("in_select")
def in_select():
    select.select(
        [os.pipe()[0]],
        [],
        [],
    )


@situation("in_a_generator.<locals>.numbers" if sys.version_info >= (3, 11) else "numbers")
def in_a_generator():
    def numbers():
        yield 1
        time.sleep(1000)

    def more():
        yield from numbers()

    for _ in more():
        pass


@situation("EpollSelector.select" if sys.version_info >= (3, 11) else "select")
def in_asyncio():
    async def main():
        await asyncio.sleep(1000)

    asyncio.run(main())


@situation("in_a_coroutine.<locals>.leaf" if sys.version_info >= (3, 11) else "leaf")
def in_a_coroutine():
    async def leaf():
        time.sleep(1000)

    async def middle():
        await leaf()

    async def main():
        await asyncio.gather(middle())

    asyncio.run(main())


@situation("in_deep_recursion")
def in_deep_recursion(n=300):
    if n:
        in_deep_recursion(n - 1)
    else:
        time.sleep(1000)


@situation("in_recursion_that_just_fits")
def in_recursion_that_just_fits(n=None):
    n = FRAMES - 1 - sum(1 for _ in ancestors()) if n is None else n
    if n:
        in_recursion_that_just_fits(n - 1)
    else:
        time.sleep(1000)


def ancestors():
    frame = sys._getframe(2).f_back
    while frame:
        yield frame
        frame = frame.f_back


@situation("in_a_callback_from_c.<locals>.order" if sys.version_info >= (3, 11) else "order")
def in_a_callback_from_c():
    def order(a, b):
        time.sleep(1000)

    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(order)
    ctypes.CDLL(None).qsort((ctypes.c_int * 3)(3, 1, 2), 3, 4, compare)


@situation("in_a_c_library")
def in_a_c_library():
    released.probe_block()


@situation("in_one_line.<locals>.<lambda>" if sys.version_info >= (3, 11) else "<lambda>")
def in_one_line():
    (lambda: time.sleep(1000))()


@situation("Schritt")
def in_executed_text():
    names = {}
    exec(compile("def Schritt(f):\n\n  f(1000)\n", "<made by exec>", "exec"), names)
    names["Schritt"](time.sleep)


@situation("\u6b65\u9aa4")
def in_names_outside_ascii():
    names = {}
    exec(compile("def \u6b65\u9aa4(f):\n  f(1000)\n", "\U0001f40d.py", "exec"), names)
    names["\u6b65\u9aa4"](time.sleep)


@situation("f")
def in_a_very_long_path():
    names = {}
    exec(compile("def f(g):\n  g(1000)\n", "/".join("d%d" % i for i in range(1000)) + "/x.py", "exec"), names)
    names["f"](time.sleep)


def start(name, function):
    def body():
        native[name] = threading.get_ident(), threading.get_native_id()
        function()

    threading.Thread(target=body, daemon=True).start()


def started_from_c():
    """A thread that C made and that calls Python."""

    def in_a_thread_of_c():
        native["in_a_thread_of_c"] = threading.get_ident(), threading.get_native_id()
        time.sleep(1000)

    in_a_thread_of_c.keep = ctypes.CFUNCTYPE(None)(in_a_thread_of_c)
    qualified = sys.version_info >= (3, 11)
    situations["in_a_thread_of_c"] = (in_a_thread_of_c,
                                      "started_from_c.<locals>.in_a_thread_of_c" if qualified else "in_a_thread_of_c")
    released.probe_call_on_thread(in_a_thread_of_c.keep)


def settle():
    """Until each thread blocks where it should."""
    seen, still = None, 0
    for _ in range(2000):
        time.sleep(0.01)
        frames = sys._current_frames()
        now = {}
        for name, (_, innermost) in situations.items():
            frame = frames.get(native.get(name, (0, 0))[0])
            if frame and function_of(frame.f_code) == innermost:
                now[name] = (id(frame), frame.f_lasti)
        still = still + 1 if now == seen and len(now) == len(situations) else 0
        if still == 5:
            return
        seen = now
    sys.exit("threads do not settle: %s" % (set(situations) - set(seen)))


def difference(got, want):
    """What the first difference is; a text that is too long is kept from its end."""
    if got is None:
        return "no stack"
    (frames, flags), (frames_wanted, flags_wanted) = got, want
    for i in range(max(len(frames), len(frames_wanted))):
        g = frames[i] if i < len(frames) else None
        w = frames_wanted[i] if i < len(frames_wanted) else None
        if w and len(w[2]) > 1024:
            w = w[:2] + (w[2][-1024:],)
        if g != w:
            return "frame %d: got %s, want %s" % (i, g, w)
    return None if flags == flags_wanted else "flags: got %d, want %d" % (flags, flags_wanted)


def compare(library, how):
    stacks, facts, want = take(library)
    native["the main thread"] = threading.get_ident(), threading.get_native_id()
    for name, (ident, tid) in native.items():
        got = stacks.get(tid, [])
        error = "%d stacks" % len(got) if len(got) != 1 else difference(got[0], want[ident])
        say("%s%s" % (name.replace("_", " "), how), error)
    return stacks, facts


def still():
    bare = released.probe_bare_thread()
    started_from_c()
    for name, (function, _) in list(situations.items()):
        if name != "in_a_thread_of_c":
            start(name, function)
    settle()
    main = threading.get_native_id()
    for library, how, holder in (held, ", the GIL is held", str(main)), (released, "", "none"):
        stacks, facts = compare(library, how)
        say("a thread without frames has none%s" % how, None if stacks.get(bare) == [([], 0)] else stacks.get(bare))
        known = {tid for _, tid in native.values()} | {bare}
        say("no stacks of others%s" % how, None if set(stacks) == known else set(stacks) ^ known)
        threads = "%d of %d thread states walked" % (len(known), len(known))
        say("how many threads%s" % how, None if facts.get("python.threads") == threads else facts)
        say("who holds the GIL%s" % how, None if facts.get("python.gil") == holder else facts)
        say("nothing is missing%s" % how,
            None if not [key for key in facts if key not in ("python.threads", "python.gil")] else facts)


def subinterpreter():
    """A thread in a second interpreter has a stack in each. sys._current_frames() would make frame objects in the
    wrong interpreter, and a process with two allocators dies of that."""
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    code = "import time\ndef inner():\n  time.sleep(1000)\n\ninner()\n"

    def run():
        native["run"] = threading.get_ident(), threading.get_native_id()
        # To 3.12 the state in it stays that of the thread that created it.
        interpreters.run_string(interpreters.create(), code)

    before = threading.active_count()
    threading.Thread(target=run, daemon=True).start()
    error = "never seen"
    for _ in range(1000):
        time.sleep(0.01)
        size = released.probe_dump(buffer, len(buffer))
        stacks, _ = parse(buffer.raw[:size])
        texts = [[(line, function) for line, function, file in frames]
                 for frames, _ in stacks.get(native.get("run", (0, 0))[1], [])]
        inner = [(3, "inner"), (5, "<module>")] in texts
        outer = any(frames and frames[0][1].endswith("run") for frames in texts)
        if inner and outer:
            error = None
            break
        error = texts
    assert threading.active_count() == before + 1
    say("a thread in a second interpreter", error)


# ---- threads that do not ---------------------------------------------------------------------------

FUNCTIONS, FILES = 40, 400


def churn_file(file):
    """File n defines step(n % FUNCTIONS) and calls it; lines and names can be told from the file's name."""
    function = file % FUNCTIONS
    name = "step%d_%s" % (function, "x" * function)
    text = "%sdef %s(n):\n  if n: return %s(n - 1)\n  return [i for i in range(3)]\n%s(%d)\n" % (
        "\n" * (file % 17), name, name, name, file % 7)
    return "<churn %d %s>" % (file, "y" * (file % 50)), name, text, file % 17 + 1


def churn(seed, stop):
    n = seed
    while not stop:
        file, _, text, _ = churn_file(n % FILES)
        exec(compile(text, file, "exec"), {})
        n += 7


def churn_generators(stop):
    def leaf(n):
        for i in range(n):
            yield i

    def tree(n):
        yield from leaf(n)
        if n:
            yield from tree(n - 1)

    while not stop:
        sum(tree(8))


def churn_recursion(stop):
    def down(n):
        return n and down(n - 1)

    while not stop:
        for depth in 1, 200, 3, 90, 128, 129:
            down(depth)


def churn_threads(stop):
    def short():
        file, _, text, _ = churn_file(threading.get_ident() // 64 % FILES)
        exec(compile(text, file, "exec"), {})

    while not stop:
        threads = [threading.Thread(target=short) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def lines_of(code):
    """{(function, file): lines} of a code object and those in it."""
    import types

    out, codes = {}, [code]
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        lines = out.setdefault((function_of(code), code.co_filename), {0, code.co_firstlineno})
        if hasattr(code, "co_lines"):
            lines.update(line for _, _, line in code.co_lines() if line)
        else:
            import dis

            lines.update(line for _, line in dis.findlinestarts(code))
    return out


def known_lines():
    import types

    known = {}

    def add(code):
        for key, lines in lines_of(code).items():
            known.setdefault(key, set()).update(lines)

    for n in range(FILES):
        file, _, text, _ = churn_file(n)
        add(compile(text, file, "exec"))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py"):
            with open(file, encoding="utf-8") as source:
                add(compile(source.read(), file, "exec"))
    import gc

    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType):
            add(thing.__code__)
    return known


def stress(dumps):
    known = known_lines()
    stop = []
    workers = [threading.Thread(target=churn, args=(i * 13, stop)) for i in range(3)]
    workers += [threading.Thread(target=f, args=(stop,)) for f in (churn_generators, churn_recursion, churn_threads)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for worker in workers:
        worker.start()
    count, seen = 0, set()
    for _ in range(20):  # one round of many passes by more functions than this, one on a busy machine by fewer
        count += released.probe_dump_many(dumps, buffer, len(buffer))
        seen.update(buffer.value.splitlines())
        if sum(b"\t<churn " in line for line in seen) > 10:
            break
    stop.append(True)
    for worker in workers:
        worker.join()
    sys.setswitchinterval(before)
    wrong, seen = [], set()
    for line in buffer.value.decode("utf-8", "surrogateescape").splitlines():
        number, function, file = line.split("\t", 2)
        if int(number) not in known.get((function, file), ()):
            wrong.append((number, function, file))
        seen.add((function, file))
    churned = sum(file.startswith("<churn ") for _, file in seen)
    say("%d dumps of threads that run: every text is one of the program's" % dumps,
        "%d of %d: %s" % (len(wrong), len(seen), wrong[:5]) if wrong else None)
    say("threads that run are seen", None if count > dumps and churned > 10 else (count, churned, len(seen)))
    print("    %d stacks, %d functions, %d of them passing" % (count, len(seen), churned))


def cost():
    def down(n):
        return released.probe_block() if n == 0 else down(n - 1)

    depth = 20 - 4  # the bootstrap's frames are three or four
    for total in 3, 50:
        while threading.active_count() < total:
            start("down %d" % threading.active_count(), lambda: down(depth))
        time.sleep(0.5)
        print("    %s: %d threads: %.2f ms" % (version, total, released.probe_dump_cost(50) / 1e6))


def main():
    if not released.probe_start(384 * 1024, 16 * 1024):
        _, facts, _ = take(released)
        state = released.probe_state().decode()
        say("no stacks, and why", None if facts == {"missing.python": "Python %s: %s" % (
            sys.version.split()[0].rstrip("+"), state)} and state.startswith("off: ") else (facts, state))
    elif sys.argv[2:] == ["cost"]:
        cost()
    elif sys.argv[2:] == ["second"]:
        subinterpreter()
    elif sys.argv[2:3] == ["stress"]:
        stress(int(sys.argv[3]))
    else:
        still()
    sys.stdout.flush()
    os._exit(failed)  # the threads stay where they are


main()
