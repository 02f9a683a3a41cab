/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL's own RAS (from 2.24 on) says of the job, asked as NCCL's ncclras does: lines of text over TCP, each
 * command answered by one, and STATUS by a report that ends with the connection (src/ras/client_support.cc of NCCL).
 *
 * NCCL gathers the report from all processes of the job; TIMEOUT says how long it may wait for those that do not
 * answer. A name that would have to be looked up is not: the resolver knows no deadline.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "preload/dump_parts.h"
#include "trace/clock.h"

#define DEFAULT_ADDRESS "localhost:28028"
#define QUESTION "CLIENT PROTOCOL 2\nTIMEOUT 0.4\nSTATUS\n"

enum { REPORT = 16384, ADDRESSES = 2 };

struct place {
  struct sockaddr_storage address;
  socklen_t length;
};

static bool add_place(struct place *place, const char *host, uint16_t port) {
  struct sockaddr_in *v4 = (struct sockaddr_in *)&place->address;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&place->address;
  memset(place, 0, sizeof *place);
  if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    place->length = sizeof *v4;
  } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    place->length = sizeof *v6;
  }
  return place->length != 0;
}

/* "host:port" or "[host]:port". Returns how many places it means; 0: none that can be told without a look-up. */
static unsigned parse(const char *text, struct place places[ADDRESSES]) {
  char host[256], *end;
  const char *colon = strrchr(text, ':');
  size_t length = colon ? (size_t)(colon - text) : 0;
  if (!length || length >= sizeof host)
    return 0;
  unsigned long port = strtoul(colon + 1, &end, 10);
  if (*end || !port || port > 65535)
    return 0;
  if (text[0] == '[' && text[length - 1] == ']') {
    text++;
    length -= 2;
  }
  memcpy(host, text, length);
  host[length] = 0;
  if (!strcmp(host, "localhost"))
    return add_place(&places[0], "127.0.0.1", (uint16_t)port) +
           add_place(&places[1], "::1", (uint16_t)port);
  return add_place(&places[0], host, (uint16_t)port);
}

/* Waits for `events`; false once the time is up. */
static bool ready(int fd, short events, uint64_t end_ns) {
  for (;;) {
    const uint64_t now = nt_clock_ns(CLOCK_MONOTONIC);
    struct pollfd wait = {fd, events, 0};
    if (now >= end_ns)
      return false;
    int n = poll(&wait, 1, (int)((end_ns - now) / 1000000) + 1);
    if (n > 0)
      return true;
    if (n < 0 && errno != EINTR)
      return false;
  }
}

/* Returns the descriptor, or -1 with errno. */
static int connect_to(const struct place *place, uint64_t end_ns) {
  int error = 0,
      fd = socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t size = sizeof error;
  if (fd < 0)
    return -1;
  if (connect(fd, (const struct sockaddr *)&place->address, place->length) == 0)
    return fd;
  error = errno;
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    if (ready(fd, POLLOUT, end_ns))
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (!error)
    return fd;
  close(fd);
  errno = error;
  return -1;
}

/* What was said until the end of the connection, of the time or of the room; *why: NULL if it is all. */
static size_t converse(int fd, uint64_t end_ns, char *out, size_t size, const char **why) {
  size_t sent = 0, length = 0;
  *why = "it had not finished in time";
  while (sent < strlen(QUESTION) && ready(fd, POLLOUT, end_ns)) {
    ssize_t n = send(fd, QUESTION + sent, strlen(QUESTION) - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
      *why = "the connection broke";
      return 0;
    }
    sent += n > 0 ? (size_t)n : 0;
  }
  while (length < size - 1 && ready(fd, POLLIN, end_ns)) {
    ssize_t n = recv(fd, out + length, size - 1 - length, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (n <= 0) {
      *why = n ? "the connection broke" : NULL;
      break;
    }
    length += (size_t)n;
  }
  if (length == size - 1)
    *why = "it says more than is kept";
  out[length] = 0;
  return length;
}

/* Answers to commands, lines that underline, and versions, which the evidence has already. */
static bool is_banner(const char *line) {
  static const char *const starts[] = {"SERVER PROTOCOL", "NCCL version", "CUDA runtime version"};
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
    if (!strncasecmp(line, starts[i], strlen(starts[i])))
      return true;
  return !strcmp(line, "OK") || line[strspn(line, "=- \r")] == 0;
}

static void add_report(struct nt_buffer *out, char *text, const char *address, const char *why) {
  char *save = NULL, key[32];
  unsigned count = 0;
  if (strncasecmp(text, "SERVER PROTOCOL", 15)) {
    nt_dump_add_fact(out, "missing.RAS", "what answers at %s is not RAS%s%s", address,
                     why ? ", or " : "", why ? why : "");
    return;
  }
  for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    line[strcspn(line, "\r")] = 0;
    if (is_banner(line))
      continue;
    snprintf(key, sizeof key, "ras.%u", ++count);
    nt_dump_add_fact(out, key, "%s", line);
  }
  if (why)
    nt_dump_add_fact(out, count ? "missing.RAS.rest" : "missing.RAS", "%s", why);
}

void nt_dump_ras(struct nt_buffer *out, const char *address, int milliseconds) {
  const uint64_t end_ns = nt_clock_ns(CLOCK_MONOTONIC) + (uint64_t)milliseconds * 1000000;
  struct place places[ADDRESSES];
  const char *why = NULL;
  int fd = -1;
  if (!address || !*address)
    address = DEFAULT_ADDRESS;
  const unsigned count = parse(address, places);
  if (!count) {
    nt_dump_add_fact(out, "missing.RAS", "%s is no address that needs no look-up", address);
    return;
  }
  char *text = malloc(REPORT);
  for (unsigned i = 0; text && fd < 0 && i < count; i++)
    fd = connect_to(&places[i], end_ns);
  if (fd < 0) {
    nt_dump_add_fact(out, "missing.RAS", "%s: %s", address, strerror(errno));
    free(text);
    return;
  }
  converse(fd, end_ns, text, REPORT, &why);
  close(fd);
  add_report(out, text, address, why);
  free(text);
}
