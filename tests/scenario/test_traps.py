# SPDX-License-Identifier: Apache-2.0
"""tests/traps.tsv: what goes wrong if it is not thought of, and the test that fails then."""

import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AREAS = ["loader", "nccl", "python", "unwinder", "signals", "process"]


def holds(path, text, name):
    """Whether the file runs a test of this name."""
    if path.startswith("tests/unit/"):
        return re.search(rf"^static void {name}\(", text, re.M) and len(re.findall(rf"\b{name}\b", text)) > 1
    if path.endswith(".py"):
        return re.search(rf"^@situation\S*\ndef {name}\(", text, re.M)
    return f'"{name}"' in text


class Traps(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(ROOT, "tests", "traps.tsv"), encoding="utf-8") as file:
            self.rows = [line.split("\t") for line in file.read().splitlines()]

    def test_stand_by_area_and_once(self):
        areas = [row[0] for row in self.rows]
        self.assertEqual(areas, sorted(areas, key=AREAS.index))
        self.assertEqual(set(areas), set(AREAS))
        traps = [row[1] for row in self.rows]
        self.assertEqual(len(traps), len(set(traps)))

    def test_name_tests_that_exist(self):
        for area, trap, path, *name in self.rows:
            with self.subTest(trap):
                self.assertTrue(path.startswith("tests/") and area and trap)
                self.assertTrue(os.path.isfile(os.path.join(ROOT, path)), f"{path}: no such file")
                alone = path.endswith(".scn") or path.startswith("tests/lint/") or path == "tests/check-dist"
                self.assertEqual(len(name), 0 if alone else 1, "a test by its name, a scenario by its file")
                with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                    self.assertTrue(alone or holds(path, file.read(), name[0]), f"{path} has no {name}")


if __name__ == "__main__":
    unittest.main()
