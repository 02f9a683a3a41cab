# SPDX-License-Identifier: Apache-2.0
"""What is known of a program before it runs, the code made from it, and the data its ranks exchange."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from scenario import data
from scenario.codegen import compile_program
from scenario.parse import parse
from scenario.program import Plan, trace_rank
from scenario.syntax import OP_CODES, TYPE_CODES, TYPE_SIZES


def plan(body, ranks=4):
    return Plan(parse(f"ranks {ranks}\n{body}\n"))


def limits(text, ranks=4):
    """Agreed collectives by rank of the only communicator."""
    return list(plan(text, ranks).agreed.values())[0]


class Traces(unittest.TestCase):
    def counts(self, rank, body):
        calls = trace_rank(parse(f"ranks 4\ncomm A = init all\n{body}\n"), rank).calls
        return [call.count for call in calls]

    def test_restrictions_and_turns(self):
        body = ("repeat 3 {\nallgather A i8 $i\non 1 at 2 allgather A i8 20\nunless 1 at 3 allgather A i8 30\n"
                "unless 0 allgather A i8 4$rank\n}")
        self.assertEqual(self.counts(0, body), [1, 30, 2, 30, 3, 30])
        self.assertEqual(self.counts(1, body), [1, 30, 41, 2, 20, 30, 41, 3, 41])

    def test_nothing_follows_an_end(self):
        for end in ("exit 0", "kill SIGKILL", "kill SIGSTOP", "spin", "destroy A", "abort A"):
            with self.subTest(end):
                self.assertEqual(self.counts(0, f"allgather A i8 1\n{end}\nallgather A i8 2"), [1])

    def test_neighbours_are_ranks_of_the_communicator(self):
        trace = trace_rank(parse("ranks 5\ncomm A = init 4,2,0\nsend A i8 1 $next\nsend A i8 1 $prev\n"), 4)
        self.assertEqual([call.root for call in trace.calls], [1, 2])

    def test_only_members_call(self):
        scenario = parse("ranks 3\ncomm A = init 0-1\nallgather A i8 1\n")
        self.assertEqual(len(trace_rank(scenario, 2).calls), 0)
        self.assertEqual(trace_rank(scenario, 2).comms, [])


class Agreement(unittest.TestCase):
    def test_ends_at_the_first_difference(self):
        self.assertEqual(limits("comm A = init all\nallgather A i8 1\non 2 allgather A i8 2\nallgather A i8 1"),
                         {0: 1, 1: 1, 2: 1, 3: 1})

    def test_groups_are_sets(self):
        swapped = "comm A = init all\non 0 group {\nallgather A i8 1\nallgather A i8 2\n}\n" \
                  "unless 0 group {\nallgather A i8 2\nallgather A i8 1\n}"
        self.assertEqual(limits(swapped), {0: 2, 1: 2, 2: 2, 3: 2})

    def test_does_not_end_inside_a_group(self):
        text = "comm A = init all\nallgather A i8 1\ngroup {\nallgather A i8 1\non 0 allgather A i8 2\n" \
               "unless 0 allgather A i8 3\n}"
        self.assertEqual(limits(text), {0: 1, 1: 1, 2: 1, 3: 1})

    def test_irregular_communicators_agree_on_nothing(self):
        for odd in ("unless 3 comm A = init all", "comm A = init all size 3",
                    "unless 1 comm A = init all\non 1 comm A = init all id x"):
            with self.subTest(odd):
                self.assertEqual(plan(odd + "\nallgather A i8 1").agreed, {})

    def test_captured_and_eager_calls_differ(self):
        text = "comm A = init all\nallgather A i8 1\ngraph G {\nallgather A i8 1\n}\non 0 graph H {\nallgather A i8 1\n}\n" \
               "unless 0 allgather A i8 1"
        self.assertEqual(limits(text, 2), {0: 2, 1: 2})

    def test_replays_agree_where_all_launch_alike(self):
        graphs = "comm A = init all\ngraph G {\nallgather A i8 1\n}\ngraph H {\nallgather A i8 2\n}\nlaunch G\n"
        self.assertTrue(plan(graphs + "allgather A i8 1\nlaunch H").replays_agree)
        self.assertFalse(plan(graphs + "on 0 launch H\nunless 0 launch G").replays_agree)
        self.assertFalse(plan(graphs + "on 0 launch H\nallgather A i8 1\nunless 0 launch H").replays_agree)

    def test_calls_behind_launches_that_differ_agree_on_nothing(self):
        graph = "comm A = init all\nallgather A i8 1\ngraph G {\nallgather A i8 1\n}\nlaunch G\n"
        self.assertEqual(limits(graph + "allgather A i8 1", 2), {0: 3, 1: 3})
        self.assertEqual(limits(graph + "on 0 launch G\nallgather A i8 1", 2), {0: 2, 1: 2})

    def test_threads_that_share_a_communicator_agree_on_nothing(self):
        text = "comm A = init all\ncomm B = init all\nallgather A i8 1\nthread {\nallgather B i8 1\n%s}\n"
        self.assertEqual(len(plan(text % "").agreed), 2)
        self.assertEqual([key[1] for key in plan(text % "allgather A i8 1\n").agreed], ["B"])

    def test_a_thread_s_end_ends_no_other(self):
        trace = trace_rank(parse("ranks 1\ncomm A = init all\nthread {\nspin\n}\nallgather A i8 1\n"), 0)
        self.assertEqual(len(trace.calls), 1)

    def test_threads_and_graphs_receive_into_buffers_of_their_own(self):
        sizes = plan("comm A = init all\nallgather A i8 1\nthread {\nallgather A i8 1\n}\n"
                     "graph G {\nallgather A i8 1\n}").sizes
        self.assertEqual({key[2] for key in sizes if key[0] == "recv"}, {"main", "main@4", "main@G"})

    def test_messages_by_queue(self):
        made = plan("comm A = init all\nrepeat 3 {\non 0 send A i8 $i 1\non 1 at 1 recv A i8 1 0\n"
                    "on 1 at 2 recv A i8 9 0\n}")
        self.assertEqual(set(made.agreed_p2p.values()), {1})


class Communicators(unittest.TestCase):
    def test_ordinals_count_equal_members(self):
        made = plan("comm A = init all\ncomm B = init 0-1\ncomm C = init all\ncomm D = split A color 0-1:0,2-3:1")
        self.assertEqual(made.communicator("C", None), {(frozenset(range(4)), 2)})
        self.assertEqual(made.communicator("D", 0), {(frozenset({0, 1}), 2)})
        self.assertEqual(made.communicator("D", 1), {(frozenset({2, 3}), 1)})
        self.assertEqual(made.communicator("D", 5), set())

    def test_buffers_hold_what_any_rank_needs(self):
        sizes = plan("comm A = init all\nallgather A f32 10\non 1 alltoall A f32 20 buf b").sizes
        self.assertEqual(sizes["send", "", "f32"], 40)
        self.assertEqual(sizes["recv", "", "main", 0], 160)
        self.assertEqual(sizes["send", "b", "f32"], 320)


class Code(unittest.TestCase):
    def test_lines_are_the_scenario_s(self):
        text = "ranks 2\ncomm A = init all\n\nrepeat 2 {\n  group {\n    on 1 allgather A i8 1\n  }\n}\n\nsync\n"
        code, _ = compile_program(parse(text, "some/where/name.scn"))
        self.assertEqual(code.co_filename, "name.scn")
        runtime = Recorder()
        exec(code, {"R": runtime, "S": compile_program(parse(text))[1], "i0": 0})
        turn = [("prepare_group", 5, 5), ("prepare", 6, 6), ("prepare_group_end", 5, 5)]
        self.assertEqual(runtime.seen, [("prepare_id", 2, 2), ("prepare_make_id", 2, 2), ("prepare", 2, 2),
                                        *turn, *turn, ("prepare", 10, 10), ("prepare", 10, 10)])


    def test_a_thread_has_its_own_runtime_and_turn(self):
        text = "ranks 1\ncomm A = init all\nrepeat 2 {\n  thread {\n    allgather A i8 $i\n  }\n}\nsync\n"
        code, statements = compile_program(parse(text, "name.scn"))
        runtime, threads = Recorder(), []
        runtime.start = lambda stmt, body, turn: threads.append((stmt.line, body, turn))
        exec(code, {"R": runtime, "S": statements, "i0": 0})
        self.assertEqual([(line, turn) for line, _, turn in threads], [(4, 1), (4, 2)])
        self.assertEqual(runtime.seen[3:], [("prepare", 8, 8)] * 3)          # sync, join, devsync
        other = Recorder()
        threads[1][1](other, threads[1][2])
        self.assertEqual(other.seen, [("prepare", 5, 5)])
        self.assertEqual(threads[0][1].__code__.co_filename, "name.scn")

    def test_a_graph_is_captured_then_instantiated(self):
        text = "ranks 1\ncomm A = init all\ngraph G {\n  allgather A i8 1\n}\nlaunch G\n"
        code, statements = compile_program(parse(text, "name.scn"))
        runtime = Recorder()
        exec(code, {"R": runtime, "S": statements, "i0": 0})
        self.assertEqual(runtime.seen[3:], [("prepare_capture", 3, 3), ("prepare", 4, 4), ("prepare_capture_end", 3, 3),
                                            ("prepare_instantiate", 3, 3), ("prepare", 6, 6), ("prepare", 6, 6)])


class Recorder:
    """A runtime that notes method, statement's line and line of the calling frame."""

    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        def record(stmt, _turn):
            self.seen.append((name, stmt.line, sys._getframe(1).f_lineno))
        return record

    def selected(self, _stmt, _turn):
        return True

    def number(self, num, turn):
        return num.value({"i": turn})


class Data(unittest.TestCase):
    def test_every_type_survives(self):
        for kind in TYPE_CODES:
            with self.subTest(kind):
                raw = data.pattern(3, kind, 100 * TYPE_SIZES[kind])
                self.assertEqual(data.decode(kind, raw), [data.value(3, index) for index in range(100)])

    def test_ranks_differ_early(self):
        heads = {tuple(data.value(rank, index) for index in range(16)) for rank in range(16)}
        self.assertEqual(len(heads), 16)

    def test_reductions(self):
        wanted = {"sum": 6, "prod": 8, "max": 2, "min": 2, "avg": 2}
        for op in OP_CODES:
            self.assertEqual(data.reduced(op, "i32", [2, 2, 2]), wanted[op])
        self.assertEqual(data.reduced("avg", "f32", [1, 2]), 1.5)
        self.assertEqual(data.reduced("avg", "u8", [1, 2]), 1)
        self.assertTrue(data.equal("i8", -128, 128))
        self.assertFalse(data.equal("f32", 2.0, 1.0))

    def test_where_blocks_stand(self):
        members = (4, 5, 6)

        def first(word, rank, root=0):
            return [(offset, want(0)) for offset, want in
                    data.expected(word, "f32", 10, "sum", root, rank, members)]
        self.assertEqual(first("allgather", 1), [(10 * i, data.value(4 + i, 0)) for i in range(3)])
        self.assertEqual(first("alltoall", 1), [(10 * i, data.value(4 + i, 10)) for i in range(3)])
        self.assertEqual(first("scatter", 2, root=1), [(0, data.value(5, 20))])
        self.assertEqual(first("reducescatter", 2), [(0, sum(data.value(rank, 20) for rank in members))])
        self.assertEqual(first("gather", 1), [])
        self.assertEqual(first("reduce", 1), [])
        self.assertEqual(first("broadcast", 2, root=1), [(0, data.value(5, 0))])


if __name__ == "__main__":
    unittest.main()
