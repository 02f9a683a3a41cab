/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links and their counters of errors, as /sys shows them. A state is always told, a counter only if it has counted.
 * Files: Documentation/ABI/stable/sysfs-class-infiniband and testing/sysfs-class-net* of the kernel; hardware
 * counters by their names in the drivers of mlx5, irdma, bnxt_re and efa.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/dump_parts.h"
#include "trace/read_text.h"

enum { NAME = 64, INTERFACES_MAX = 64, DEVICES_MAX = 64 };

/* The name of an entry of /sys/class: no device has a longer one. False: to be passed over. */
static bool take_name(const struct dirent *entry, char name[NAME]) {
  const size_t length = strlen(entry->d_name);
  if (entry->d_name[0] == '.' || length >= NAME)
    return false;
  memcpy(name, entry->d_name, length + 1);
  return true;
}

/* Counters of traffic and settings stand beside those of errors. */
static bool counts_errors(const char *name) {
  static const char *const parts[] = {
      "err",   "discard", "drop",   "downed",  "nak",       "cnp",     "timeout",   "retrans",
      "retry", "marked",  "out_of", "overrun", "xmit_wait", "restart", "duplicate", "icrc"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strcasestr(name, parts[i]))
      return true;
  return false;
}

/* Adds "KEY.NAME" for each counter of errors in a directory. */
static void add_counters(struct nt_buffer *out, const char *key, const char *path) {
  DIR *dir = opendir(path);
  if (!dir)
    return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char name[NAME], text[64], full[3 * NAME];
    if (!take_name(entry, name) || !counts_errors(name))
      continue;
    if (nt_read_text_at(text, sizeof text, "%s/%s", path, name) <= 0 || !strtoull(text, NULL, 10))
      continue;
    snprintf(full, sizeof full, "%s.%s", key, name);
    nt_dump_add_fact(out, full, "%s", text);
  }
  closedir(dir);
}

/* "4: ACTIVE" → "ACTIVE". */
static const char *word(const char *text) {
  const char *colon = strstr(text, ": ");
  return colon ? colon + 2 : *text ? text : "unknown";
}

static void add_port(struct nt_buffer *out, const char *ports, const char *device,
                     const char *port) {
  char state[64], physical[64], rate[64], layer[64], key[2 * NAME + 8], path[1024];
  nt_read_text_at(state, sizeof state, "%s/%s/state", ports, port);
  nt_read_text_at(physical, sizeof physical, "%s/%s/phys_state", ports, port);
  nt_read_text_at(rate, sizeof rate, "%s/%s/rate", ports, port);
  nt_read_text_at(layer, sizeof layer, "%s/%s/link_layer", ports, port);
  snprintf(key, sizeof key, "ib.%s.%s", device, port);
  nt_dump_add_fact(out, key, "%s, %s, %s%s%s", word(state), word(physical), word(rate),
                   *layer ? ", " : "", layer);
  snprintf(path, sizeof path, "%s/%s/counters", ports, port);
  add_counters(out, key, path);
  snprintf(path, sizeof path, "%s/%s/hw_counters", ports, port);
  add_counters(out, key, path);
}

static void add_infiniband(struct nt_buffer *out, const char *root) {
  char path[512];
  unsigned devices = 0;
  snprintf(path, sizeof path, "%s/sys/class/infiniband", root);
  DIR *dir = opendir(path);
  const int error = errno;
  for (struct dirent *entry; dir && devices < DEVICES_MAX && (entry = readdir(dir));) {
    char device[NAME], port[NAME], ports[768];
    if (!take_name(entry, device))
      continue;
    devices++;
    snprintf(ports, sizeof ports, "%s/%s/ports", path, device);
    DIR *inner = opendir(ports);
    for (struct dirent *at; inner && (at = readdir(inner));)
      if (take_name(at, port))
        add_port(out, ports, device, port);
    if (inner)
      closedir(inner);
  }
  if (dir)
    closedir(dir);
  else if (error != ENOENT)
    nt_dump_add_fact(out, "missing.infiniband", "/sys/class/infiniband: %s", strerror(error));
  nt_dump_add_fact(out, "infiniband", "%u devices", devices);
}

static void add_interface(struct nt_buffer *out, const char *net, const char *name) {
  static const char *const counters[] = {"rx_errors", "tx_errors", "rx_dropped", "tx_dropped"};
  char state[32], speed[32], text[64], key[2 * NAME];
  nt_read_text_at(state, sizeof state, "%s/%s/operstate", net, name);
  /* -1, or an error, where the interface has none. */
  nt_read_text_at(speed, sizeof speed, "%s/%s/speed", net, name);
  snprintf(key, sizeof key, "net.%s", name);
  if (atol(speed) > 0)
    nt_dump_add_fact(out, key, "%s, %s Mb/s", *state ? state : "unknown", speed);
  else
    nt_dump_add_fact(out, key, "%s", *state ? state : "unknown");
  snprintf(key, sizeof key, "net.%s.carrier_changes", name);
  if (nt_read_text_at(text, sizeof text, "%s/%s/carrier_changes", net, name) > 0 && atol(text) > 0)
    nt_dump_add_fact(out, key, "%s", text);
  for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
    snprintf(key, sizeof key, "net.%s.%s", name, counters[i]);
    if (nt_read_text_at(text, sizeof text, "%s/%s/statistics/%s", net, name, counters[i]) > 0 &&
        atoll(text) > 0)
      nt_dump_add_fact(out, key, "%s", text);
  }
}

/* One end of a container's link each; a node has hundreds. */
static bool is_container_link(const char *name) {
  return !strncmp(name, "veth", 4) || !strncmp(name, "cali", 4) || !strncmp(name, "lxc", 3);
}

static void add_interfaces(struct nt_buffer *out, const char *root) {
  char net[512];
  unsigned count = 0;
  snprintf(net, sizeof net, "%s/sys/class/net", root);
  DIR *dir = opendir(net);
  if (!dir) {
    nt_dump_add_fact(out, "missing.net", "/sys/class/net: %s", strerror(errno));
    return;
  }
  for (struct dirent *entry; (entry = readdir(dir));) {
    char name[NAME];
    if (take_name(entry, name) && strcmp(name, "bonding_masters") && !is_container_link(name) &&
        count++ < INTERFACES_MAX)
      add_interface(out, net, name);
  }
  closedir(dir);
  if (count > INTERFACES_MAX)
    nt_dump_add_fact(out, "missing.net", "%u of %u interfaces", count - INTERFACES_MAX, count);
}

/* Two lines "Tcp:", names and then numbers (proc_pid_net(5)). */
static bool find_tcp(char *text, const char *wanted, unsigned long long *value) {
  char *names = strstr(text, "Tcp: "), *values = names ? strstr(names + 1, "\nTcp: ") : NULL;
  if (!values)
    return false;
  names += 5;
  values += 6;
  while (*names && *names != '\n') {
    const size_t length = strcspn(names, " \n");
    if (length == strlen(wanted) && !strncmp(names, wanted, length)) {
      *value = strtoull(values, NULL, 10);
      return true;
    }
    names += length + (names[length] == ' ');
    values += strcspn(values, " \n");
    values += *values == ' ';
  }
  return false;
}

static void add_tcp(struct nt_buffer *out, const char *root) {
  char text[8192];
  unsigned long long value;
  nt_read_text_at(text, sizeof text, "%s/proc/self/net/snmp", root);
  if (!find_tcp(text, "RetransSegs", &value)) {
    nt_dump_add_fact(out, "missing.tcp", "/proc/self/net/snmp has no count of TCP");
    return;
  }
  nt_dump_add_fact(out, "tcp.retransmitted", "%llu", value);
  if (find_tcp(text, "OutSegs", &value))
    nt_dump_add_fact(out, "tcp.sent", "%llu", value);
}

void nt_dump_network(struct nt_buffer *out, const char *root) {
  add_infiniband(out, root);
  add_interfaces(out, root);
  add_tcp(out, root);
}
