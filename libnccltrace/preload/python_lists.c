/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/python_lists.h"

#include <string.h>

#include "preload/python_layout.h"

/* Made by tests/python/gen_layout.c, which tests/python/run compares with the headers that are installed. */
static const struct nt_python_lists table[] = {
    {.version = 0x0308,
     .interp_threads = 8,
     .runtime_gil = 1152,
     .gil_holder = 8,
     .gil_locked = 16,
     .thread_next = 8,
     .thread_interp = 16,
     .thread_id = 176},
    {.version = 0x0309,
     .interp_threads = 8,
     .runtime_gil = 352,
     .gil_holder = 8,
     .gil_locked = 16,
     .thread_next = 8,
     .thread_interp = 16,
     .thread_id = 176},
    {.version = 0x030a,
     .interp_threads = 8,
     .runtime_gil = 352,
     .gil_holder = 8,
     .gil_locked = 16,
     .thread_next = 8,
     .thread_interp = 16,
     .thread_id = 176},
    {.version = 0x030b,
     .interp_threads = 16,
     .runtime_gil = 360,
     .gil_holder = 8,
     .gil_locked = 16,
     .thread_next = 8,
     .thread_interp = 16,
     .thread_id = 152,
     .thread_native = 160},
    {.version = 0x030c,
     .interp_threads = 72,
     .interp_gil = 384,
     .gil_holder = 8,
     .gil_locked = 16,
     .thread_next = 8,
     .thread_interp = 16,
     .thread_id = 136,
     .thread_native = 144},
};

/* Indexes of 64-bit words behind the cookie. */
struct published {
  uint16_t version;
  uint8_t interp_size, interp_next, interp_threads, interp_gil;
  uint8_t gil, gil_locked, gil_holder; /* as offsets in the interpreter */
  uint8_t thread_size, thread_prev, thread_next, thread_interp, thread_id, thread_native;
};

static const struct published published[] = {
    {.version = 0x030d,
     .interp_size = 6,
     .interp_next = 8,
     .interp_threads = 9,
     .interp_gil = 14,
     .gil = 15,
     .gil_locked = 17,
     .gil_holder = 18,
     .thread_size = 19,
     .thread_prev = 20,
     .thread_next = 21,
     .thread_interp = 22,
     .thread_id = 24,
     .thread_native = 25},
    {.version = 0x030e,
     .interp_size = 6,
     .interp_next = 8,
     .interp_threads = 9,
     .interp_gil = 15,
     .gil = 16,
     .gil_locked = 18,
     .gil_holder = 19,
     .thread_size = 22,
     .thread_prev = 23,
     .thread_next = 24,
     .thread_interp = 25,
     .thread_id = 27,
     .thread_native = 28},
};

/* A pointer at `at` lies within an object of `size` bytes, of which no more than `most` are looked at. */
static bool inside(uint64_t at, uint64_t size, uint64_t most) {
  return at <= most && at + 8 <= size;
}

static bool is_plausible(const uint64_t *w, const struct published *p) {
  enum { INTERP_MOST = 0xfff0, THREAD_MOST = NT_PYTHON_THREAD_BYTES - 8, GIL_MOST = 64 };
  const uint64_t interp = w[p->interp_size], thread = w[p->thread_size], gil = w[p->gil];
  return inside(w[p->interp_next], interp, INTERP_MOST) &&
         inside(w[p->interp_threads], interp, INTERP_MOST) &&
         inside(w[p->interp_gil], interp, INTERP_MOST) && w[p->gil_holder] - gil <= GIL_MOST &&
         w[p->gil_locked] - gil <= GIL_MOST && inside(w[p->thread_prev], thread, THREAD_MOST) &&
         inside(w[p->thread_next], thread, THREAD_MOST) &&
         inside(w[p->thread_interp], thread, THREAD_MOST) &&
         inside(w[p->thread_id], thread, THREAD_MOST) &&
         inside(w[p->thread_native], thread, THREAD_MOST);
}

static bool read_published(const void *offsets, const struct published *p,
                           struct nt_python_lists *out) {
  uint64_t w[NT_PYTHON_OFFSETS / 8];
  memcpy(w, offsets, sizeof(w));
  if (!is_plausible(w, p))
    return false;
  *out = (struct nt_python_lists){.version = p->version,
                                  .interp_next = (uint16_t)w[p->interp_next],
                                  .interp_threads = (uint16_t)w[p->interp_threads],
                                  .interp_gil = (uint16_t)w[p->interp_gil],
                                  .gil_holder = (uint16_t)(w[p->gil_holder] - w[p->gil]),
                                  .gil_locked = (uint16_t)(w[p->gil_locked] - w[p->gil]),
                                  .thread_prev = (uint16_t)w[p->thread_prev],
                                  .thread_next = (uint16_t)w[p->thread_next],
                                  .thread_interp = (uint16_t)w[p->thread_interp],
                                  .thread_id = (uint16_t)w[p->thread_id],
                                  .thread_native = (uint16_t)w[p->thread_native]};
  return true;
}

bool nt_python_read_lists(const void *offsets, uint32_t hex, struct nt_python_lists *out) {
  *out = (struct nt_python_lists){0};
  for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
    if (table[i].version == hex >> 16)
      *out = table[i];
  for (size_t i = 0; i < sizeof(published) / sizeof(*published); i++)
    if (published[i].version == hex >> 16)
      return read_published(offsets, &published[i], out);
  return out->version != 0;
}
