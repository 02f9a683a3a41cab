# SPDX-License-Identifier: Apache-2.0
"""Comparing a report with expectations."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from scenario import verdict
from scenario.parse import parse
from scenario.program import Plan

REPORT = {
    "verdict": "missing",
    "findings": [
        {"class": "missing", "comm": {"ranks": "0-3", "ordinal": 2}, "op": "AllReduce", "seq": 7, "field": None,
         "blame": "2", "waiting": "3,0-1"},
        {"class": "dead", "blame": "1"},
    ],
    "warnings": [{"class": "slow", "blame": "0"}],
}


def differences(expectation, report=None):
    scenario = parse(f"ranks 4\ncomm A = init all\ncomm B = init all\nexpect {expectation}\n")
    return verdict.check_report(scenario, Plan(scenario), REPORT if report is None else report, "rank 2 is missing")


class Report(unittest.TestCase):
    def test_accepted(self):
        for text in ("class missing", "class left|missing", "comm B", "comm A|B", "op AllReduce", "seq 7", "blame 2",
                     "waiting 0-1,3", "innocent 0,3", "also dead", "also slow|gpu", "not p2p", 'text "is missing"'):
            with self.subTest(text):
                self.assertEqual(differences(text), [])

    def test_refused(self):
        for text, got in (("class left", "missing"), ("comm A", "0-3 #2"), ("op AllGather", "AllReduce"), ("seq 6", "7"),
                          ("blame none", "2"), ("blame 1-2", "2"), ("waiting 0-1", "0-1,3"), ("field count", "none"),
                          ("innocent 0-1", "dead blaming 1"), ("also missing", "dead slow"), ("not dead", "missing dead"),
                          ("not slow", "slow"), ('text "all is well"', "without it")):
            with self.subTest(text):
                found = differences(text)
                self.assertEqual(len(found), 1)
                self.assertIn(got, found[0].split("got ", 1)[1])

    def test_consistent(self):
        report = {"verdict": "consistent", "findings": [], "warnings": []}
        self.assertEqual(differences("class consistent", report), [])
        self.assertEqual(differences("innocent all", report), [])
        self.assertEqual(differences("blame none", report), [])
        self.assertEqual(differences("blame 1", report), ["expected blame 1, got no finding"])
        self.assertEqual(differences("comm A", report), ["expected comm A (0-3 #1), got none"])

    def test_run(self):
        scenario = parse("ranks 1\nspin\nexpect run hung|failed\n")
        self.assertEqual(verdict.check_run(scenario, "hung"), [])
        self.assertEqual(verdict.check_run(scenario, "done"), ["expected run hung|failed, got done"])


if __name__ == "__main__":
    unittest.main()
