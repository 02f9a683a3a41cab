#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job of Open MPI on the nodes of the file `hosts`. Each node keeps the traces of its own ranks; what comes to the
# directory that all share are digests, 32 KiB a rank.
set -u
traces=/tmp/nccltrace-$$ digests=$PWD/digests-$$ # of this run

mpirun -np 8 --hostfile hosts -x LD_PRELOAD=/usr/local/lib/libnccltrace.so -x NCCLTRACE_DIR="$traces" ./train
status=$?

mpirun --hostfile hosts --map-by ppr:1:node nccltrace digest -o "$digests" "$traces"
tracediff "$digests"
exit "$status"
