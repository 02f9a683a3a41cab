/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a trace file, so that whatever moment the writer dies at leaves a file that can be read.
 *
 * Frames are appended with pwrite and followed by a header's worth of zeros: the end of what was written.
 * A segment is reused by writing its first frame with a new epoch, which makes everything behind it void.
 * Slots alternate, so that the older copy is whole while the newer one is written. The file grows as it is
 * filled; nothing is allocated ahead, and a full disk is an error that a later write may not have.
 */
#include "trace/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "trace/segment.h"

static int io_error(void) {
  return errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? -NT_ERR_SPACE : -NT_ERR_IO;
}

/* The number could have been closed and reused by somebody else in this process. */
static int still_ours(const struct nt_trace_file *file) {
  struct stat now;
  if (fstat(file->fd, &now))
    return -NT_ERR_IO;
  if ((uint64_t)now.st_dev != file->dev || (uint64_t)now.st_ino != file->ino) {
    errno = EBADF;
    return -NT_ERR_IO;
  }
  return 0;
}

static int write_at(struct nt_trace_file *file, const void *bytes, uint64_t length,
                    uint64_t offset) {
  static const unsigned char end[NT_FRAME_HEADER];
  int rc = still_ours(file);
  if (rc)
    return rc;
  const uint64_t total = length + sizeof end;
  file->dirty = true;
  for (uint64_t done = 0; done < total;) {
    struct iovec parts[2] = {{0}};
    int count = 0;
    if (done < length)
      parts[count++] = (struct iovec){(char *)(uintptr_t)bytes + done, length - done};
    const uint64_t skip = done > length ? done - length : 0;
    parts[count++] = (struct iovec){(char *)(uintptr_t)end + skip, sizeof end - skip};
    const ssize_t wrote = pwritev(file->fd, parts, count, (off_t)(offset + done));
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0) {
      if (wrote == 0)
        errno = ENOSPC;
      /* The frames are there; only the end mark is not, and what follows is void by its epoch. */
      return done >= length ? 0 : io_error();
    }
    done += (uint64_t)wrote;
  }
  return 0;
}

uint64_t nt_trace_file_room(const struct nt_trace_file *file) {
  if (!file->epoch)
    return 0;
  const uint64_t taken = file->used + NT_FRAME_HEADER;
  return taken < file->layout.segment_size ? file->layout.segment_size - taken : 0;
}

static uint64_t segment_offset(const struct nt_trace_file *file, uint64_t epoch) {
  return file->layout.segment_offset +
         (epoch - 1) % file->layout.segment_count * file->layout.segment_size;
}

int nt_trace_file_rotate(struct nt_trace_file *file, const struct nt_buffer *frame,
                         uint64_t *retired) {
  if (frame->length + NT_FRAME_HEADER > file->layout.segment_size)
    return -NT_ERR_SPACE;
  const uint64_t epoch = file->epoch + 1;
  int rc = write_at(file, frame->data, frame->length, segment_offset(file, epoch));
  if (rc)
    return rc;
  uint64_t *calls = &file->segment_calls[(epoch - 1) % file->layout.segment_count];
  *retired = *calls;
  *calls = 0;
  file->epoch = epoch;
  file->used = frame->length;
  return 0;
}

int nt_trace_file_append(struct nt_trace_file *file, const unsigned char *frames, uint64_t length,
                         uint64_t calls) {
  if (length > nt_trace_file_room(file))
    return -NT_ERR_SPACE;
  int rc = write_at(file, frames, length, segment_offset(file, file->epoch) + file->used);
  if (rc)
    return rc;
  file->used += length;
  file->segment_calls[(file->epoch - 1) % file->layout.segment_count] += calls;
  return 0;
}

int nt_trace_file_evidence(struct nt_trace_file *file, const struct nt_buffer *frame) {
  const struct nt_layout *layout = &file->layout;
  const uint64_t version = file->evidence_version + 1;
  if (frame->length + NT_FRAME_HEADER > layout->evidence_size)
    return -NT_ERR_SPACE;
  int rc =
      write_at(file, frame->data, frame->length,
               layout->evidence_offset + version % layout->evidence_count * layout->evidence_size);
  if (!rc)
    file->evidence_version = version;
  return rc;
}

int nt_trace_file_state(struct nt_trace_file *file, const struct nt_buffer *frame) {
  const struct nt_layout *layout = &file->layout;
  const uint64_t version = file->state_version + 1;
  if (frame->length + NT_FRAME_HEADER > layout->state_size)
    return -NT_ERR_SPACE;
  int rc = write_at(file, frame->data, frame->length,
                    layout->state_offset + version % layout->state_count * layout->state_size);
  if (!rc)
    file->state_version = version;
  return rc;
}

void nt_trace_file_lift(struct nt_trace_file *file) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit))
    return;
  /* The kernel's table grows to the highest number. */
  const int end = limit.rlim_cur < 1024 ? (int)limit.rlim_cur : 1024;
  for (int least = end - 1; least > file->fd && least > end - 64; least--) {
    const int high = fcntl(file->fd, F_DUPFD_CLOEXEC, least);
    if (high < 0)
      continue;
    close(file->fd); /* and with it goes the lock */
    file->fd = high;
    (void)nt_area_lock(high);
    return;
  }
}

bool nt_trace_file_is_gone(const struct nt_trace_file *file) {
  struct stat now, there;
  char directory[sizeof file->path];
  if (fstat(file->fd, &now) != 0 || now.st_nlink != 0)
    return false;
  snprintf(directory, sizeof directory, "%s", file->path);
  char *name = strrchr(directory, '/');
  if (!name)
    return false;
  *name = 0;
  return lstat(directory, &there) == 0 ? there.st_ino != file->dir_ino : errno == ENOENT;
}

int nt_trace_file_sync(struct nt_trace_file *file) {
  if (!file->dirty)
    return 0;
  if (still_ours(file) || fdatasync(file->fd))
    return -NT_ERR_IO;
  file->dirty = false;
  return 0;
}

void nt_trace_file_close(struct nt_trace_file *file) {
  if (file->fd >= 0 && still_ours(file) == 0)
    close(file->fd);
  file->fd = -1;
}

/* ---- continuing a dead process's file ---------------------------------------------------------- */

static int refuse(struct nt_error *err, int code, const char *reason) {
  err->code = -code;
  err->offset = 0;
  snprintf(err->reason, sizeof err->reason, "%s", reason);
  return -code;
}

static uint64_t slot_version(int fd, uint64_t offset, uint32_t size, uint32_t count) {
  uint64_t newest = 0;
  for (uint32_t i = 0; i < count; i++) {
    unsigned char head[NT_FRAME_HEADER];
    struct nt_frame frame;
    if (pread(fd, head, sizeof head, (off_t)(offset + (uint64_t)i * size)) != sizeof head)
      continue;
    const int rc = nt_frame_parse(head, sizeof head, &frame);
    if ((rc == 0 || rc == -NT_ERR_TRUNCATED) && frame.epoch > newest)
      newest = frame.epoch;
  }
  return newest;
}

struct tally {
  uint64_t calls, end;
};

static int count_frame(const struct nt_frame *frame, const unsigned char *stored, uint64_t offset,
                       void *ctx) {
  struct tally *tally = ctx;
  (void)stored;
  if (frame->type == NT_FRAME_CALLS)
    tally->calls += frame->records;
  tally->end = offset + nt_frame_span(frame);
  return 0;
}

static int scan_segments(struct nt_trace_file *file, struct nt_error *err) {
  const struct nt_layout *layout = &file->layout;
  for (uint32_t i = 0; i < layout->segment_count; i++) {
    struct nt_segment segment;
    int rc = nt_segment_load(file->fd, layout, i, &segment);
    if (rc)
      return refuse(err, -rc, "a segment cannot be read");
    struct tally tally = {0};
    if (segment.epoch) {
      nt_segment_walk(&segment, count_frame, &tally, NULL);
      file->segment_calls[i] = tally.calls;
      if (segment.epoch > file->epoch && (segment.epoch - 1) % layout->segment_count == i) {
        file->epoch = segment.epoch;
        file->used = tally.end;
      }
    }
    nt_segment_free(&segment);
  }
  return 0;
}

static int check_identity(const struct nt_area_header *header, int fd, struct nt_trace_file *out,
                          struct nt_error *err) {
  unsigned char bytes[NT_SUPER_SIZE];
  struct nt_super super;
  struct stat now;
  if (fstat(fd, &now))
    return refuse(err, NT_ERR_IO, "the trace file cannot be examined");
  if (!S_ISREG(now.st_mode) || (uint64_t)now.st_dev != header->file_dev ||
      (uint64_t)now.st_ino != header->file_ino)
    return refuse(err, NT_ERR_FOREIGN, "the trace file has been replaced");
  const ssize_t got = pread(fd, bytes, sizeof bytes, 0);
  if (got < 0)
    return refuse(err, NT_ERR_IO, "the trace file cannot be read");
  int rc = nt_super_parse(bytes, (uint64_t)got, &super, err);
  if (rc)
    return rc;
  if (super.pid != header->pid || super.start_time != header->start_time ||
      super.nonce != header->nonce || super.layout.segment_count > NT_SEGMENT_COUNT)
    return refuse(err, NT_ERR_FOREIGN, "the trace file belongs to another process");
  out->layout = super.layout;
  out->dev = header->file_dev;
  out->ino = header->file_ino;
  return 0;
}

int nt_trace_file_resume(const struct nt_area_header *header, struct nt_trace_file *out,
                         struct nt_error *err) {
  memset(out, 0, sizeof *out);
  out->fd = -1;
  memcpy(out->path, header->file_path, sizeof out->path);
  out->path[sizeof out->path - 1] = 0;
  int rc = 0;
  const int fd = open(out->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return refuse(err, NT_ERR_IO, "the trace file cannot be opened");
  rc = check_identity(header, fd, out, err);
  if (rc)
    goto out;
  out->fd = fd;
  if (nt_area_lock(fd) == -NT_ERR_BUSY) {
    rc = refuse(err, NT_ERR_BUSY, "another process is writing the trace file");
    goto out;
  }
  const struct nt_layout *layout = &out->layout;
  out->evidence_version =
      slot_version(fd, layout->evidence_offset, layout->evidence_size, layout->evidence_count);
  out->state_version =
      slot_version(fd, layout->state_offset, layout->state_size, layout->state_count);
  rc = scan_segments(out, err);
out:
  if (rc) {
    close(fd);
    out->fd = -1;
  }
  return rc;
}
