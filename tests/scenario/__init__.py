# SPDX-License-Identifier: Apache-2.0
"""Scenarios: small programs that say what every rank of a job does and what tracediff must say.

parse.py reads a file, program.py knows what each rank will do before anybody has done it, codegen.py
turns the program into Python code whose stack frames carry the scenario's own lines, rank.py runs
that code in one process per rank on top of shim.c, job.py starts and ends the processes, evidence.py
takes the traces as a user would, verdict.py compares what was said with what was expected.
"""
