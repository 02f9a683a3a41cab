#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for the launcher by whose name it is called: parses as much of its command line as says what the
environment of the ranks is, and starts three ranks in it. tests/cli/launch_examples.sh uses it to try the commands of
examples/README.md.

Ranks on other nodes have what the launcher passes on and nothing else, as if nothing were inherited. TRY_PROGRAM is
what is started, TRY_MEET an empty directory, TRY_BARE what any node would have.
"""
import os
import pathlib
import subprocess
import sys

RANKS = 3


def pairs(names_and_values):
    return dict(item.split("=", 1) for item in names_and_values)


def values_of(option, arguments):
    return [arguments[place + 1] for place, argument in enumerate(arguments[:-1]) if argument == option]


def bare():
    names = os.environ["TRY_BARE"].split() + ["TRY_BARE", "TRY_PROGRAM", "TRY_MEET"]
    return {name: os.environ[name] for name in names if name in os.environ}


def open_mpi(arguments):
    """-x NAME=VALUE"""
    return {**bare(), **pairs(values_of("-x", arguments))}


def mpich(arguments):
    """-genv NAME VALUE"""
    passed = {arguments[place + 1]: arguments[place + 2] for place, argument in enumerate(arguments)
              if argument == "-genv"}
    return {**bare(), **passed}


def slurm(arguments):
    """--export=ALL,NAME=VALUE,…"""
    listed = next(argument for argument in arguments if argument.startswith("--export=")).partition("=")[2].split(",")
    inherited = os.environ if "ALL" in listed else bare()
    return {**inherited, **pairs(item for item in listed if "=" in item)}


def deepspeed(arguments):
    """With a host file: variables that begin with NCCL, and ~/.deepspeed_env."""
    if not any(argument.startswith("--hostfile") for argument in arguments):
        return dict(os.environ)
    file = pathlib.Path.home() / ".deepspeed_env"
    listed = pairs(file.read_text().split()) if file.exists() else {}
    return {**bare(), **{name: value for name, value in os.environ.items() if name.startswith("NCCL")}, **listed}


def docker(arguments):
    """-v OUTSIDE:INSIDE[:ro] -e NAME=VALUE; the paths inside are those outside here, as there is no container."""
    given = pairs(values_of("-e", arguments))
    for mount in values_of("-v", arguments):
        outside, inside = mount.split(":")[:2]
        given = {name: outside if value == inside else value for name, value in given.items()}
    return {**bare(), **given}


def inherits(_arguments):
    return dict(os.environ)


LAUNCHERS = {"mpirun": open_mpi, "mpiexec": mpich, "srun": slurm, "deepspeed": deepspeed, "docker": docker}
RANK_VARIABLES = {
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "mpiexec": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    "vllm": (), "python": (), "ray": (),
}


def start(launcher, environment, command=()):
    """The ranks, each by `command`, or as the child of a server's or driver's process."""
    processes = []
    for rank in range(RANKS):
        names = RANK_VARIABLES.get(launcher, ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        values = dict(zip(names, map(str, (rank, RANKS, rank))))
        program = [os.environ["TRY_PROGRAM"], str(rank), str(RANKS), "1", str(rank), os.environ["TRY_MEET"]]
        processes.append(subprocess.Popen([*command, *program], env={**environment, **values}))
    return max(process.wait(timeout=60) for process in processes)


def main():
    name, arguments = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
    # A script of the user's in the place of the program runs before it.
    wrapper = [argument for argument in arguments if argument == "./traced"]
    return start(name, LAUNCHERS.get(name, inherits)(arguments), wrapper)


if __name__ == "__main__":
    sys.exit(main())
