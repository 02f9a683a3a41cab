# SPDX-License-Identifier: Apache-2.0
"""What one stack costs, at 16 frames of functions of a usual size, when it has been seen before.

    bench.py LIBPROBE       prints NAME VALUE UNIT target VALUE ok|MISS
"""
import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1])
library.probe_cost.restype = library.probe_instructions.restype = ctypes.c_double
library.probe_start(384 * 1024, 16 * 1024)
FRAMES, TARGET = 16, 150


def chain(depth):
    """Functions f0 … fN, each with a body, each calling the next."""
    text = ""
    for i in range(depth + 1):
        call = "f%d(x)" % (i + 1) if i < depth else "measure()"
        text += "def f%d(x):\n    y = [x, %d]\n    for z in y:\n        x = z\n    return %s\n" % (i, i, call)
    return text


def measure():
    return library.probe_cost(), library.probe_instructions()


names = {"measure": measure}
exec(compile(chain(FRAMES - 3), "bench.py", "exec"), names)
# f0 … f13, measure and this module's frame.
# The least of many short runs: other users of the machine come and go.
runs = []
for _ in range(25):
    runs.append(names["f0"](1))
    time.sleep(0.02)
cost, instructions = min(run[0] for run in runs), runs[0][1]
print("python_stack_%d_frames_%d.%d %.1f ns target %d %s" % (
    (FRAMES,) + sys.version_info[:2] + (cost, TARGET, "ok" if cost <= TARGET else "MISS")))
if instructions:
    print("python_stack_%d_frames_%d.%d_instructions %.0f instructions target 3000 %s" % (
        (FRAMES,) + sys.version_info[:2] + (instructions, "ok" if instructions <= 3000 else "MISS")))
sys.exit(cost > TARGET)
