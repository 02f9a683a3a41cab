# SPDX-License-Identifier: Apache-2.0
"""The parser: every statement and expectation, and errors that name file and line."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from scenario.parse import load, parse
from scenario.syntax import ScenarioError, format_ranks

SCENARIOS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "scenarios")


def statements(body, ranks=4):
    """Top-level statements of a program of `body` for a job with communicator A."""
    scenario = parse(f"ranks {ranks}\ncomm A = init all\n{body}\n", "x.scn")
    return scenario.body[1:]


class Header(unittest.TestCase):
    def test_every_line(self):
        scenario = parse("title  Two words # and a comment\nsource https://example.org/x\nenv 1-2 A_B=x y\n"
                         "ranks 4\nreal no\ntimeout 1.5\nevidence dump\ndrop 0,3\nenv all C=\n", "dir/x.scn")
        self.assertEqual(scenario.title, "Two words")
        self.assertEqual(scenario.source, "https://example.org/x")
        self.assertEqual((scenario.ranks, scenario.real, scenario.timeout), (4, False, 1.5))
        self.assertEqual((scenario.evidence, scenario.drop), ("dump", {0, 3}))
        self.assertEqual(scenario.env, [({1, 2}, "A_B", "x y"), ({0, 1, 2, 3}, "C", "")])
        self.assertEqual((scenario.name, scenario.file), ("x", "x.scn"))

    def test_defaults(self):
        scenario = parse("ranks 2\n")
        self.assertEqual((scenario.real, scenario.timeout, scenario.evidence), (True, 3.0, "live"))


class Statements(unittest.TestCase):
    def test_data_operations(self):
        for text, word in (("allreduce A f32 10 sum", "allreduce"), ("reduce A i8 10 max 1", "reduce"),
                           ("broadcast A u8 10 1", "broadcast"), ("allgather A i32 10", "allgather"),
                           ("reducescatter A u32 10 prod", "reducescatter"), ("alltoall A i64 10", "alltoall"),
                           ("gather A u64 10 1", "gather"), ("scatter A f16 10 1", "scatter"),
                           ("send A f64 10 1", "send"), ("recv A bf16 10 1", "recv")):
            with self.subTest(text):
                stmt = statements(text)[0]
                self.assertEqual((stmt.word, stmt.line, stmt.args["count"].value({})), (word, 3, 10))
                self.assertEqual((stmt.args["stream"], stmt.args["buf"]), ("main", ""))

    def test_operation_options_in_any_order(self):
        stmt = statements("stream s\nallgather A i32 10 buf b stream s")[1]
        self.assertEqual((stmt.args["stream"], stmt.args["buf"]), ("s", "b"))

    def test_communicators(self):
        body = statements("comm B = init 3,0-1 size 5 rank 2 id old\n"
                          "comm C = split A color 0-1:0,2:7\nnonblocking D\ncomm D = init all")
        self.assertEqual(body[0].args["members"], (3, 0, 1))
        self.assertEqual((body[0].args["size"].value({}), body[0].args["rank"].value({})), (5, 2))
        self.assertEqual(body[0].args["id"], "old")
        self.assertEqual((body[1].args["parent"], body[1].args["colors"]), ("A", {0: 0, 1: 0, 2: 7}))
        self.assertEqual((body[2].word, body[2].args), ("nonblocking", {"name": "D"}))

    def test_streams_and_events(self):
        body = statements("stream s\nsync\nsync s\ndevsync\nrecord e s\nwait e main\ngpuspin\ngpuspin s")
        self.assertEqual([stmt.word for stmt in body],
                         ["stream", "sync", "sync", "devsync", "record", "wait", "gpuspin", "gpuspin"])
        self.assertEqual([stmt.args.get("stream") for stmt in body],
                         [None, "main", "s", None, "s", "main", "main", "s"])

    def test_host_statements(self):
        body = statements("hostbarrier b\nhostbarrier b 1-2\nsleep 0.5\nsleep $rank\nspin\nexit 3\n"
                          "kill SIGSTOP\nkill SEGV\nfork\nabort A\nfinalize A\ndestroy A")
        self.assertEqual(body[0].args["ranks"], (0, 1, 2, 3))
        self.assertEqual(body[1].args["ranks"], (1, 2))
        self.assertEqual(body[2].args["seconds"], 0.5)
        self.assertEqual(body[5].args["code"].value({}), 3)
        self.assertEqual([body[6].args["signal"], body[7].args["signal"]], [19, 11])
        self.assertEqual([stmt.word for stmt in body[8:]], ["fork", "abort", "finalize", "destroy"])

    def test_blocks_nest(self):
        body = statements("repeat 3 {\n  on 0-1 at 2 {\n    unless 1 at $i group {\n send A f32 $i $next\n }\n }\n}")
        turn = body[0].body[0]
        self.assertEqual((body[0].word, turn.word, turn.line), ("repeat", "on", 4))
        self.assertEqual(turn.args["turn"].value({"i": 1}), 2)
        group = turn.body[0].body[0]
        self.assertEqual((turn.body[0].word, group.word, group.line), ("unless", "group", 5))
        self.assertEqual(group.body[0].args["peer"].value({"next": 3}), 3)

    def test_one_line_restrictions(self):
        stmt = statements("on 1 on 0-2 unless 2 exit 1")[0]
        self.assertEqual([inner.word for inner in stmt.walk()], ["on", "on", "unless", "exit"])

    def test_graphs_and_threads(self):
        body = statements("graph g {\nallgather A i8 1\n}\nstream s\nlaunch g\nlaunch g stream s\nthread {\nspin\n}")
        self.assertEqual([stmt.word for stmt in body], ["graph", "stream", "launch", "launch", "thread"])
        self.assertEqual([body[2].args["stream"], body[3].args["stream"]], ["main", "s"])

    def test_variables_are_replaced_as_text(self):
        stmt = statements("repeat 2 {\nallgather A i8 1$i0\n}")[0].body[0]
        self.assertEqual(stmt.args["count"].value({"i": 7}), 170)

    def test_comments_and_indentation(self):
        scenario = parse("# first\nranks 2 # two\n\n\t comm A = init all # all\n  sync#now\n")
        self.assertEqual([stmt.line for stmt in scenario.body], [4, 5])
        self.assertEqual(scenario.end_line, 5)


class Expectations(unittest.TestCase):
    def test_every_kind(self):
        scenario = parse("ranks 4\ncomm A = init all\nexpect run hung|done\nexpect class missing|left\nexpect comm A:1\n"
                         "expect op AllReduce\nexpect seq 7\nexpect blame none\nexpect blame 0,2-3\nexpect innocent 1\n"
                         "expect waiting 0\nexpect field count\nexpect also dead\nexpect not p2p\n"
                         'expect text "a # \\"b\\""\n')
        self.assertEqual([(item.what, item.value) for item in scenario.expects][-2:],
                         [("not", "p2p"), ("text", 'a # "b"')])
        self.assertEqual(scenario.expects[0].line, 3)
        self.assertEqual(len(scenario.expects), 13)


class Errors(unittest.TestCase):
    CASES = (
        ("comm A = init all", 1, "no 'ranks' line"),
        ("ranks none", 1, "one positive number"),
        ("ranks 2\nfrobnicate A", 2, "unknown word 'frobnicate'"),
        ("ranks 2\nspin\ntitle late", 3, "belongs to the header"),
        ("ranks 2\nspin\nexpect run hung\nspin", 4, "expectations stand at the end"),
        ("ranks 2\nallreduce A f32 1 sum", 2, "unknown communicator 'A'"),
        ("ranks 2\nnonblocking A", 2, "unknown communicator 'A'"),
        ("ranks 2\ncomm A = init all\nallreduce A f31 1 sum", 3, "TYPE is one of"),
        ("ranks 2\ncomm A = init all\nallreduce A f32 1 add", 3, "OP is one of"),
        ("ranks 2\ncomm A = init all\nallreduce A f32 x sum", 3, "'x' is no number"),
        ("ranks 2\ncomm A = init all\nallreduce A f32 1", 3, "takes C TYPE COUNT OP"),
        ("ranks 2\ncomm A = init all\nallgather A f32 1 color 2", 3, "unknown word 'color'"),
        ("ranks 2\ncomm A = init all\nallgather A f32 1 stream s", 3, "unknown stream 's'"),
        ("ranks 2\ncomm A = init all\nallgather A f32 $i", 3, "$i needs an enclosing repeat"),
        ("ranks 2\nexit $next", 2, "need a statement on a communicator"),
        ("ranks 2\ncomm A = init 0,0", 2, "listed twice"),
        ("ranks 2\ncomm A = init 0-2", 2, "rank 2 is outside this job of 2"),
        ("ranks 2\ncomm A = grow all", 2, "unknown word 'grow'"),
        ("ranks 2\ncomm A = split B color 0:0", 2, "unknown communicator 'B'"),
        ("ranks 2\ncomm A = init all\ncomm B = split A color 0", 3, "'0' is no RANKS:COLOUR"),
        ("ranks 2\ncomm A = init all\ncomm B = split A color 0:0,0:1", 3, "two colours"),
        ("ranks 2\non 0-x spin", 2, "is no list of ranks"),
        ("ranks 9\non 5-2 spin", 2, "runs backwards"),
        ("ranks 2\non 0 at 1 spin", 2, "at needs an enclosing repeat"),
        ("ranks 2\non 0", 2, "takes a statement or a block"),
        ("ranks 2\non 0 { spin }", 2, "unknown word '{'"),
        ("ranks 2\nrepeat 3 {\nspin", 2, "never closed"),
        ("ranks 2\nrepeat 3 spin", 2, "takes a block"),
        ("ranks 2\nspin\n}", 3, "closes nothing"),
        ("ranks 2\ngroup {\n} spin", 3, "line of its own"),
        ("ranks 2\nkill SIGNOTHING", 2, "unknown signal"),
        ("ranks 2\nwait e main", 2, "unknown event 'e'"),
        ("ranks 2\nlaunch g", 2, "unknown graph 'g'"),
        ("ranks 2\ngraph g {\nlaunch g\n}", 3, "launch cannot stand inside a graph"),
        ("ranks 2\ngraph g {\ngroup {\nthread {\n}\n}\n}", 4, "thread cannot stand inside a graph"),
        ("ranks 2\ngroup {\ngraph g {\n}\n}", 3, "graph cannot stand inside a group"),
        ("ranks 2\nspin now", 2, "spin takes nothing"),
        ("ranks 2\nevidence psychic", 2, "evidence is one of"),
        ("ranks 2\ntimeout soon", 2, "positive number of seconds"),
        ("ranks 2\nexpect class broken", 2, "unknown class 'broken'"),
        ("ranks 2\nexpect comm A", 2, "unknown communicator 'A'"),
        ("ranks 2\nexpect luck 1", 2, "unknown expectation 'luck'"),
        ("ranks 2\nexpect blame 2", 2, "rank 2 is outside"),
        ("ranks 2\nexpect text unquoted", 2, "double quotes"),
        ("ranks 2\nexpect run", 2, "expect takes"),
    )

    def test_name_file_and_line(self):
        for text, line, message in self.CASES:
            with self.subTest(text):
                with self.assertRaises(ScenarioError) as caught:
                    parse(text, "dir/x.scn")
                self.assertIn(message, str(caught.exception))
                self.assertTrue(str(caught.exception).startswith(f"dir/x.scn:{line}: "), caught.exception)

    def test_missing_file(self):
        with self.assertRaises(ScenarioError):
            load("/nonexistent/x.scn")


class Files(unittest.TestCase):
    def test_all_shipped_scenarios_are_read(self):
        for name in sorted(name for name in os.listdir(SCENARIOS) if name.endswith(".scn")):
            with self.subTest(name):
                scenario = load(os.path.join(SCENARIOS, name))
                self.assertTrue(scenario.title)
                self.assertTrue(scenario.expects)


class Ranks(unittest.TestCase):
    def test_compact_form(self):
        self.assertEqual(format_ranks({0, 1, 2, 5, 7, 8}), "0-2,5,7-8")
        self.assertEqual(format_ranks(()), "none")


if __name__ == "__main__":
    unittest.main()
