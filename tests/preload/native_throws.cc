/* SPDX-License-Identifier: Apache-2.0 */
/* A C++ module that native_cases.c loads: exceptions through frames with something to destroy, and a call of NCCL. */
#include <stdexcept>
#include <string>

extern "C" __attribute__((visibility("default"))) int throw_and_catch(void (*call)());

static int destroyed;
struct guard {
  ~guard() { destroyed++; }
};

__attribute__((noinline)) static void deep(int depth, void (*call)()) {
  guard here;
  if (depth == 0) {
    call();
    throw std::runtime_error(std::string("thrown"));
  }
  deep(depth - 1, call);
}

int throw_and_catch(void (*call)()) {
  destroyed = 0;
  try {
    deep(10, call);
  } catch (const std::runtime_error &error) {
    return destroyed == 11 && std::string(error.what()) == "thrown";
  }
  return 0;
}

extern "C" __attribute__((visibility("default"))) void throw_uncaught();

void throw_uncaught() {
  throw std::runtime_error("uncaught");
}
