# SPDX-License-Identifier: Apache-2.0
"""Compares the library's stacks with the interpreter's own, in every situation that is different inside.

    stacks.py LIBPROBE      prints `ok NAME` or `FAIL NAME: …` lines

Runs on Python 3.8 and later; tests/python/run starts it with each interpreter that is installed.
"""
import asyncio
import ctypes
import functools
import gc
import os
import signal
import sys
import threading

LOST, ERRNO = 0xFFFFFFFF, 0xEEEEEEEE
FRAMES = 64
path = sys.argv[1]
# CDLL calls without the GIL, PyDLL with it.
released, held = ctypes.CDLL(path), ctypes.PyDLL(path)
for library in released, held:
    library.probe_state.restype = ctypes.c_char_p
    library.probe_lost.restype = ctypes.c_ulong
    library.probe_id.restype = ctypes.c_uint
    library.probe_foreign_thread.restype = ctypes.c_uint
library = released
local = threading.local()


def start(code_bytes=384 * 1024, nodes=16 * 1024):
    return library.probe_start(code_bytes, nodes)


def function_of(code):
    return getattr(code, "co_qualname", code.co_name)


def expected(frame, line):
    out = []
    while frame and len(out) < FRAMES:
        out.append((line, function_of(frame.f_code), frame.f_code.co_filename))
        frame = frame.f_back
        line = frame.f_lineno if frame else 0
    return [(line or 0, function, file) for line, function, file in out]


def parse(text):
    frames = []
    for line in text.decode("utf-8", "surrogateescape").splitlines():
        number, function, file = line.split("\t", 2)
        frames.append((int(number), function, file))
    return frames


class Mismatch(Exception):
    pass


looks = 0


def look():
    """Where a program would call NCCL."""
    global looks
    if not hasattr(local, "buffer"):
        local.buffer = ctypes.create_string_buffer(256 * 1024)
    buffer, size, probe = local.buffer, len(local.buffer), library.probe_stack
    count, want = probe(buffer, size), expected(sys._getframe(), sys._getframe().f_lineno)
    got = parse(buffer.value)
    looks += 1
    if got != want:
        for i in range(max(len(got), len(want))):
            g = got[i] if i < len(got) else None
            w = want[i] if i < len(want) else None
            if g != w:
                raise Mismatch("frame %d of %d: got %s, want %s" % (i, count, g, w))
    return True


situations = []


def situation(function):
    situations.append(function)
    return function


@situation
def a_function():
    look()


@situation
def calls_over_several_lines():
    def two(a, b):
        return a

    two(
        look(),
        look(),
    )
    assert (
        True
        and look()
    )


@situation
def nested_functions_and_lambdas():
    x = []

    def inner():
        x.append(1)
        return (lambda: [x, look()])()

    inner()


@situation
def methods_and_properties():
    class Step:
        @property
        def value(self):
            look()
            return 1

        @classmethod
        def make(cls):
            look()
            return cls()

        @staticmethod
        def free():
            look()

        def __getitem__(self, key):
            look()
            return key

        def __getattr__(self, name):
            look()
            return name

        def __call__(self):
            look()

    step = Step.make()
    for _ in range(60):  # until the interpreter has specialised the calls
        step.value, step[3], step.other, step(), Step.free()


@situation
def constructors():
    class Base:
        def __init__(self):
            look()

    class Derived(Base):
        def __init__(self):
            super().__init__()
            look()

    for _ in range(60):
        Base()
        Derived()


@situation
def comprehensions():
    [look() for _ in range(3)]
    {look() for _ in range(3)}
    {i: look() for i in range(3)}
    list(look() for _ in range(3))


@situation
def generators():
    def numbers():
        for i in range(40):
            look()
            yield i
            look()

    for _ in numbers():
        look()
    generator = numbers()
    next(generator)
    generator.close()
    generator = numbers()
    next(generator)
    try:
        generator.throw(ValueError())
    except ValueError:
        look()


@situation
def delegating_generators():
    def leaf():
        look()
        yield 1
        look()

    def middle():
        yield from leaf()
        look()

    def top():
        yield from middle()

    for _ in range(30):
        for _ in top():
            look()


@situation
def coroutines():
    class Pause:
        def __await__(self):
            look()
            yield
            look()

    async def leaf():
        await Pause()
        look()

    async def top():
        for _ in range(30):
            await leaf()

    coroutine = top()
    try:
        while True:
            coroutine.send(None)
            look()
    except StopIteration:
        pass


@situation
def asyncio_tasks():
    async def ticks():
        for i in range(3):
            await asyncio.sleep(0)
            look()
            yield i

    async def work():
        async for _ in ticks():
            look()

    async def main():
        await asyncio.gather(work(), work())
        look()

    asyncio.run(main())


@situation
def recursion():
    def down(n):
        return look() if n == 0 else down(n - 1)

    for depth in 1, 30, 62, 63, 64, 65, 400:
        down(depth)


@situation
def executed_text():
    names = {"look": look}
    exec(compile("def step():\n\n    look()\n\nstep()\n", "<made by exec>", "exec"), names)
    eval("look()", names)
    exec("look()", names)


@situation
def code_that_comes_and_goes():
    # Addresses of code objects, names and tables are used again and again.
    for i in range(1500):
        names = {"look": look}
        text = "\n" * (i % 97) + "def step%d():\n  x = 1\n%s  look()\n" % (i % 3, "\n" * (i % 13))
        exec(compile(text + "step%d()\n" % (i % 3), "<text %d>" % (i % 50), "exec"), names)
        if i % 400 == 399:
            start()


@situation
def names_outside_ascii():
    for file, name in (("caf\u00e9.py", "\u00e9t\u00e9"), ("\u8bad\u7ec3.py", "\u6b65\u9aa4"),
                       ("\U0001f40d.py", "\U00020000"), ("raw\udcff.py", "f")):
        names = {"look": look}
        exec(compile("def %s():\n  look()\n%s()" % (name, name), file, "exec"), names)


@situation
def callbacks_from_c():
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def order(a, b):
        look()
        return 0

    array = (ctypes.c_int * 3)(3, 1, 2)
    ctypes.CDLL(None).qsort(array, 3, 4, compare(order))
    ctypes.pythonapi.PyObject_CallObject.restype = ctypes.py_object
    ctypes.pythonapi.PyObject_CallObject(ctypes.py_object(look), None)


@situation
def callbacks_from_builtins():
    sorted([3, 1, 2], key=lambda x: look() and x)
    list(map(lambda x: look(), range(3)))
    functools.reduce(lambda a, b: look(), range(3))
    functools.partial(lambda x: look(), 1)()
    functools.lru_cache(None)(lambda: look())()
    max([1, 2], key=lambda x: look())


@situation
def exceptions_and_contexts():
    class Context:
        def __enter__(self):
            look()

        def __exit__(self, *error):
            look()
            return True

    with Context():
        look()
        raise ValueError
    try:
        raise KeyError
    except KeyError:
        look()
    finally:
        look()


@situation
def finalizers():
    class Dying:
        def __del__(self):
            look()

    Dying()
    cycle = Dying()
    cycle.self = cycle
    del cycle
    gc.collect()


@situation
def finalizers_in_unfinished_frames():
    # An allocation while a frame is being set up may run the collector, and that a finalizer.
    class Dying:
        def __init__(self):
            self.self = self

        def __del__(self):
            look()

    def with_cells(a, b):
        def inner():
            return a, b
        return inner

    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for i in range(50):
            Dying()
            with_cells(i, i)()
    finally:
        gc.set_threshold(*before)


@situation
def class_bodies_and_metaclasses():
    class Meta(type):
        def __new__(meta, name, bases, body):
            look()
            return super().__new__(meta, name, bases, body)

    class Body(metaclass=Meta):
        look()


@situation
def imports():
    import importlib.util
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        name = "nt_imported_%d" % (library is held)
        with open(os.path.join(directory, name + ".py"), "w") as out:
            out.write("import builtins\n\nbuiltins.nt_look()\n")
        import builtins

        builtins.nt_look = look
        sys.path.insert(0, directory)
        try:
            __import__(name)
        finally:
            sys.path.remove(directory)


@situation
def traced_and_profiled():
    def tracer(frame, event, arg):
        return tracer

    sys.settrace(tracer)
    try:
        look()
        [look() for _ in range(2)]
    finally:
        sys.settrace(None)
    sys.setprofile(lambda *args: None)
    try:
        look()
    finally:
        sys.setprofile(None)
    if hasattr(sys, "monitoring"):
        events = sys.monitoring.events
        sys.monitoring.use_tool_id(3, "test")
        sys.monitoring.register_callback(3, events.LINE, lambda code, line: None)
        sys.monitoring.set_events(3, events.LINE | events.CALL)
        try:
            look()
        finally:
            sys.monitoring.set_events(3, 0)
            sys.monitoring.free_tool_id(3)


@situation
def signal_handlers():
    signal.signal(signal.SIGUSR1, lambda number, frame: look())
    os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(10):
        pass


@situation
def frames_that_are_looked_at():
    def hold():
        frame = sys._getframe()
        look()
        try:
            raise ValueError
        except ValueError as error:
            look()
            return frame, error.__traceback__

    kept = [hold() for _ in range(5)]
    look()
    del kept
    look()


@situation
def threads():
    errors = []

    def work(n):
        try:
            for i in range(60):
                names = {"look": look}
                exec(compile("\n" * (n * 70 + i) + "look()", "<thread %d>" % n, "exec"), names)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


@situation
def long_functions():
    # Longer than any single entry of a line table, and long jumps between lines.
    body = "".join("    x = %d\n%s" % (i, "\n" * (i % 300)) for i in range(400))
    names = {"look": look}
    exec(compile("def long():\n%s    look()\n%s    look()\nlong()\n" % (body, body), "<long>", "exec"),
         names)


@situation
def the_same_stack_has_the_same_id():
    def here():
        return library.probe_id()

    ids = [here() for _ in range(50)]
    assert len(set(ids)) == 1 and ids[0] not in (0, LOST, ERRNO), ids
    other = here()
    assert other not in ids


@situation
def a_thread_without_python_has_no_stack():
    assert library.probe_foreign_thread() == 0


@situation
def a_full_region_is_said():
    def lines(n):
        names = {"id": library.probe_id, "out": []}
        exec("\n".join("out.append(id())" for _ in range(n)), names)
        return names["out"]

    for code_bytes, nodes in ((384 * 1024, 20), (600, 16 * 1024)):
        start(code_bytes, nodes)
        ids = lines(40)
        assert LOST in ids and ids[-1] == LOST, ids
        assert library.probe_lost() == ids.count(LOST), (library.probe_lost(), ids)
        before = library.probe_lost()
        lines(40)
        assert library.probe_lost() > before
    start()


@situation
def names_remain_where_tables_find_no_room():
    start(3000)
    names = {"look": library.probe_stack, "buffer": ctypes.create_string_buffer(4096)}
    text = "def step():\n" + "\n" * 5 + "    x = 1\n" * 2000 + "    return look(buffer, 4096)\nstep()\n"
    exec(compile(text, "<big>", "exec"), names)
    assert parse(names["buffer"].value)[0] == (0, "step", "<big>"), names["buffer"].value
    start()


def tables_of_the_library():
    """Every instruction of some modules, against PyCode_Addr2Line. Returns how many."""
    import inspect
    import types

    to_line = ctypes.pythonapi.PyCode_Addr2Line
    to_line.argtypes = ctypes.py_object, ctypes.c_int
    form = 0 if sys.version_info < (3, 10) else 1 if sys.version_info < (3, 11) else 2
    codes = []
    for name in "argparse", "ast", "inspect", "typing", "tokenize", "threading", "ctypes", "json.decoder":
        __import__(name)
        with open(inspect.getsourcefile(sys.modules[name]), encoding="utf-8") as source:
            codes.append(compile(source.read(), name, "exec"))
    count = 0
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        table = code.co_linetable if form else code.co_lnotab
        for offset in [-1, *range(0, len(code.co_code), 2 if form else 1)]:
            want = max(to_line(code, offset), 0)
            got = library.probe_line(form, table, len(table), code.co_firstlineno, offset)
            if got != want:
                raise Mismatch("%s offset %d: got %d, want %d" % (code, offset, got, want))
            count += 1
    return count


def run(name, function):
    try:
        value = function()
        print("ok %s: %s%s" % (version, name, " (%d)" % value if value else ""))
    except Exception as error:
        print("FAIL %s: %s: %s: %s" % (version, name, type(error).__name__, error))
    sys.stdout.flush()


version = "%d.%d.%d" % sys.version_info[:3]


def refuse():
    """An interpreter that the library does not know must be left alone, with a reason."""
    state = library.probe_state().decode()
    debug = hasattr(sys, "gettotalrefcount") and sys.version_info < (3, 13)
    threaded = hasattr(sys, "_is_gil_enabled") and "free-threading" in sys.version
    unknown = sys.version_info >= (3, 15) or sys.version_info.releaselevel in ("alpha", "beta")
    right = (debug or threaded or unknown) and state.startswith("off: ") and library.probe_id() == 0
    print("%s %s: no stacks: %s" % ("ok" if right else "FAIL", version, state))


def main():
    global library
    for library in released, held:
        if not start():
            refuse()
            return
        for function in situations:
            name = function.__name__.replace("_", " ")
            run(name + (" (with the GIL)" if library is held else ""), function)
    run("lines of all instructions", tables_of_the_library)


main()
