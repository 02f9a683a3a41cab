/* SPDX-License-Identifier: Apache-2.0 */
#include "nccltrace/dump_request.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cli/dump_text.h"
#include "cli/process_text.h"
#include "cli/text.h"
#include "trace/read_text.h"
#include "trace/ring.h"

const char *nt_outcome_name(enum nt_outcome outcome) {
  static const char *const names[] = {"written",      "not asked", "no answer", "no file",
                                      "write failed", "no access", "no dump",   "no native stacks"};
  return names[outcome];
}

static int64_t clock_now(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The outcome, with its text in the place of an earlier one. */
__attribute__((format(printf, 3, 4))) static void
conclude(struct nt_dump_request *request, enum nt_outcome outcome, const char *format, ...) {
  va_list arguments;
  free(request->text);
  request->outcome = outcome;
  va_start(arguments, format);
  if (vasprintf(&request->text, format, arguments) < 0)
    request->text = NULL;
  va_end(arguments);
}

/* ---- asking ------------------------------------------------------------------------------------- */

/* The process has a handler for the signal; nobody sends it to one that would die of it. */
static bool catches(uint32_t pid, int number) {
  char status[4096];
  nt_read_text_at(status, sizeof status, "/proc/%" PRIu32 "/status", pid);
  return number >= 1 && number <= 64 && (nt_status_signals(status, "SigCgt") >> (number - 1) & 1);
}

/* Through a descriptor of the process, so that it cannot be another one with its number by now. Returns 0 or an error
 * number; ESRCH: it is gone. */
static int send_signal(const struct nt_area *area, int number) {
  pid_t pid = (pid_t)area->header->pid;
  int error = 0, fd = -1;
#if defined SYS_pidfd_open && defined SYS_pidfd_send_signal
  fd = (int)syscall(SYS_pidfd_open, pid, 0u);
#endif
  if (!nt_area_owner_lives(area))
    error = ESRCH;
  else if (!catches((uint32_t)pid, number))
    error = ENOSYS;
#if defined SYS_pidfd_open && defined SYS_pidfd_send_signal
  else if (fd >= 0)
    error = syscall(SYS_pidfd_send_signal, fd, number, NULL, 0u) == 0 ? 0 : errno;
#endif
  else if (fd < 0)
    error = kill(pid, number) == 0 ? 0 : errno;
  if (fd >= 0)
    close(fd);
  return error;
}

static void ask_by_signal(struct nt_dump_request *request) {
  struct nt_area_header *header = request->area.header;
  int number = (int)atomic_load_explicit(&header->dump_signal, memory_order_acquire);
  if (number == 0) {
    conclude(request, NT_NO_ACCESS,
             "no signal asks it for a dump: NCCLTRACE_SIGNAL=off, it had none to spare, or the "
             "program took it for itself");
    return;
  }
  /* The handler adds one. */
  request->number =
      (atomic_load_explicit(&header->request, memory_order_acquire) >> NT_REQUEST_BITS) + 1;
  int error = send_signal(&request->area, number);
  if (error == 0)
    request->asked = true;
  else if (error == ENOSYS)
    conclude(request, NT_NO_ACCESS,
             "signal %d was not sent: the process does not handle it any more, and would die of it",
             number);
  else
    conclude(request, NT_NO_ACCESS, "signal %d could not be sent: %s", number, strerror(error));
}

static void ask_by_area(struct nt_dump_request *request, uint32_t kinds) {
  struct nt_area_header *header = request->area.header;
  request->number = nt_area_ask(header, kinds);
  request->asked = true;
  syscall(SYS_futex, &header->request, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* What tracediff is to be given where nobody answers: the directory of the job, since one rank's area tells little; the
 * area where that is not known or not to be read from here. Returns `out` or the area, escaped. */
static const char *evidence_of(const struct nt_process *process, char *out, size_t size) {
  char directory[PATH_MAX];
  nt_process_directory(process, directory, sizeof directory);
  if (directory[0] == '\0' || access(directory, R_OK | X_OK) != 0)
    return process->area;
  return nt_text_escape(out, size, directory);
}

void nt_dump_request_ask(struct nt_dump_request *request, uint32_t kinds, bool by_signal) {
  const struct nt_process_info *info = nt_trace_process(request->process->trace);
  char evidence[PATH_MAX];
  request->found = -1;
  request->dump = kinds & NT_REQUEST_DUMP;
  request->native = kinds & NT_REQUEST_NATIVE;
  if (info->state == NT_PROCESS_STOPPED) {
    conclude(
        request, NT_NOT_ASKED,
        "stopped: nothing is written; its area is complete, and is read as it is: tracediff %s",
        evidence_of(request->process, evidence, sizeof evidence));
    return;
  }
  if (!info->live) {
    conclude(request, NT_NOT_ASKED, "%s: its left-over area is read as it is: tracediff %s",
             nt_process_state_text(info->state),
             evidence_of(request->process, evidence, sizeof evidence));
    return;
  }
  int rc = nt_area_open(request->process->area, !by_signal, &request->area);
  if (rc != 0) {
    conclude(request, NT_NO_ACCESS, "its area cannot be opened%s: %s%s",
             by_signal ? "" : " for writing",
             rc == -NT_ERR_IO ? strerror(errno) : "it has changed meanwhile",
             by_signal ? "" : " (--signal asks without it)");
    return;
  }
  struct nt_area_header *header = request->area.header;
  request->open = true;
  request->write_errors = atomic_load_explicit(&header->write_errors, memory_order_relaxed);
  if (by_signal)
    ask_by_signal(request);
  else
    ask_by_area(request, kinds);
}

/* ---- waiting ------------------------------------------------------------------------------------ */

/* To a request for a dump there is an answer of its own, which comes after the flush. */
static bool is_answered(struct nt_dump_request *request, uint32_t flushed) {
  if (request->dump)
    return nt_area_find_answer(request->area.header, request->number, &request->answer);
  return nt_area_has_reached(flushed, request->number);
}

static bool has_ended(const struct nt_area *area) {
  return nt_area_is_locked(area->fd) == 0 && !nt_area_owner_lives(area);
}

static bool wait_for_answer(struct nt_dump_request *request, int64_t deadline_ns) {
  struct nt_area_header *header = request->area.header;
  _Atomic uint32_t *word = request->dump ? &header->dump_answers : &header->acknowledged;
  for (;;) {
    uint32_t answered = atomic_load_explicit(word, memory_order_acquire);
    int64_t left = deadline_ns - clock_now(CLOCK_MONOTONIC);
    if (is_answered(request, answered))
      return true;
    if (left <= 0 || has_ended(&request->area))
      return false;
    /* A helper that forgets to wake costs at most 50 ms. */
    left = left < 50000000 ? left : 50000000;
    struct timespec timeout = {.tv_sec = 0, .tv_nsec = left};
    if (syscall(SYS_futex, word, FUTEX_WAIT, answered, &timeout, NULL, 0) != 0 && errno != EAGAIN &&
        errno != ETIMEDOUT && errno != EINTR)
      nanosleep(&timeout, NULL); /* a read-only mapping may have no futex */
  }
}

static void describe_silence(struct nt_dump_request *request, int64_t timeout_ns) {
  struct nt_area_header *header = request->area.header;
  char waited[NT_DURATION_TEXT], beat[NT_DURATION_TEXT], room[PATH_MAX];
  const char *evidence = evidence_of(request->process, room, sizeof room);
  int64_t last = (int64_t)atomic_load_explicit(&header->heartbeat_ns, memory_order_relaxed);
  nt_duration_text(waited, timeout_ns);
  nt_duration_text(beat, clock_now(CLOCK_REALTIME) - last);
  if (nt_area_is_locked(request->area.fd) == 0)
    conclude(request, NT_NO_ANSWER,
             "ended meanwhile: its left-over area is read as it is: tracediff %s", evidence);
  else if (last == 0)
    conclude(request, NT_NO_ANSWER,
             "no answer in %s: its helper thread has not started; its area is read as it is: "
             "tracediff %s",
             waited, evidence);
  else
    conclude(request, NT_NO_ANSWER,
             "no answer in %s: its helper thread was last alive %s ago; its area is read as it "
             "is: tracediff %s",
             waited, beat, evidence);
}

/* ---- what came of it ---------------------------------------------------------------------------- */

/* The trace as it is after the answer, and the dump in it. */
static void read_dump(struct nt_dump_request *request) {
  const struct nt_area_header *header = request->area.header;
  struct nt_error ignored;
  request->section = atomic_load_explicit(&header->dump_section, memory_order_acquire);
  request->going = atomic_load_explicit(&header->dumps, memory_order_acquire);
  if (request->answer == NT_DUMP_NONE || request->answer == NT_DUMP_NO_THREAD)
    return;
  if (nt_trace_open(request->process->area, 0, &request->trace, &ignored) != 0) {
    request->trace = NULL;
    return;
  }
  for (size_t i = nt_trace_dump_count(request->trace); i-- > 0 && request->found < 0;)
    if (nt_trace_dump_at(request->trace, i)->number == request->answer)
      request->found = (int)i;
}

/* "; still waiting for: hardware (since 1.2 s)" and what comes after it. */
static void tell_unfinished(const struct nt_dump_request *request, FILE *out) {
  const struct nt_dump_view *dump = nt_trace_dump_at(request->trace, (size_t)request->found);
  uint32_t unfinished = nt_dump_unfinished(dump), current = request->section;
  char text[NT_DUMP_SECTIONS_TEXT], since[NT_DURATION_TEXT];
  if (request->going == dump->number && current < 32 && unfinished >> current & 1) {
    int64_t last = dump->taken_ns > dump->began_ns ? dump->taken_ns : dump->began_ns;
    fprintf(out, "; still waiting for: %s (since %s)", nt_dump_section_name(current),
            nt_duration_text(since, clock_now(CLOCK_REALTIME) - last));
    unfinished &= ~(UINT32_C(1) << current);
  }
  if (unfinished != 0)
    fprintf(out, "; not begun: %s", nt_dump_sections_text(text, sizeof text, unfinished));
}

static void describe_absence(struct nt_dump_request *request, const char *path) {
  const uint32_t number = request->answer;
  const char *section = request->section < 32 ? nt_dump_section_name(request->section) : "?";
  if (number == NT_DUMP_NO_THREAD)
    conclude(request, NT_NO_DUMP, "no dump: it has no thread for dumps; %s is written", path);
  else if (number == NT_DUMP_NONE && request->section != 0)
    conclude(request, NT_NO_DUMP, "no dump: dump %" PRIu32 " still waits for: %s; %s is written",
             request->going, section, path);
  else if (number == NT_DUMP_NONE)
    conclude(request, NT_NO_DUMP, "no dump: earlier ones took too long (ask again); %s is written",
             path);
  else if (number == request->going && request->section != 0)
    conclude(request, NT_NO_DUMP, "dump %" PRIu32 " has nothing yet; still waiting for: %s", number,
             section);
  else
    conclude(request, NT_NO_DUMP, "dump %" PRIu32 " is not in %s", number, path);
}

/* "6 threads (4 with Python stacks; native stacks: --native)". */
static void tell_extent(const struct nt_dump_view *dump, FILE *out) {
  size_t threads = 0, python = 0, native = 0;
  for (size_t i = 0; i < dump->thread_count; i++) {
    threads += dump->threads[i].kernel;
    python += dump->threads[i].python_count > 0;
    native += dump->threads[i].native_count > 0;
  }
  fprintf(out, "%zu thread%s (", threads, threads == 1 ? "" : "s");
  if (python > 0)
    fprintf(out, "%zu with Python stacks", python);
  else
    fputs("no Python stacks", out);
  if (native > 0)
    fprintf(out, ", %zu with native stacks)", native);
  else if (dump->asked >> NT_DUMP_NATIVE & 1)
    fputs(", no native stacks)", out);
  else
    fputs("; native stacks: --native)", out);
}

static bool lacks_native(const struct nt_trace *trace, size_t i) {
  const char *key, *value;
  for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++)
    if (strcmp(key, "missing.native") == 0)
      return true;
  return false;
}

/* One in front lacks the same for the same reason. */
static bool was_told(const void *ctx, const char *key, const char *value) {
  const struct nt_dump_request *request = ctx, *before = request->first;
  const char *other, *reason;
  for (; before != NULL && before < request; before++)
    for (size_t k = 0;
         before->trace != NULL && before->found >= 0 &&
         nt_trace_dump_fact_at(before->trace, (size_t)before->found, k, &other, &reason);
         k++)
      if (strcmp(other, key) == 0 && strcmp(reason, value) == 0)
        return true;
  return false;
}

static void describe_dump(struct nt_dump_request *request, const char *path) {
  char *text = NULL, *missing = NULL;
  size_t size = 0, missing_size = 0;
  read_dump(request);
  if (request->found < 0) {
    describe_absence(request, path);
    return;
  }
  FILE *out = open_memstream(&text, &size), *list = open_memstream(&missing, &missing_size);
  if (out != NULL && list != NULL) {
    const struct nt_dump_view *dump = nt_trace_dump_at(request->trace, (size_t)request->found);
    size_t count =
        nt_dump_print_missing(list, request->trace, (size_t)request->found, was_told, request);
    fflush(list);
    fprintf(out, "dump #%" PRIu32 ": ", dump->number);
    tell_extent(dump, out);
    fprintf(out, " written to %s%s%s", path, count > 0 ? "; missing: " : "", missing);
    tell_unfinished(request, out);
  }
  if (list != NULL)
    fclose(list);
  if (out != NULL && fclose(out) == 0)
    conclude(request,
             request->native && lacks_native(request->trace, (size_t)request->found) ? NT_NO_NATIVE
                                                                                     : NT_WRITTEN,
             "%s", text);
  free(missing);
  free(text);
}

/* The process is in our mount namespace, so a name is the same file for both. */
static bool sees_our_files(uint32_t pid) {
  struct stat own, its;
  char path[64];
  snprintf(path, sizeof path, "/proc/%" PRIu32 "/ns/mnt", pid);
  return stat("/proc/self/ns/mnt", &own) == 0 && stat(path, &its) == 0 && own.st_ino == its.st_ino;
}

static void describe_file(struct nt_dump_request *request) {
  struct nt_area_header *header = request->area.header;
  struct stat status;
  char path[sizeof header->file_path + 1], bytes[NT_SIZE_TEXT];
  uint64_t errors = atomic_load_explicit(&header->write_errors, memory_order_relaxed);
  uint64_t calls = nt_ring_calls(&request->area);
  int error = atomic_load_explicit(&header->last_errno, memory_order_relaxed);
  if (atomic_load_explicit(&header->file_ready, memory_order_acquire) == 0) {
    conclude(request, NT_NO_FILE,
             "it has no trace file%s%s; set NCCLTRACE_DIR to a writable "
             "directory. Its area is read as it is: tracediff %s",
             error != 0 ? ": " : "", error != 0 ? strerror(error) : "", request->process->area);
    return;
  }
  memcpy(path, header->file_path, sizeof header->file_path);
  path[sizeof header->file_path] = '\0';
  char *safe = nt_text_escape_new(path);
  const char *shown = safe != NULL ? safe : "?";
  if (errors != request->write_errors)
    conclude(request, NT_WRITE_FAILED, "%s cannot be written: %s", shown, strerror(error));
  else if (stat(path, &status) != 0 && sees_our_files(request->process->pid))
    conclude(
        request, NT_WRITE_FAILED,
        "its trace file %s has been removed: what is written to it is lost when the process ends; "
        "its area is read as it is: tracediff %s",
        shown, request->process->area);
  else if (stat(path, &status) != 0)
    conclude(request, NT_WRITTEN,
             "written to %s (the process's own name for it: not visible from here)", shown);
  else if (request->dump)
    describe_dump(request, shown);
  else
    conclude(request, NT_WRITTEN, "written to %s (%s, %" PRIu64 " call%s recorded)", shown,
             nt_bytes_text(bytes, (uint64_t)status.st_size), calls, calls == 1 ? "" : "s");
  free(safe);
}

void nt_dump_request_await(struct nt_dump_request *request, int64_t deadline_ns,
                           int64_t timeout_ns) {
  if (request->asked && wait_for_answer(request, deadline_ns))
    describe_file(request);
  else if (request->asked)
    describe_silence(request, timeout_ns);
}

json_t *nt_dump_request_json(const struct nt_dump_request *request) {
  char source[64];
  const char *key, *value;
  if (request->trace == NULL || request->found < 0)
    return json_null();
  size_t i = (size_t)request->found;
  const struct nt_dump_view *dump = nt_trace_dump_at(request->trace, i);
  json_t *missing = json_object(), *unfinished = json_array();
  json_int_t threads = 0, python = 0, native = 0;
  for (size_t t = 0; t < dump->thread_count; t++) {
    threads += dump->threads[t].kernel;
    python += dump->threads[t].python_count > 0;
    native += dump->threads[t].native_count > 0;
  }
  for (size_t k = 0; nt_trace_dump_fact_at(request->trace, i, k, &key, &value); k++)
    if (nt_dump_missing_source(source, sizeof source, key) != NULL)
      json_object_set_new(missing, source, nt_json_text(value));
  for (unsigned section = 1; section < 32; section++)
    if (nt_dump_unfinished(dump) >> section & 1)
      json_array_append_new(unfinished, json_string(nt_dump_section_name(section)));
  return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "number", (json_int_t)dump->number, "threads",
                   threads, "python_stacks", python, "native_stacks", native, "missing", missing,
                   "unfinished", unfinished);
}

void nt_dump_request_free(struct nt_dump_request *request) {
  if (request->open)
    nt_area_close(&request->area);
  nt_trace_close(request->trace);
  free(request->text);
}
