/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that embeds Python: calls before, during and after the interpreter's life.
 *
 *   embed LIBPYTHON          prints `ok NAME` or `FAIL NAME` lines
 *   embed LIBPYTHON hidden   loads it so that nobody else sees its symbols
 *
 * Python is used through dlsym alone, so one binary serves all versions.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"

static bool hidden;
static void (*initialize)(int);
static int (*run)(const char *);
static int (*finalize)(void);

#pragma GCC visibility push(default)
/* What the Python code below calls and sets. */
unsigned embed_inside, embed_at_exit, embed_at_end = 77;
char embed_dump_at_end[16384];
void embed_dump(void);
_Atomic int embed_stop;
_Atomic unsigned long embed_spins;
void embed_spin(void);
#pragma GCC visibility pop

/* A daemon thread that stays in C, without the GIL, while the interpreter ends. */
void embed_spin(void) {
  while (!atomic_load(&embed_stop)) {
    probe_id();
    atomic_fetch_add(&embed_spins, 1);
  }
}

void embed_dump(void) {
  probe_dump(embed_dump_at_end, sizeof(embed_dump_at_end));
}

static int failed;

static void check(const char *name, bool holds) {
  printf("%s embedded%s: %s\n", holds ? "ok" : "FAIL", hidden ? ", hidden" : "", name);
  fflush(stdout);
  failed |= !holds;
}

static const char program[] =
    "import atexit, ctypes, threading, time\n"
    "me = ctypes.CDLL(None)\n"
    "word = lambda name: ctypes.c_uint.in_dll(me, name)\n"
    "inside, at_exit, at_end = word('embed_inside'), word('embed_at_exit'), word('embed_at_end')\n"
    "me.probe_id.restype = ctypes.c_uint\n"
    "def probe(where, probe_id=me.probe_id):\n"
    "  where.value = probe_id()\n"
    "probe(inside)\n"
    "atexit.register(probe, at_exit)\n"
    "class Last:\n"
    "  def __init__(self): self.probe, self.where = probe, at_end\n"
    "  def __del__(self, dump=me.embed_dump):\n"
    "    self.probe(self.where)\n"
    "    dump()\n"
    "import builtins\n"
    "builtins.last = Last()\n"
    "threading.Thread(target=me.embed_spin, daemon=True).start()\n"
    "spins = ctypes.c_ulong.in_dll(me, 'embed_spins')\n"
    "while not spins.value: time.sleep(0.01)\n";

static void lives(void) {
  char text[4096];
  check("no stack before the interpreter begins", probe_id() == 0);
  check("nothing in a dump before the interpreter begins", probe_dump(text, sizeof(text)) == 0);
  initialize(0);
  check("no stack outside Python code", probe_id() == 0);
  check("the program runs", run(program) == 0);
  check("a stack inside", embed_inside != 0 && probe_text(embed_inside, text, sizeof(text)) == 2 &&
                              strstr(text, "7\tprobe\t<string>\n8\t<module>\t<string>\n"));
  check("no stack between two programs", probe_id() == 0);
  finalize();
  check("a stack in exit functions", embed_at_exit != 0 && embed_at_exit < 0xeeeeeeee);
  check("no stack in finalizers at the very end", embed_at_end == 0 || embed_at_end == 77);
  check("a dump at the very end says so",
        !embed_dump_at_end[0] || (strstr(embed_dump_at_end, "python.finalizing=") &&
                                  strstr(embed_dump_at_end, "__del__\t<string>\n")));
  text[0] = 0;
  probe_dump(text, sizeof(text));
  check("no stacks in a dump after the end", !strstr(text, "stack "));
  check("no stack after the end", probe_id() == 0);
  unsigned long before = atomic_load(&embed_spins);
  for (int i = 0; i < 10000 && atomic_load(&embed_spins) <= before; i++)
    usleep(1000);
  check("a thread that outlives the interpreter goes on", atomic_load(&embed_spins) > before);
  atomic_store(&embed_stop, 1);
}

int main(int argc, char **argv) {
  hidden = argc > 2;
  void *python = dlopen(argv[1], RTLD_NOW | (hidden ? RTLD_LOCAL : RTLD_GLOBAL));
  if (!python) {
    printf("FAIL embedded: %s\n", dlerror());
    return 1;
  }
  *(void **)&initialize = dlsym(python, "Py_InitializeEx");
  *(void **)&run = dlsym(python, "PyRun_SimpleString");
  *(void **)&finalize = dlsym(python, "Py_FinalizeEx");
  check("the interpreter is found", probe_start(384 * 1024, 16 * 1024) == 1);
  if (!hidden)
    lives();
  return failed;
}
