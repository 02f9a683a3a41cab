/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of ours in the traced process: drains the ring into the file, keeps the heartbeat, answers
 * requests, watches the neighbours.
 *
 * All signals are blocked in it, it never touches CUDA, NCCL or the loader, and its file descriptors are in
 * a table of its own, so that an application that closes or reuses descriptors never meets ours.
 */
#ifndef NT_HELPER_H
#define NT_HELPER_H

#include "preload/settings.h"

/* Starts the helper for nt_process's area. 0, or -1 if no thread could be had. */
int nt_helper_start(const struct nt_settings *settings);

#endif
