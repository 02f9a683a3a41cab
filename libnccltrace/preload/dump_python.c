/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/dump_thread.h"

void nt_dump_python(struct nt_buffer *out) {
  (void)out;
}
