/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that were recorded on NCCL's streams.
 *
 * Lock-free and of a fixed size; any thread. Nothing tells when an event is destroyed, so where there is no room the
 * one goes that was recorded longest ago among its neighbours, never one of the last few.
 */
#ifndef NT_EVENT_SET_H
#define NT_EVENT_SET_H

#include <stdbool.h>

enum { NT_EVENT_PLACES = 4096, NT_EVENT_PROBES = 16 /* powers of two */ };

void nt_event_keep(const void *event);
bool nt_event_known(const void *event);

#endif
