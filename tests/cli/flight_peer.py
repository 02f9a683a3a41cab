#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who is blamed by tracediff and by PyTorch's own analyzer, dump by dump, as a table.

    flight_peer.py TRACEDIFF NAME:DIR:AT-FAULT...     AT-FAULT: "2", "9,14", "-" for nobody

Exits with 1 if tracediff blames anybody else than those at fault in any of them, with 3 if the analyzer could not be
run at all. PYTHONPATH must lead to it.
"""
import json
import re
import subprocess
import sys


def text(ranks):
    return ",".join(map(str, sorted(ranks))) or "nobody"


def ranks_of(text_of_set):
    ranks = set()
    for part in filter(None, text_of_set.split(",")):
        low, _, high = part.partition("-")
        ranks.update(range(int(low), int(high or low) + 1))
    return ranks


def ours(tracediff, directory):
    report = json.loads(subprocess.run([tracediff, "--json", directory], stdout=subprocess.PIPE, check=False,
                                       stderr=subprocess.DEVNULL).stdout)
    blamed = set()
    for finding in report["findings"]:
        blamed |= ranks_of(finding["blame"])
    first = report["findings"][0] if report["findings"] else {}
    place = f" {first['op']} #{first['seq']}" if first.get("seq") else ""
    return report["verdict"] + place, blamed


def theirs(directory):
    run = subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", directory],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
    blamed, said = set(), []
    for line in run.stdout.splitlines():
        blamed |= {int(rank) for rank in re.findall(r"Culprit rank (\d+)", line)}
        said += re.findall(r"Error type: (\w+)", line)
        missing = re.search(r"missing ranks: \{(.*)\}", line)
        if missing:
            blamed |= {int(rank) for rank in missing.group(1).split(",")}
            said.append("not all ranks joining")
    if run.returncode:
        last = [line for line in run.stdout.splitlines() if line.strip()][-1]
        return f"ends with {last.split(':')[0]}", blamed, False
    return ", ".join(dict.fromkeys(said)) or "nothing", blamed, True


def main():
    tracediff, status, ran = sys.argv[1], 0, False
    print("| dumps | at fault | tracediff | blames | PyTorch's analyzer | blames |")
    print("| --- | --- | --- | --- | --- | --- |")
    for item in sys.argv[2:]:
        name, directory, fault = item.rsplit(":", 2)
        wanted = set() if fault == "-" else ranks_of(fault)
        verdict, blamed = ours(tracediff, directory)
        said, peer, fine = theirs(directory)
        ran |= fine
        print(f"| {name} | {text(wanted)} | {verdict} | {text(blamed)} | {said} | {text(peer)} |")
        if blamed != wanted:
            status = 1
    return status if ran else 3


if __name__ == "__main__":
    sys.exit(main())
