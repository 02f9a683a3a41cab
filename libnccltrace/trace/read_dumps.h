/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dumps read back: sections are collected from the file and from the spool, then put together by number.
 *
 * A section is checked as a whole when it is taken, and a damaged one is left out as a whole; so what is put
 * together later cannot fail but for memory.
 */
#ifndef NT_READ_DUMPS_H
#define NT_READ_DUMPS_H

#include "trace/frame.h"
#include "trace/reader.h"

#define NT_DUMPS_MAX 64          /* of a trace, the newest */
#define NT_DUMP_THREADS_MAX 4096 /* of a dump */
#define NT_DUMP_FACTS_MAX 4096
#define NT_DUMPS_BYTES (UINT64_C(64) << 20) /* of all sections of a trace */

struct nt_known_section {
  struct nt_known_section *next;
  uint32_t section;
  uint32_t length; /* bytes of entries behind the head */
  unsigned char *payload, *entries;
};

struct nt_known_fact {
  const char *key, *value;
};

struct nt_known_dump {
  struct nt_dump_view view;
  struct nt_known_section *sections; /* until they are put together */
  uint64_t bytes;
  struct nt_dump_thread *threads;
  struct nt_stack_frame *frames;
  struct nt_known_fact *facts;
  char *text;
};

/* Zero-initialise; release with nt_known_dumps_free. By number. */
struct nt_known_dumps {
  struct nt_known_dump *list[NT_DUMPS_MAX];
  size_t count;
  uint64_t bytes;
  bool left_out; /* there were more */
};

void nt_known_dumps_free(struct nt_known_dumps *dumps);

/* Takes over the payload (malloc) of a DUMP frame. *section and *number tell which it is, 0 if not even that can be
 * told. A section that is known already is dropped. -NT_ERR_CORRUPT, -NT_ERR_MEMORY, -NT_ERR_SPACE. */
int nt_known_dumps_take(struct nt_known_dumps *dumps, unsigned char *payload, uint32_t length,
                        uint32_t *number, uint32_t *section);

/* Once everything is taken. `pid` is the main thread's id unless a section says otherwise. */
int nt_known_dumps_finish(struct nt_known_dumps *dumps, uint32_t pid);

#endif
