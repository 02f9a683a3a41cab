/* SPDX-License-Identifier: Apache-2.0 */
/* What a dump tells of its process, its groups and its operations. */
#include "analysis/load_flight_recorder.h"

#include <stdio.h>
#include <string.h>

bool nt_is_flight_recorder(const uint8_t *bytes, size_t size, bool named) {
  static const char *const keys[] = {"\"entries\"", "\"pg_config\"", "entries", "pg_config"};
  size_t start = 0;
  bool pickle = size > 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
  while (!pickle && start < size && memchr(" \t\r\n", bytes[start], 4))
    start++;
  if (!pickle && (start == size || bytes[start] != '{'))
    return false;
  for (size_t i = pickle ? 2 : 0; !named && i < (pickle ? 4u : 2u); i++)
    named = memmem(bytes, size, keys[i], strlen(keys[i])) != NULL;
  return named;
}

int nt_load_flight_recorder(struct nt_trace_loader *loader, const char *source,
                            const uint8_t *bytes, size_t size, struct nt_error *err) {
  (void)loader, (void)source, (void)bytes, (void)size;
  err->code = -NT_ERR_FOREIGN;
  err->offset = 0;
  snprintf(err->reason, sizeof err->reason, "dumps of the flight recorder are not read yet");
  return err->code;
}
