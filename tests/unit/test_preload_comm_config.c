/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of communicators as each release of NCCL lays them out, and as no release does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "emulated.h"
#include "nccl/nccl_config.h"
#include "preload/comm_config.h"

enum { MAGIC = 0xcafebeef };

/* Two pages of which only the first exists: nothing behind the end of what lies against it can be read unnoticed. */
static unsigned char *page_end;

static int begin(void **state) {
  (void)state;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  unsigned char *at =
      mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(at != MAP_FAILED);
  assert_int_equal(mprotect(at + page, page, PROT_NONE), 0);
  page_end = at + page;
  return 0;
}

static int forget(void **state) {
  (void)state;
  nt_comm_config_reset();
  return 0;
}

static void put_int(unsigned char *config, size_t at, int value) {
  memcpy(config + at, &value, sizeof(value));
}

static void put_pointer(unsigned char *config, size_t at, const void *value) {
  memcpy(config + at, &value, sizeof(value));
}

/* A configuration of `size` bytes against the end of what exists; all is filled with `filler`. */
static unsigned char *config_of(size_t exists, size_t size, unsigned magic, unsigned version,
                                int filler) {
  unsigned char *config = page_end - exists;
  memset(config, filler, exists);
  memcpy(config, &size, sizeof(size));
  if (exists >= NT_CONFIG_HEAD) {
    memcpy(config + 8, &magic, sizeof(magic));
    memcpy(config + 12, &version, sizeof(version));
  }
  return config;
}

static struct nt_comm_def read_of(const void *config) {
  struct nt_comm_def def = {.number = 7, .blocking = -1};
  errno = 77;
  nt_comm_config_read(config, &def);
  assert_int_equal(errno, 77);
  return def;
}

static const char *last_note(void) {
  static char text[NT_COMM_CONFIG_TEXT];
  uint32_t comm, count = nt_comm_config_count();
  if (!count)
    return "";
  assert_true(nt_comm_config_at((count < 32 ? count : 32) - 1, &comm, text));
  assert_int_equal(comm, 7);
  return text;
}

static const struct {
  const char *name;
  size_t offset, size;
  unsigned since;
} fields[] = {
#define NT_CONFIG(name, offset, type, since) {#name, offset, sizeof(type), since},
#include "nccl/nccl_config.def"
};

/* sizeof(ncclConfig_t) in the releases' own headers. */
static const struct {
  unsigned version;
  size_t size;
} releases[] = {
    {21403, 24}, {21701, 40}, {21801, 48}, {22005, 48}, {22203, 48},  {22602, 48},  {22703, 72},
    {22803, 80}, {22902, 88}, {23003, 96}, {23007, 96}, {23102, 112}, {23203, 120},
};

static void each_release_s_configuration_is_read_to_its_end(void **state) {
  (void)state;
  for (size_t r = 0; r < sizeof(releases) / sizeof(*releases); r++) {
    char wanted[1024] = "";
    size_t used = 0;
    unsigned char *config =
        config_of(releases[r].size, releases[r].size, MAGIC, releases[r].version, 0x5a);
    for (size_t f = 0; f < sizeof(fields) / sizeof(*fields); f++) {
      if (fields[f].since > releases[r].version)
        continue;
      used += (size_t)snprintf(wanted + used, sizeof(wanted) - used, "%s%s=", used ? " " : "",
                               fields[f].name);
      if (fields[f].size == sizeof(char *)) {
        put_pointer(config, fields[f].offset, fields[f].name);
        used += (size_t)snprintf(wanted + used, sizeof(wanted) - used, "%s", fields[f].name);
      } else {
        put_int(config, fields[f].offset, f == 0 ? 0 : (int)f);
        used += (size_t)snprintf(wanted + used, sizeof(wanted) - used, "%zu", f);
      }
    }
    wanted[NT_COMM_CONFIG_TEXT - 1] = 0;
    const struct nt_comm_def def = read_of(config);
    assert_string_equal(last_note(), wanted);
    assert_int_equal(def.blocking, 0);
    assert_string_equal(def.name, releases[r].version >= 22703 ? "commName" : "");
  }
}

static void what_is_left_to_nccl_is_not_noted(void **state) {
  (void)state;
  unsigned char *config = config_of(96, 96, MAGIC, 23007, 0);
  for (size_t f = 0; f < sizeof(fields) / sizeof(*fields); f++)
    if (fields[f].size == sizeof(int) && fields[f].since <= 23007)
      put_int(config, fields[f].offset, INT_MIN);
  const struct nt_comm_def def = read_of(config);
  assert_int_equal(nt_comm_config_count(), 0);
  assert_int_equal(def.blocking, -1);
  put_int(config, 24, 4);
  read_of(config);
  assert_string_equal(last_note(), "minCTAs=4");
}

/* Up to 2.25 the place of trafficClass was padding, in 2.30.3 that of graphStreamOrdering. */
static void padding_is_not_taken_for_a_newer_field(void **state) {
  (void)state;
  unsigned char *config = config_of(48, 48, MAGIC, 22005, 0x5a);
  for (size_t f = 0; f < sizeof(fields) / sizeof(*fields); f++)
    if (fields[f].since <= 22005 && fields[f].size == sizeof(int))
      put_int(config, fields[f].offset, INT_MIN);
  put_pointer(config, 32, NULL);
  read_of(config);
  assert_int_equal(nt_comm_config_count(), 0);
  config = config_of(24, 24, MAGIC, 21403, 1);
  put_int(config, 16, 1);
  assert_int_equal(read_of(config).blocking, 1);
  assert_string_equal(last_note(), "blocking=1");
}

static void a_size_smaller_than_a_field_ends_before_it(void **state) {
  (void)state;
  for (size_t size = NT_CONFIG_HEAD; size < 24; size++) {
    unsigned char *config = config_of(size, size, MAGIC, 22809, 0);
    if (size >= 20)
      put_int(config, 16, 1);
    assert_int_equal(read_of(config).blocking, size >= 20 ? 1 : -1);
  }
  assert_string_equal(last_note(), "blocking=1");
  unsigned char *config = config_of(55, 55, MAGIC, 22809, 0);
  assert_string_equal(read_of(config).name, ""); /* half a pointer */
}

static void what_is_no_configuration_is_treated_as_none(void **state) {
  SKIP_IF_EMULATED("without process_vm_readv memory is read that may not be");
  (void)state;
  assert_int_equal(read_of(NULL).blocking, -1);
  assert_int_equal(read_of((const void *)8).blocking, -1);
  assert_int_equal(read_of(page_end).blocking, -1);
  assert_int_equal(read_of(page_end - 10).blocking, -1);
  assert_int_equal(read_of(config_of(64, 64, 0xdeadbeef, 22809, 0)).blocking, -1);
  assert_int_equal(read_of(config_of(64, 0, MAGIC, 22809, 0)).blocking, -1);
  assert_int_equal(read_of(config_of(64, 15, MAGIC, 22809, 0)).blocking, -1);
  assert_int_equal(read_of(config_of(64, 64, MAGIC, 0, 0)).blocking, -1);
  /* It says more than there is. */
  assert_int_equal(read_of(config_of(24, 96, MAGIC, 23007, 0)).blocking, -1);
  assert_int_equal(read_of(config_of(24, SIZE_MAX, MAGIC, 23007, 0)).blocking, -1);
  assert_int_equal(nt_comm_config_count(), 0);
}

static void fields_of_a_newer_nccl_are_left_alone(void **state) {
  (void)state;
  unsigned char *config = config_of(4000, 4000, MAGIC, 99999, 0xff);
  for (size_t f = 0; f < sizeof(fields) / sizeof(*fields); f++)
    if (fields[f].size == sizeof(int))
      put_int(config, fields[f].offset, INT_MIN);
    else
      put_pointer(config, fields[f].offset, NULL);
  put_int(config, 40, 1);
  read_of(config);
  assert_string_equal(last_note(), "splitShare=1");
}

static void strings_are_read_as_far_as_they_can_be(void **state) {
  (void)state;
  static char names[200];
  unsigned char *config = config_of(72, 72, MAGIC, 22703, 0);
  memset(names, 'n', sizeof(names) - 1);
  put_pointer(config, 48, names);
  struct nt_comm_def def = read_of(config);
  assert_int_equal(strlen(def.name), sizeof(def.name) - 1);
  put_pointer(config, 48, (const void *)16); /* not an address */
  assert_string_equal(read_of(config).name, "");
  config = config_of(128, 72, MAGIC, 22703, 0); /* against the end: "end" without its zero */
  memcpy(page_end - 3, "end", 3);
  put_pointer(config, 48, page_end - 3);
  assert_string_equal(read_of(config).name, "end");
}

static void the_most_recent_notes_are_kept(void **state) {
  (void)state;
  unsigned char *config = config_of(24, 24, MAGIC, 21403, 0);
  char text[NT_COMM_CONFIG_TEXT];
  uint32_t comm;
  for (uint32_t i = 1; i <= 100; i++) {
    struct nt_comm_def def = {.number = i};
    nt_comm_config_read(config, &def);
  }
  assert_int_equal(nt_comm_config_count(), 100);
  assert_true(nt_comm_config_at(0, &comm, text));
  assert_int_equal(comm, 69);
  assert_true(nt_comm_config_at(31, &comm, text));
  assert_int_equal(comm, 100);
  assert_string_equal(text, "blocking=0");
  assert_false(nt_comm_config_at(32, &comm, text));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(each_release_s_configuration_is_read_to_its_end, forget),
      cmocka_unit_test_setup(what_is_left_to_nccl_is_not_noted, forget),
      cmocka_unit_test_setup(padding_is_not_taken_for_a_newer_field, forget),
      cmocka_unit_test_setup(a_size_smaller_than_a_field_ends_before_it, forget),
      cmocka_unit_test_setup(what_is_no_configuration_is_treated_as_none, forget),
      cmocka_unit_test_setup(fields_of_a_newer_nccl_are_left_alone, forget),
      cmocka_unit_test_setup(strings_are_read_as_far_as_they_can_be, forget),
      cmocka_unit_test_setup(the_most_recent_notes_are_kept, forget),
  };
  return cmocka_run_group_tests(tests, begin, NULL);
}
