/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of the process's own memory, with and without the system call for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/dump_thread.h"

static char *pages; /* two, the second of which is not there */
static size_t page;

static uint64_t place(size_t offset) {
  return (uint64_t)(uintptr_t)pages + offset;
}

static bool reads_what_is_there(void) {
  char out[64] = "";
  return nt_dump_read(place(8), out, 5) && !memcmp(out, "hello", 5);
}

static bool refuses_what_is_not(void) {
  char out[64];
  return !nt_dump_read(place(page), out, 8) && !nt_dump_read(place(page - 4), out, 8) &&
         !nt_dump_read(0, out, 1) && !nt_dump_read(UINT64_MAX - 8, out, 4) &&
         !nt_dump_read(UINT64_C(1) << 63, out, 4);
}

static bool counts_parts(void) {
  char out[600];
  struct nt_dump_part parts[600];
  for (unsigned i = 0; i < 600; i++)
    parts[i] = (struct nt_dump_part){place(8 + i % 5), &out[i], 1};
  if (nt_dump_read_parts(parts, 600) != 600 || memcmp(out + 595, "hello", 5) != 0)
    return false;
  parts[417].address = place(page);
  return nt_dump_read_parts(parts, 600) == 417 && nt_dump_read_parts(parts, 0) == 0;
}

static void reads_do_not_fault(void **state) {
  (void)state;
  assert_true(reads_what_is_there());
  assert_true(refuses_what_is_not());
  assert_true(counts_parts());
}

/* As containers do that allow no system calls for tracing. */
static bool forbid_the_call(int error) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* 0: it works; 77: this machine has no filters. */
static int without_the_call(int error) {
  char out;
  struct iovec local = {&out, 1}, remote = {pages, 1};
  if (!forbid_the_call(error))
    return 77;
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != -1 || errno != error)
    return 1;
  if (!reads_what_is_there() || !refuses_what_is_not() || !counts_parts())
    return 2;
  int next = dup(0); /* nothing is left open */
  return next == *(int *)(void *)(pages + 64) ? 0 : 3;
}

static void reads_work_where_the_system_call_is_forbidden(void **state) {
  static const int errors[] = {EPERM, ENOSYS};
  (void)state;
  for (unsigned i = 0; i < 2; i++) {
    int status, next = dup(0);
    close(next);
    memcpy(pages + 64, &next, sizeof next);
    pid_t child = fork();
    if (!child)
      _exit(without_the_call(errors[i]));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
      skip();
    assert_int_equal(status, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_do_not_fault),
      cmocka_unit_test(reads_work_where_the_system_call_is_forbidden),
  };
  page = (size_t)sysconf(_SC_PAGESIZE);
  /* What lies behind the end of its file is not there, and nothing else can take its place. */
  int file = memfd_create("pages", MFD_CLOEXEC);
  assert_int_equal(ftruncate(file, (off_t)page), 0);
  pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  close(file);
  memcpy(pages + 8, "hello", 5);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
