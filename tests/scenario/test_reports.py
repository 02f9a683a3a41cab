# SPDX-License-Identifier: Apache-2.0
"""tests/scenarios/reports.tsv: which scenario stands for which public report."""

import os
import re
import unittest

SCENARIOS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "scenarios")


class Reports(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(SCENARIOS, "reports.tsv"), encoding="utf-8") as file:
            self.lines = file.read().splitlines()

    def test_are_sorted_pairs_of_number_and_file(self):
        for line in self.lines:
            self.assertRegex(line, r"^\d{3}\t[a-z0-9-]+\.scn$")
        self.assertEqual(self.lines, sorted(set(self.lines)))

    def test_name_scenarios_that_exist_and_name_their_source(self):
        for line in self.lines:
            path = os.path.join(SCENARIOS, line.split("\t")[1])
            self.assertTrue(os.path.exists(path), f"{line}: no such file")
            with open(path, encoding="utf-8") as file:
                self.assertTrue(re.search(r"^source +https://", file.read(), re.M), f"{line}: no source")


if __name__ == "__main__":
    unittest.main()
