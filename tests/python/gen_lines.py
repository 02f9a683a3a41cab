# SPDX-License-Identifier: Apache-2.0
"""Prints one entry of tests/unit/python_lines_data.h: line tables as this interpreter's compiler makes them,
and the line of each instruction as it tells it itself.

    for p in python3.8 … python3.14; do $p tests/python/gen_lines.py; done
"""
import ctypes
import sys
import textwrap
import types

SOURCE = '''
def step(model, data,
         scale=1):
    """Long jumps, jumps back, and instructions without a line."""
    with model as m:
        for x in data:
            try:
                y = m(
                    x,
                    scale,
                )
            except ValueError as error:
                raise KeyError from error
            finally:
                m.done()
%s
            total = [y
                     for z in (y
                               + x)]
    return (total
            if total
            else None)


async def wait(items):
    async for item in items:
        await item
%s
    return lambda: (yield)
''' % ("\n" * 140, "\n" * 300)


def put(text):
    print("\n".join(textwrap.wrap(text, 100, subsequent_indent="  ")))


def main():
    to_line = ctypes.pythonapi.PyCode_Addr2Line
    to_line.argtypes = ctypes.py_object, ctypes.c_int
    form = 0 if sys.version_info < (3, 10) else 1 if sys.version_info < (3, 11) else 2
    unit = 2
    codes = [c for c in compile(SOURCE, "x", "exec").co_consts if isinstance(c, types.CodeType)]
    for code in codes:
        table = code.co_linetable if form else code.co_lnotab
        lines = [max(to_line(code, offset), 0) for offset in range(0, len(code.co_code), unit)]
        put("{.name = \"%d.%d %s\", .format = %d, .first_line = %d, .table_length = %d, .lines = %d," % (
            sys.version_info[:2] + (code.co_name, form, code.co_firstlineno, len(table), len(lines))))
        put(" .table = (const unsigned char[]){%s}," % ", ".join(map(str, table)))
        put(" .line = (const int[]){%s}}," % ", ".join(map(str, lines)))


main()
