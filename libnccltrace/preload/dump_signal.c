/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/dump_signal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "preload/dump_native.h"
#include "preload/log.h"
#include "preload/process.h"
#include "preload/requests.h"

enum { FIRST = 10 }; /* of the real-time signals: the lowest ones are the most used */

static int installed;

static void on_signal(int number, siginfo_t *info, void *context) {
  int saved_errno = errno;
  (void)number;
  if (!nt_native_on_signal(info, context) && nt_recording())
    nt_request(NT_REQUEST_DUMP | NT_REQUEST_SIGNAL, 0);
  errno = saved_errno;
}

static bool is_free(int number) {
  struct sigaction now;
  return sigaction(number, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
         now.sa_handler == SIG_DFL;
}

static bool install(int number) {
  struct sigaction action = {.sa_sigaction = on_signal,
                             .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  return is_free(number) && sigaction(number, &action, NULL) == 0;
}

static int choose(int wanted) {
  if (wanted < 0)
    return 0;
  if (wanted) {
    if (install(wanted))
      return wanted;
    nt_log("NCCLTRACE_SIGNAL=%d: the program uses this signal itself: no signal asks for a dump",
           wanted);
    return 0;
  }
  for (int number = SIGRTMIN + FIRST; number <= SIGRTMAX; number++)
    if (install(number))
      return number;
  return 0;
}

bool nt_dump_signal_is_ours(int number) {
  struct sigaction now;
  return sigaction(number, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
         now.sa_sigaction == on_signal;
}

int nt_dump_signal_check(void) {
  const bool ours = installed && nt_dump_signal_is_ours(installed);
  atomic_store_explicit(&nt_process.area.header->dump_signal, ours ? (uint32_t)installed : 0,
                        memory_order_release);
  return ours ? installed : -installed;
}

void nt_dump_signal_install(int wanted) {
  if (!installed)
    installed = choose(wanted);
  nt_dump_signal_check();
}
