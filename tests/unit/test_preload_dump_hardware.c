/* SPDX-License-Identifier: Apache-2.0 */
/* Links and the kernel's log: what has counted or tells of a fault, and nothing else. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fact_fixture.h"
#include "preload/dump_thread.h"
#include "preload/dump_parts.h"
#include "tree_fixture.h"

static const char *root;
static struct nt_buffer facts;

static int begin(void **state) {
  (void)state;
  root = tree_begin();
  return 0;
}

static int end(void **state) {
  (void)state;
  tree_end();
  fact_clear(&facts);
  return 0;
}

#define PORT "/sys/class/infiniband/mlx5_0/ports/1/"

static void a_port_s_state_and_its_counted_errors_are_told(void **state) {
  (void)state;
  tree_file(PORT "state", "4: ACTIVE\n");
  tree_file(PORT "phys_state", "5: LinkUp\n");
  tree_file(PORT "rate", "400 Gb/sec (4X NDR)\n");
  tree_file(PORT "link_layer", "InfiniBand\n");
  tree_file(PORT "counters/symbol_error", "0\n");
  tree_file(PORT "counters/link_downed", "3\n");
  tree_file(PORT "counters/port_xmit_wait", "12\n");
  tree_file(PORT "counters/port_rcv_data", "123456\n");
  tree_file(PORT "hw_counters/local_ack_timeout_err", "4\n");
  tree_file(PORT "hw_counters/out_of_sequence", "5\n");
  tree_file(PORT "hw_counters/rnr_nak_retry_err", "6\n");
  tree_file(PORT "hw_counters/np_cnp_sent", "7\n");
  tree_file(PORT "hw_counters/rx_write_requests", "8\n");
  tree_file(PORT "hw_counters/lifespan", "10\n");
  tree_file("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
  tree_file("/sys/class/infiniband/mlx5_1/ports/1/phys_state", "2: Polling\n");
  tree_file("/sys/class/infiniband/mlx5_1/ports/1/rate", "10 Gb/sec (4X SDR)\n");
  nt_dump_network(&facts, root);
  assert_fact(&facts, "ib.mlx5_0.1", "ACTIVE, LinkUp, 400 Gb/sec (4X NDR), InfiniBand");
  assert_fact(&facts, "ib.mlx5_1.1", "DOWN, Polling, 10 Gb/sec (4X SDR)");
  assert_fact(&facts, "ib.mlx5_0.1.link_downed", "3");
  assert_fact(&facts, "ib.mlx5_0.1.port_xmit_wait", "12");
  assert_fact(&facts, "ib.mlx5_0.1.local_ack_timeout_err", "4");
  assert_fact(&facts, "ib.mlx5_0.1.out_of_sequence", "5");
  assert_fact(&facts, "ib.mlx5_0.1.rnr_nak_retry_err", "6");
  assert_fact(&facts, "ib.mlx5_0.1.np_cnp_sent", "7");
  assert_no_fact(&facts, "ib.mlx5_0.1.symbol_error");
  assert_no_fact(&facts, "ib.mlx5_0.1.port_rcv_data");
  assert_no_fact(&facts, "ib.mlx5_0.1.rx_write_requests");
  assert_no_fact(&facts, "ib.mlx5_0.1.lifespan");
  assert_no_fact(&facts, "missing.infiniband");
  assert_fact(&facts, "infiniband", "2 devices");
}

static void an_interface_s_errors_and_retransmissions_are_told(void **state) {
  (void)state;
  tree_file("/sys/class/net/eth0/operstate", "up\n");
  tree_file("/sys/class/net/eth0/speed", "25000\n");
  tree_file("/sys/class/net/eth0/carrier_changes", "9\n");
  tree_file("/sys/class/net/eth0/statistics/rx_dropped", "17\n");
  tree_file("/sys/class/net/eth0/statistics/rx_errors", "0\n");
  tree_file("/sys/class/net/tun0/operstate", "down\n");
  tree_file("/sys/class/net/tun0/speed", "-1\n");
  tree_file("/sys/class/net/veth12ab/operstate", "up\n");
  tree_file("/sys/class/net/bonding_masters", "\n");
  tree_file("/proc/self/net/snmp", "Ip: Forwarding RetransSegs\nIp: 1 5\n"
                                   "Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs InErrs\n"
                                   "Tcp: 1 -1 4000 25 0\n");
  nt_dump_network(&facts, root);
  assert_fact(&facts, "net.eth0", "up, 25000 Mb/s");
  assert_fact(&facts, "net.eth0.carrier_changes", "9");
  assert_fact(&facts, "net.eth0.rx_dropped", "17");
  assert_no_fact(&facts, "net.eth0.rx_errors");
  assert_fact(&facts, "net.tun0", "down");
  assert_no_fact(&facts, "net.veth12ab");
  assert_no_fact(&facts, "net.bonding_masters");
  assert_fact(&facts, "tcp.retransmitted", "25");
  assert_fact(&facts, "tcp.sent", "4000");
}

static void a_network_that_cannot_be_seen_is_named(void **state) {
  (void)state;
  nt_dump_network(&facts, root);
  assert_fact(&facts, "infiniband", "0 devices");
  assert_non_null(fact(&facts, "missing.net"));
  assert_non_null(fact(&facts, "missing.tcp"));
  fact_clear(&facts);
  tree_file("/proc/self/net/snmp", "Tcp: RetransSegs\n"); /* cut short */
  nt_dump_network(&facts, root);
  assert_non_null(fact(&facts, "missing.tcp"));
}

/* The kernel's log gives one record a read; so does a pipe of packets, by its name in
 * /proc; each takes a page of it. */
static void read_log(const char *const *records, size_t count, uint64_t now_us) {
  int pair[2];
  char path[64];
  assert_int_equal(pipe2(pair, O_DIRECT), 0);
  assert_true(fcntl(pair[1], F_SETPIPE_SZ, 64 * 4096) >= (int)count * 4096);
  for (size_t i = 0; i < count; i++)
    assert_true(write(pair[1], records[i], strlen(records[i])) > 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", pair[0]);
  nt_dump_kernel_log(&facts, path, now_us);
  close(pair[0]);
  close(pair[1]);
}

static void faults_in_the_kernel_s_log_are_told_newest_first_with_their_age(void **state) {
  static const char *const records[] = {
      "6,1,1000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n",
      "6,2,2000000,-;mlx5_core 0000:ca:00.0: firmware version: 28.39\n",
      "4,3,3000000,-;mlx5_core 0000:ca:00.0 ib0: Link down\n SUBSYSTEM=pci\n DEVICE=+pci\n",
      "4,4,4000000,-;NVRM: Xid (PCI:0000:4e:00): 79, pid=8123, GPU has fallen off the bus.\n",
      "6,5,5000000,-;eth0: renamed from veth\n",
      "3,6,6000000,-;Out of memory: Killed process 8123 (python) total-vm:1kB\n",
      "4,6,6000000,-;python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0\n",
      "3,7,7000000,-;I/O error, dev nvme0n1, sector 42\n",
      "no record at all",
  };
  (void)state;
  read_log(records, sizeof records / sizeof *records, 10000000);
  assert_fact(&facts, "kernel.lines", "4");
  assert_fact(&facts, "kernel.1", "3 s ago: I/O error, dev nvme0n1, sector 42");
  assert_fact(&facts, "kernel.2",
              "4 s ago: Out of memory: Killed process 8123 (python) "
              "total-vm:1kB");
  assert_fact(&facts, "kernel.3",
              "6 s ago: NVRM: Xid (PCI:0000:4e:00): 79, pid=8123, GPU has "
              "fallen off the bus.");
  assert_fact(&facts, "kernel.4", "7 s ago: mlx5_core 0000:ca:00.0 ib0: Link down");
  assert_no_fact(&facts, "kernel.5");
}

static void of_many_faults_the_newest_twenty_are_kept(void **state) {
  char text[50][64];
  const char *records[50];
  (void)state;
  for (int i = 0; i < 50; i++) {
    snprintf(text[i], sizeof text[i], "4,%d,%d000000,-;NVRM: Xid: %d\n", i, i, i);
    records[i] = text[i];
  }
  read_log(records, 50, 50000000);
  assert_fact(&facts, "kernel.lines", "50");
  assert_fact(&facts, "kernel.1", "1 s ago: NVRM: Xid: 49");
  assert_fact(&facts, "kernel.20", "20 s ago: NVRM: Xid: 30");
  assert_no_fact(&facts, "kernel.21");
}

static void a_log_that_may_not_be_read_is_named(void **state) {
  (void)state;
  nt_dump_kernel_log(&facts, "/nonexistent/kmsg", 0);
  assert_fact(&facts, "missing.kernel-log", "/nonexistent/kmsg: No such file or directory");
  assert_int_equal(fact_count(&facts), 1);
}

static void the_section_names_what_this_machine_lacks(void **state) {
  (void)state;
  nt_dump_hardware(&facts);
  assert_true(fact(&facts, "missing.kernel-log") || fact(&facts, "kernel.lines"));
  assert_non_null(fact(&facts, "infiniband"));
  assert_fact(&facts, "missing.NVML", "no GPU of this process is known");
  assert_non_null(fact(&facts, "net.lo"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_port_s_state_and_its_counted_errors_are_told),
      TEST(an_interface_s_errors_and_retransmissions_are_told),
      TEST(a_network_that_cannot_be_seen_is_named),
      TEST(faults_in_the_kernel_s_log_are_told_newest_first_with_their_age),
      TEST(of_many_faults_the_newest_twenty_are_kept),
      TEST(a_log_that_may_not_be_read_is_named),
      TEST(the_section_names_what_this_machine_lacks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
