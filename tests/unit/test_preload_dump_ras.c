/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's RAS, spoken by a server that answers as src/ras/client_support.cc of NCCL does. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fact_fixture.h"
#include "preload/dump_parts.h"
#include "trace/clock.h"

static struct nt_buffer facts;
static char address[64];

enum mode {
  WHOLE,    /* the report, then the end */
  ONE_PART, /* its first part, and then no more */
  SILENT,   /* accepts and says nothing */
  OTHER,    /* another protocol */
  ENDLESS,  /* lines for ever */
};

static const char first_part[] = "NCCL version 2.28.9 compiled with CUDA 13.0\n"
                                 "CUDA runtime version 13000, driver version 13000\n\n"
                                 "Job summary\n===========\n\n"
                                 "  Nodes  Processes         GPUs  Processes     GPUs\n"
                                 "(total)   per node  per process    (total)  (total)\n"
                                 "      1          2            1          2        2\n"
                                 "\nCommunicators...";
static const char second_part[] =
    " (0.00s)\n=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    0         1         1         2         2         2   RUNNING  MISMATCH\n"
    "\nErrors\n======\n\n"
    "#0-0 (27a079b828ff1a75) MISMATCH\n"
    "  Communicator ranks have different AllReduce operation counts\n"
    "  1 ranks have launched up to operation 6\n";

struct server {
  int listening;
  enum mode mode;
  pthread_t thread;
  char timeout[32];
  bool refused; /* a command that NCCL does not know */
};
static struct server server;

static void say(int fd, const char *text) {
  if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
    return;
}

/* True: the report was asked for. */
static bool obey(int fd, const char *command) {
  if (!strncasecmp(command, "client protocol ", 16)) {
    say(fd, "SERVER PROTOCOL 2\n");
  } else if (!strncasecmp(command, "timeout ", 8)) {
    snprintf(server.timeout, sizeof server.timeout, "%.31s", command + 8);
    say(fd, "OK\n");
  } else if (!strcasecmp(command, "status") || !strcasecmp(command, "verbose status")) {
    return true;
  } else {
    server.refused = true;
    say(fd, "ERROR: Unknown command\n");
  }
  return false;
}

static void report(int fd) {
  char byte;
  say(fd, first_part);
  if (server.mode == ENDLESS)
    while (send(fd, "line\n", 5, MSG_NOSIGNAL) == 5)
      ;
  else if (server.mode == WHOLE)
    say(fd, second_part);
  else
    while (read(fd, &byte, 1) > 0) /* until the client has gone */
      ;
}

static void *serve(void *unused) {
  char line[256];
  size_t length = 0;
  (void)unused;
  int fd = accept(server.listening, NULL, NULL);
  if (fd < 0)
    return NULL;
  if (server.mode == OTHER)
    say(fd, "HTTP/1.1 400 Bad Request\r\n\r\n");
  while (server.mode != OTHER && length < sizeof line - 1 && read(fd, line + length, 1) == 1) {
    if (server.mode == SILENT)
      continue;
    if (line[length++] != '\n')
      continue;
    line[length - 1] = 0;
    length = 0;
    if (obey(fd, line)) {
      report(fd);
      break;
    }
  }
  close(fd);
  return NULL;
}

static void start(enum mode mode) {
  struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof place;
  server =
      (struct server){.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .mode = mode};
  assert_int_equal(bind(server.listening, (struct sockaddr *)&place, sizeof place), 0);
  assert_int_equal(listen(server.listening, 4), 0);
  assert_int_equal(getsockname(server.listening, (struct sockaddr *)&place, &size), 0);
  snprintf(address, sizeof address, "localhost:%d", ntohs(place.sin_port));
  assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static int stop(void **state) {
  (void)state;
  if (server.listening > 0) {
    shutdown(server.listening, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listening);
  }
  server = (struct server){0};
  fact_clear(&facts);
  return 0;
}

static void the_report_is_told_line_by_line_without_its_banner(void **state) {
  (void)state;
  start(WHOLE);
  nt_dump_ras(&facts, address, 5000);
  assert_fact(&facts, "ras.1", "Job summary");
  assert_fact(&facts, "ras.4", "      1          2            1          2        2");
  assert_fact(&facts, "ras.5", "Communicators... (0.00s)");
  assert_fact(&facts, "ras.8", "Errors");
  assert_fact(&facts, "ras.10", "  Communicator ranks have different AllReduce operation counts");
  assert_fact(&facts, "ras.11", "  1 ranks have launched up to operation 6");
  assert_no_fact(&facts, "ras.12");
  assert_no_fact(&facts, "missing.RAS");
  assert_no_fact(&facts, "missing.RAS.rest");
  assert_false(server.refused);
  assert_string_equal(server.timeout, "0.4");
}

static void what_came_in_time_is_kept(void **state) {
  (void)state;
  start(ONE_PART);
  nt_dump_ras(&facts, address, 1000);
  assert_fact(&facts, "ras.1", "Job summary");
  assert_fact(&facts, "ras.5", "Communicators...");
  assert_fact(&facts, "missing.RAS.rest", "it had not finished in time");
}

static void a_server_that_says_nothing_or_something_else_is_named(void **state) {
  char wanted[128];
  (void)state;
  start(SILENT);
  nt_dump_ras(&facts, address, 200);
  snprintf(wanted, sizeof wanted, "what answers at %s is not RAS, or it had not finished in time",
           address);
  assert_fact(&facts, "missing.RAS", wanted);
  stop(NULL);
  start(OTHER);
  nt_dump_ras(&facts, address, 5000);
  assert_non_null(strstr(fact(&facts, "missing.RAS"), "is not RAS"));
  assert_int_equal(fact_count(&facts), 1);
}

static void a_report_without_end_is_cut(void **state) {
  (void)state;
  start(ENDLESS);
  nt_dump_ras(&facts, address, 5000);
  assert_true(facts.length < 128 * 1024);
  assert_fact(&facts, "missing.RAS.rest", "it says more than is kept");
}

static void nobody_who_listens_is_named(void **state) {
  struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof place;
  char wanted[128];
  (void)state;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* bound, but does not listen */
  assert_int_equal(bind(fd, (struct sockaddr *)&place, sizeof place), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&place, &size), 0);
  snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(place.sin_port));
  nt_dump_ras(&facts, address, 5000);
  snprintf(wanted, sizeof wanted, "%s: Connection refused", address);
  assert_fact(&facts, "missing.RAS", wanted);
  close(fd);
}

static void an_address_that_needs_a_look_up_or_is_none_is_named(void **state) {
  static const char *const bad[] = {
      "node-17.example:28028", "localhost",  "localhost:", "localhost:0", ":28028", "[::1",
      "localhost:70000",       "1.2.3:28028"};
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    nt_dump_ras(&facts, bad[i], 5000);
    assert_non_null(strstr(fact(&facts, "missing.RAS"), "is no address that needs no look-up"));
    fact_clear(&facts);
  }
}

#define TEST(name) cmocka_unit_test_teardown(name, stop)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_report_is_told_line_by_line_without_its_banner),
      TEST(what_came_in_time_is_kept),
      TEST(a_server_that_says_nothing_or_something_else_is_named),
      TEST(a_report_without_end_is_cut),
      TEST(nobody_who_listens_is_named),
      TEST(an_address_that_needs_a_look_up_or_is_none_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
