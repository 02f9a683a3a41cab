/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of the process's own memory, for dumps: by process_vm_readv, or, where a container forbids that call, from
 * /proc/self/mem.
 *
 * The file is open for the length of one read: the dump thread shares the application's descriptors (the driver's are
 * among them), and what stood open there would be a child's after a fork.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/dump_thread.h"

enum { AT_ONCE = 256 };
_Static_assert(AT_ONCE <= IOV_MAX, "the kernel takes so many at once");

static _Atomic bool refused; /* process_vm_readv, in this process */

static bool is_refusal(int error) {
  return error == EPERM || error == ENOSYS || error == EACCES;
}

/* Parts read whole, up to the first that was not; -1: the call is not allowed here. */
static int read_at_once(const struct nt_dump_part *parts, unsigned count) {
  struct iovec local[AT_ONCE], remote[AT_ONCE];
  for (unsigned i = 0; i < count; i++) {
    local[i] = (struct iovec){parts[i].out, parts[i].length};
    remote[i] = (struct iovec){(void *)(uintptr_t)parts[i].address, parts[i].length};
  }
  ssize_t got = process_vm_readv(getpid(), local, count, remote, count, 0);
  if (got < 0)
    return is_refusal(errno) ? -1 : 0;
  unsigned whole = 0;
  while (whole < count && (size_t)got >= parts[whole].length)
    got -= (ssize_t)parts[whole++].length;
  return (int)whole;
}

static unsigned read_from_file(const struct nt_dump_part *parts, unsigned count) {
  unsigned whole = 0;
  int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  while (whole < count && pread(fd, parts[whole].out, parts[whole].length,
                                (off_t)parts[whole].address) == (ssize_t)parts[whole].length)
    whole++;
  close(fd);
  return whole;
}

unsigned nt_dump_read_parts(const struct nt_dump_part *parts, unsigned count) {
  unsigned whole = 0;
  while (whole < count && !atomic_load_explicit(&refused, memory_order_relaxed)) {
    unsigned wanted = count - whole < AT_ONCE ? count - whole : AT_ONCE;
    int got = read_at_once(parts + whole, wanted);
    if (got < 0) {
      atomic_store_explicit(&refused, true, memory_order_relaxed);
      break;
    }
    whole += (unsigned)got;
    if ((unsigned)got < wanted)
      return whole;
  }
  return whole == count ? whole : whole + read_from_file(parts + whole, count - whole);
}

/* Also in threads of the application, whose stacks may be small. */
bool nt_dump_read(uint64_t address, void *out, size_t length) {
  struct nt_dump_part part = {address, out, length};
  if (!atomic_load_explicit(&refused, memory_order_relaxed)) {
    struct iovec local = {out, length}, remote = {(void *)(uintptr_t)address, length};
    ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got >= 0 || !is_refusal(errno))
      return got == (ssize_t)length;
    atomic_store_explicit(&refused, true, memory_order_relaxed);
  }
  return read_from_file(&part, 1) == 1;
}
