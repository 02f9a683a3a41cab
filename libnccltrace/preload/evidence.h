/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evidence header: what a person would look up by hand, as "key=value" lines.
 *
 * Environment variables are taken from an allow-list of prefixes, never as a whole: it holds secrets.
 */
#ifndef NT_EVIDENCE_H
#define NT_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "preload/settings.h"
#include "trace/area.h"

/* Copies the allowed variables. Application thread, once, before the helper starts: the environment may
 * be changed by the application at any later time. */
void nt_evidence_capture_environment(void);

/* The value of one of them at that time; false if it was not set or not allowed. Any thread. */
bool nt_evidence_variable(const char *name, char *out, size_t size);

/* Composes the text in the area: once before the helper starts, then in the helper thread. */
void nt_evidence_write(struct nt_area *area, const struct nt_settings *settings);

/* Composes it again if GPUs, NCCL copies or configurations have become known since; true if so. */
bool nt_evidence_update(struct nt_area *area, const struct nt_settings *settings);

#endif
