/* SPDX-License-Identifier: Apache-2.0 */
/* The file on disk: its name among attempts, whose it is, and that it keeps to its bound. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "trace/segment.h"
#include "trace_fixture.h"

static int begin(void **state) {
  static struct fixture f;
  fixture_begin(&f);
  fixture_area(&f, 512 << 10);
  *state = &f;
  return 0;
}

static int end(void **state) {
  fixture_end(*state);
  return 0;
}

static int create(struct fixture *f, uint32_t keep, struct nt_trace_file *file,
                  struct nt_error *err) {
  return nt_trace_file_create(f->area.header, f->files, 1 << 20, keep, 8192, file, err);
}

static bool exists(const struct fixture *f, const char *name) {
  char path[200];
  snprintf(path, sizeof path, "%s/%s", f->files, name);
  return access(path, F_OK) == 0;
}

static void a_file_is_private_and_named_after_its_rank(void **state) {
  struct fixture *f = *state;
  struct nt_trace_file file;
  struct nt_error err;
  struct stat st;
  snprintf(f->files, sizeof f->files, "%s/deep/er", f->root);
  assert_int_equal(create(f, 3, &file, &err), 0);
  assert_true(exists(f, "rank3.trace"));
  assert_int_equal(stat(file.path, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_int_equal(stat(f->files, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0700);
  assert_string_equal(f->area.header->file_path, file.path);
  nt_trace_file_close(&file);
  unlink(file.path);
  rmdir(f->files);
  snprintf(f->files, sizeof f->files, "%s/deep", f->root);
}

static void an_unknown_rank_is_named_after_its_process(void **state) {
  struct fixture *f = *state;
  struct nt_trace_file file;
  struct nt_error err;
  char name[32];
  f->area.header->world_rank = -1;
  assert_int_equal(create(f, 3, &file, &err), 0);
  snprintf(name, sizeof name, "pid%d.trace", (int)getpid());
  assert_true(exists(f, name));
  nt_trace_file_close(&file);
}

static void the_first_and_the_last_attempts_stay(void **state) {
  struct fixture *f = *state;
  struct nt_trace_file file;
  struct nt_error err;
  for (int attempt = 0; attempt < 7; attempt++) {
    assert_int_equal(create(f, 2, &file, &err), 0);
    nt_trace_file_close(&file);
  }
  assert_true(exists(f, "rank3.trace"));
  assert_false(exists(f, "rank3.1.trace"));
  assert_false(exists(f, "rank3.2.trace"));
  assert_false(exists(f, "rank3.3.trace"));
  assert_true(exists(f, "rank3.4.trace"));
  assert_true(exists(f, "rank3.5.trace"));
  assert_true(exists(f, "rank3.6.trace"));
}

static void a_locked_attempt_is_not_removed(void **state) {
  struct fixture *f = *state;
  struct nt_trace_file file;
  struct nt_error err;
  int ready[2], done[2];
  char byte;
  assert_int_equal(create(f, 0, &file, &err), 0);
  nt_trace_file_close(&file);
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int rc = create(f, 0, &file, &err);
    (void)!write(ready[1], "x", 1);
    (void)!read(done[0], &byte, 1);
    _exit(rc ? 1 : 0);
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  for (int attempt = 0; attempt < 3; attempt++) {
    assert_int_equal(create(f, 0, &file, &err), 0);
    nt_trace_file_close(&file);
  }
  assert_true(exists(f, "rank3.1.trace")); /* the child's */
  assert_false(exists(f, "rank3.2.trace"));
  assert_int_equal(write(done[1], "x", 1), 1);
  int status;
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  for (int i = 0; i < 2; i++) {
    close(ready[i]);
    close(done[i]);
  }
}

static void a_symbolic_link_is_not_followed(void **state) {
  struct fixture *f = *state;
  struct nt_trace_file file;
  struct nt_error err;
  char link[200], target[200];
  struct stat st;
  assert_int_equal(mkdir(f->files, 0700), 0);
  snprintf(link, sizeof link, "%s/rank3.trace", f->files);
  snprintf(target, sizeof target, "%s/precious", f->files);
  fixture_store(target, (const unsigned char *)"precious", 8);
  assert_int_equal(symlink(target, link), 0);
  assert_int_equal(create(f, 2, &file, &err), 0);
  assert_int_equal(stat(target, &st), 0);
  assert_int_equal(st.st_size, 8);
  assert_true(strstr(file.path, "rank3.1.trace") != NULL);
  nt_trace_file_close(&file);
}

static void a_directory_that_cannot_be_made_is_an_error_that_says_so(void **state) {
  struct fixture *f = *state;
  struct nt_trace_file file;
  struct nt_error err = {0};
  snprintf(f->files, sizeof f->files, "/proc/nowhere");
  assert_int_equal(create(f, 2, &file, &err), -NT_ERR_IO);
  assert_non_null(strstr(err.reason, "directory"));
  snprintf(f->files, sizeof f->files, "%s/files", f->root);
}

/* Somebody in this process closed our descriptor and opened a file of its own, which got the number. */
static void a_stolen_descriptor_is_not_written_to(void **state) {
  struct fixture *f = *state;
  struct stat st;
  fixture_drain(f, 1 << 20);
  fixture_calls(f, 10);
  nt_drain_tick(f->drain, NT_DRAIN_FLUSH);
  char path[200];
  snprintf(path, sizeof path, "%s/checkpoint", f->files);
  int stolen = -1;
  for (int fd = 3; fd < 100; fd++) {
    if (fstat(fd, &st) || st.st_ino != f->area.header->file_ino)
      continue;
    const int other = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(dup2(other, fd), fd);
    close(other);
    stolen = fd;
    break;
  }
  assert_true(stolen >= 0);
  fixture_calls(f, 10);
  assert_true(nt_drain_tick(f->drain, NT_DRAIN_FLUSH) < 0);
  assert_int_equal(atomic_load(&f->area.header->last_errno), EBADF);
  nt_drain_close(f->drain, true);
  f->drain = NULL;
  assert_int_equal(fstat(stolen, &st), 0);
  assert_int_equal(st.st_size, 0);
  close(stolen);
}

static void the_file_keeps_to_its_bound(void **state) {
  struct fixture *f = *state;
  struct stat st;
  const uint64_t bound = 4 << 20;
  fixture_drain(f, bound);
  for (int round = 0; round < 400; round++) {
    for (int i = 0; i < 500; i++) {
      const struct nt_record record = {.enter = fixture_random(),
                                       .send = fixture_random(),
                                       .count = fixture_random(),
                                       .comm = 1,
                                       .fn = 30};
      fixture_record(f, &record);
    }
    assert_int_equal(nt_drain_tick(f->drain, NT_DRAIN_FLUSH), 500);
  }
  assert_int_equal(stat(f->area.header->file_path, &st), 0);
  assert_true((uint64_t)st.st_size <= bound);
  assert_true(atomic_load(&f->area.header->overwritten) > 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(a_file_is_private_and_named_after_its_rank),
      TEST(an_unknown_rank_is_named_after_its_process),
      TEST(the_first_and_the_last_attempts_stay),
      TEST(a_locked_attempt_is_not_removed),
      TEST(a_symbolic_link_is_not_followed),
      TEST(a_directory_that_cannot_be_made_is_an_error_that_says_so),
      TEST(a_stolen_descriptor_is_not_written_to),
      TEST(the_file_keeps_to_its_bound),
  };
  return cmocka_run_group_tests_name("trace_file", tests, NULL, NULL);
}
