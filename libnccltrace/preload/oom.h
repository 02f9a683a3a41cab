/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills by the kernel's out-of-memory killer, as the memory cgroup counts them.
 *
 * Whoever is killed so leaves no word. So each process publishes what its cgroup had counted while it lived, and
 * whoever sees it gone looks whether the count has risen since. Where there is no cgroup the machine's own count
 * stands in.
 */
#ifndef NT_OOM_H
#define NT_OOM_H

#include <stdint.h>

#include "trace/area.h"

/* Publishes the count in the header. Helper thread. */
void nt_oom_sample(struct nt_area *own);

/* By how much the count of that process's cgroup has risen since its last sample; 0 if that cannot be told. */
uint32_t nt_oom_risen(const struct nt_area *gone);

#endif
