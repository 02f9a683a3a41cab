#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other people's packages: fetched by pip into a cache, never installed, put into Python's path from there.

Versions are fixed, so that what a test sees changes only with this file. A package that a machine has already, or that
lies in a directory of wheels, is not fetched. For a machine without a network:

    tests/users/packages.py DIR [--python 3.12] [PACKAGE...]      # here; then carry DIR and pass it as --wheels there
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

LIMIT_S = 300       # for one download
NUMPY = "numpy>=2"


class Missing(Exception):
    """A package is not here and cannot be fetched; says why."""


@dataclasses.dataclass(frozen=True)
class Package:
    name: str
    wheels: tuple                   # what pip is asked for
    megabytes: int                  # how much that is, about
    module: str                     # what is imported of it
    files: tuple = ()               # only these files of it
    options: tuple = ()             # for pip


PACKAGES = {package.name: package for package in (
    Package("nccl4py", ("nccl4py==0.6.0", "cuda-core==1.2.2", "cuda-bindings==13.5.0", "cuda-pathfinder==1.9.1",
                        "packaging", NUMPY), 37, "nccl.core"),
    # The build of vLLM for another accelerator is the smallest that holds its binding of NCCL, which is plain Python.
    Package("vllm", ("vllm-tpu==0.32.0",), 12, "vllm", ("vllm/distributed/device_communicators/pynccl_wrapper.py",),
            ("--python-version", "3.12", "--platform", "manylinux_2_24_x86_64")),
    Package("sglang", ("sglang==0.5.9",), 5, "sglang",
            ("sglang/srt/distributed/device_communicators/pynccl_wrapper.py",)),
    Package("cupy", ("cupy-cuda12x==14.2.0", "cuda-pathfinder==1.9.1", NUMPY), 155, "cupy"),
)}


def cache() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "libnccltrace" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def is_installed(package: Package) -> bool:
    try:
        return importlib.util.find_spec(package.module) is not None
    except ImportError:
        return False


def download(package: Package, wheels: pathlib.Path, carried: pathlib.Path | None) -> None:
    """The wheels of a package into `wheels`, out of `carried` if that is given."""
    source = ["--no-index", "--find-links", str(carried)] if carried else ["--timeout", "15", "--retries", "1"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps",
               "--only-binary=:all:", *source, *package.options, "--dest", str(wheels), *package.wheels]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Missing(f"pip needs more than {LIMIT_S} s for it") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["no word from pip"]
        raise Missing(f"not in {carried or 'reach'}: " + said[-1].strip().removeprefix("ERROR: "))


def unpack(package: Package, wheels: pathlib.Path, site: pathlib.Path) -> None:
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site, package.files or None)


def site_of(package: Package, most_megabytes: int, carried: pathlib.Path | None = None) -> pathlib.Path | None:
    """A directory for Python's path that holds this package, None if Python has it. Raises Missing."""
    if is_installed(package):
        return None
    site = cache() / "-".join([package.name, package.wheels[0].partition("==")[2]])
    if site.exists():
        return site
    if not carried and package.megabytes > most_megabytes:
        raise Missing(f"{package.megabytes} MB to fetch; `make check-users` fetches them")
    # Beside the place that it gets when it is complete: two runs may fetch at the same time.
    new = site.with_name(f"{site.name}.{os.getpid()}")
    try:
        download(package, new / "wheels", carried)
        unpack(package, new / "wheels", new / "site")
        (new / "site").rename(site)
    except OSError as error:
        if not site.exists():
            raise Missing(str(error)) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return site


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("package", nargs="*", choices=[[], *PACKAGES])
    parser.add_argument("--python", help="the version of the Python that will use them")
    args = parser.parse_intermixed_args()
    version = ("--python-version", args.python) if args.python else ()
    for package in [PACKAGES[name] for name in args.package or PACKAGES]:
        try:
            download(dataclasses.replace(package, options=package.options or version), args.directory, None)
        except Missing as reason:
            print(f"{package.name}: {reason}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
