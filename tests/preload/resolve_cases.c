/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users of NCCL that look its functions up by name, or come and go, one per sub-command.
 *
 * Run by tests/cli/resolve.sh, most of them with libnccltrace.so preloaded, on the simulator. Each exits with 0 if what it
 * called did what it should; what the trace has the script checks. The program links no NCCL. Memory of the simulator's
 * device is the host's.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl/nccl_types.h"

enum { COPIES = 10, THREADS = 8 };

struct nccl {
  void *handle;
  ncclResult_t (*get_id)(ncclUniqueId *);
  ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int);
  ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                             cudaStream_t);
  ncclResult_t (*bcast)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*destroy)(ncclComm_t);
  int *calls; /* of a numbered copy; NULL if it does not count */
};

static void check(int failed, const char *what) {
  if (!failed)
    return;
  printf("unexpected: %s\n", what);
  fflush(stdout);
  _exit(99);
}

static void look_up(struct nccl *nccl, void *handle) {
  nccl->handle = handle;
  *(void **)&nccl->get_id = dlsym(handle, "ncclGetUniqueId");
  *(void **)&nccl->init = dlsym(handle, "ncclCommInitRank");
  *(void **)&nccl->all_reduce = dlsym(handle, "ncclAllReduce");
  *(void **)&nccl->bcast = dlsym(handle, "ncclBcast");
  *(void **)&nccl->destroy = dlsym(handle, "ncclCommDestroy");
  check(!nccl->get_id || !nccl->init || !nccl->all_reduce || !nccl->destroy, "a missing function");
}

/* How often a numbered copy was called; NULL if it does not count. */
static int *counter_of(void *handle) {
  int *(*count)(void) = NULL;
  *(void **)&count = dlsym(handle, "numbered_count");
  return count ? count() : NULL;
}

static void open_copy(struct nccl *nccl, const char *path) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  check(!handle, path);
  look_up(nccl, handle);
  nccl->calls = counter_of(handle);
}

/* A communicator of one rank, on which `count` floats are summed; the sums must be right. */
static void use(const struct nccl *nccl, size_t count) {
  float send[1024], recv[1024] = {0};
  ncclUniqueId id;
  ncclComm_t comm;
  int before = nccl->calls ? *nccl->calls : 0;
  for (size_t i = 0; i < count; i++)
    send[i] = (float)i + 0.25f;
  check(nccl->get_id(&id), "ncclGetUniqueId");
  check(nccl->init(&comm, 1, id, 0), "ncclCommInitRank");
  check(nccl->all_reduce(send, recv, count, ncclFloat32, ncclSum, comm, NULL), "ncclAllReduce");
  check(nccl->destroy(comm), "ncclCommDestroy");
  check(memcmp(send, recv, count * sizeof(float)) != 0, "the sums");
  check(nccl->calls && *nccl->calls != before + 2, "calls went to another copy");
}

/* ---- cases: the arguments are paths of copies, or of libraries that use NCCL --------------------- */

static int by_path(int n, char **paths) {
  struct nccl copies[COPIES];
  for (int i = 0; i < n && i < COPIES; i++)
    open_copy(&copies[i], paths[i]);
  for (int i = 0; i < n && i < COPIES; i++)
    use(&copies[i], 10 + (size_t)i);
  return 0;
}

/* By their strong names: pncclX is a function of its own in a numbered copy, which does not count it. */
static int profiled(int n, char **paths) {
  struct nccl nccl;
  (void)n;
  open_copy(&nccl, paths[0]);
  const int *calls = nccl.calls, before = *calls;
  nccl.calls = NULL;
  *(void **)&nccl.get_id = dlsym(nccl.handle, "pncclGetUniqueId");
  *(void **)&nccl.all_reduce = dlsym(nccl.handle, "pncclAllReduce");
  check(!nccl.get_id || !nccl.all_reduce, "pncclX");
  use(&nccl, 12);
  check(*calls != before, "ncclX was called instead");
  return 0;
}

/* NCCL calls itself: ncclBcast is one call. */
static int nested(int n, char **paths) {
  struct nccl nccl;
  ncclUniqueId id;
  ncclComm_t comm;
  float data[4] = {1, 2, 3, 4};
  (void)n;
  open_copy(&nccl, paths[0]);
  check(nccl.get_id(&id) || nccl.init(&comm, 1, id, 0), "init");
  check(nccl.bcast(data, 4, ncclFloat32, 0, comm, NULL), "bcast");
  check(nccl.all_reduce(data, data, 3, ncclFloat32, ncclSum, comm, NULL), "all-reduce");
  check(nccl.destroy(comm), "destroy");
  return 0;
}

/* As nccl4py does: first whether somebody has it already, else by path. */
static int probe(int n, char **paths) {
  struct nccl nccl = {0};
  void *found = dlsym(RTLD_DEFAULT, "ncclAllReduce");
  void *self = dlopen(NULL, RTLD_NOW);
  (void)n;
  check(dlsym(self, "ncclAllReduce") != found, "the program's handle says otherwise");
  dlerror();
  printf("probe %s\n", found ? "found" : "NULL");
  if (found)
    look_up(&nccl, RTLD_DEFAULT);
  else
    open_copy(&nccl, paths[0]);
  use(&nccl, 7);
  return 0;
}

static int run_user(void *handle, int count) {
  int (*run)(int) = NULL;
  if (handle)
    *(void **)&run = dlsym(handle, "user_run");
  check(!run, dlerror());
  return run(count);
}

static int user_local(int n, char **paths) {
  for (int i = 0; i < n; i++)
    check(run_user(dlopen(paths[i], RTLD_NOW | RTLD_LOCAL), 10 + i), paths[i]);
  return 0;
}

/* The first is a copy that is traced, the second a library bound past everybody. */
static int user_deepbind(int n, char **paths) {
  struct nccl nccl;
  void *user = dlopen(paths[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  (void)n;
  check(run_user(user, 5), paths[1]);
  open_copy(&nccl, paths[0]);
  use(&nccl, 6);
  return 0;
}

/* The same, but its first call comes after the traced one. */
static int user_deepbind_lazy(int n, char **paths) {
  struct nccl nccl;
  void *user = dlopen(paths[1], RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
  (void)n;
  open_copy(&nccl, paths[0]);
  use(&nccl, 6);
  check(run_user(user, 5), paths[1]);
  return 0;
}

static int stay(void) {
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF)
    ;
  return 0;
}

/* The second copy is not called. */
static int stays(int n, char **paths) {
  struct nccl nccl, unused;
  (void)n;
  open_copy(&unused, paths[1]);
  open_copy(&nccl, paths[0]);
  use(&nccl, 5);
  return stay();
}

static int stays_deepbind(int n, char **paths) {
  user_deepbind(n, paths);
  return stay();
}

static int only_deepbind(int n, char **paths) {
  const char *memory = getenv("NCCL_MEMORY");
  void *user = dlopen(paths[0], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  (void)n;
  check(run_user(user, 5), paths[0]);
  if (memory) {
    int fd = open(memory, O_RDWR);
    check(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED, memory);
  }
  return stay();
}

/* A function that the copy lacks. */
static int absent(int n, char **paths) {
  void *old = dlopen(paths[0], RTLD_NOW | RTLD_LOCAL);
  (void)n;
  check(!old, paths[0]);
  errno = 77;
  void *found = dlsym(old, "ncclCommSplit");
  printf("%s, errno %d, ", found ? "found" : "NULL", errno);
  printf("%s\n", dlerror());
  dlsym(old, "no_such_thing");
  found = dlsym(old, "ncclAllReduce");
  const char *said = dlerror();
  printf("%s after an error: %s\n", found ? "found" : "NULL", said ? said : "no error");
  return 0;
}

/* Whose function the answer is: not ours. */
static int raw(int n, char **paths) {
  struct nccl nccl;
  Dl_info info = {0};
  (void)n;
  open_copy(&nccl, paths[0]);
  check(!dladdr((void *)nccl.all_reduce, &info), "no object");
  printf("%s\n", strrchr(info.dli_fname, '/') + 1);
  use(&nccl, 7);
  return 0;
}

/* Looked up and closed: gone. Called and closed: it comes back, and goes where it should. */
static int reopened(int n, char **paths) {
  struct nccl nccl;
  (void)n;
  for (int turn = 0; turn < 40; turn++) {
    const char *path = paths[turn % 2];
    open_copy(&nccl, path);
    check(dlclose(nccl.handle), "dlclose");
    check(dlopen(path, RTLD_LAZY | RTLD_NOLOAD) != NULL, "it stays though nobody calls it");
  }
  for (int turn = 0; turn < 4; turn++) {
    open_copy(&nccl, paths[turn % 2]);
    use(&nccl, 10 + (size_t)turn);
    dlclose(nccl.handle);
  }
  return 0;
}

/* Callers of different copies, that come to lie at the same addresses. */
static int callers_change(int n, char **paths) {
  void *first = NULL;
  int same = 0;
  for (int turn = 0; turn < n; turn++) {
    void *user = dlopen(paths[turn], RTLD_NOW | RTLD_LOCAL);
    check(!user, paths[turn]);
    int (*ask)(void) = NULL;
    *(void **)&ask = dlsym(user, "user_ask");
    int *calls = counter_of(user);
    int before = *calls;
    first = first ? first : (void *)ask;
    same += (void *)ask == first;
    check(ask() != 0, "ncclGetUniqueId");
    check(*calls != before + 1, "the call went to another copy");
    check(dlclose(user), "dlclose");
    check(dlopen(paths[turn], RTLD_LAZY | RTLD_NOLOAD) != NULL, "the caller was kept");
  }
  printf("same place %d of %d\n", same, n);
  return 0;
}

/* Called by tests/preload/pausing_dlclose.c when an object has just been unloaded: another one comes to lie there and calls
 * before the library has had its turn again. */
static char *arriving;
static void *left_from;

__attribute__((visibility("default"))) void resolve_unloaded(void);
void resolve_unloaded(void) {
  const char *path = arriving;
  int (*ask)(void) = NULL;
  arriving = NULL; /* what this closes is of no concern */
  if (!path)
    return;
  void *user = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  check(!user, path);
  *(void **)&ask = dlsym(user, "user_ask");
  int *calls = counter_of(user);
  for (int turn = 0; turn < 3; turn++) {
    int before = *calls;
    check(ask() != 0, "ncclGetUniqueId");
    check(*calls != before + 1, "the call went to the copy of who lay there before");
  }
  printf("same place %s\n", (void *)ask == left_from ? "yes" : "no");
}

static int caller_arrives(int n, char **paths) {
  int (*ask)(void) = NULL;
  void *user = dlopen(paths[0], RTLD_NOW | RTLD_LOCAL);
  (void)n;
  check(!user, paths[0]);
  *(void **)&ask = dlsym(user, "user_ask");
  check(ask() != 0, "ncclGetUniqueId");
  left_from = (void *)ask;
  arriving = paths[1];
  check(dlclose(user), "dlclose");
  check(arriving != NULL, "nobody saw it go");
  user = dlopen(paths[1], RTLD_NOW | RTLD_NOLOAD);
  check(!user, "who came is gone");
  *(void **)&ask = dlsym(user, "user_ask");
  int *calls = counter_of(user), before = *calls;
  check(ask() != 0 || *calls != before + 1, "later calls went to another copy");
  return 0;
}

/* A communicator of one copy, in the hands of who is bound to another: the copy that made it is called. */
static int foreign_comm(int n, char **paths) {
  struct nccl nccl, linked = {0};
  ncclUniqueId id;
  ncclComm_t comm;
  float data[5] = {1, 2, 3, 4, 5};
  (void)n;
  open_copy(&nccl, paths[0]);
  look_up(&linked, RTLD_DEFAULT);
  check(nccl.get_id(&id) || nccl.init(&comm, 1, id, 0), "init");
  int before = *nccl.calls;
  check(linked.all_reduce(data, data, 5, ncclFloat32, ncclSum, comm, NULL), "all-reduce");
  check(*nccl.calls != before + 1, "the call went to another copy");
  check(nccl.destroy(comm), "destroy");
  return 0;
}

/* By a handle of another interposer in front of us, which comes to us again. */
static int through_front(int n, char **paths) {
  struct nccl nccl = {0};
  void *front = dlopen(paths[0], RTLD_NOW | RTLD_NOLOAD);
  (void)n;
  check(!front, paths[0]);
  look_up(&nccl, RTLD_DEFAULT);
  *(void **)&nccl.all_reduce = dlsym(front, "ncclAllReduce");
  use(&nccl, 4);
  return 0;
}

/* NCCL's threads call NCCL. */
static int own_thread(int n, char **paths) {
  struct nccl nccl;
  ncclUniqueId id;
  ncclComm_t comm;
  int (*call)(void) = NULL;
  (void)n;
  open_copy(&nccl, paths[0]);
  *(void **)&call = dlsym(nccl.handle, "numbered_thread");
  check(nccl.get_id(&id) || nccl.init(&comm, 1, id, 0), "init");
  check(call(), "the thread");
  check(nccl.get_id(&id) || nccl.destroy(comm), "after");
  return 0;
}

/* The first NCCL call of one thread meets the loader's lock, which a constructor holds that calls NCCL too. */
static ncclResult_t (*first_call)(ncclUniqueId *);
static _Atomic int caller, constructing;

static void *call_first(void *unused) {
  ncclUniqueId id;
  caller = (int)syscall(SYS_gettid);
  while (!constructing)
    usleep(1000);
  check(first_call(&id), "ncclGetUniqueId");
  return unused;
}

static char state_of(int tid) {
  char path[64], text[256] = "";
  snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
  FILE *file = fopen(path, "r");
  if (file && !fgets(text, sizeof(text), file))
    text[0] = 0;
  if (file)
    fclose(file);
  const char *end = strrchr(text, ')');
  return end ? end[2] : 0;
}

static struct nccl both;
static int later; /* the constructor than the other, ns; negative: earlier */

static void spin(int nanoseconds) {
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do
    clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - begin.tv_sec) * 1000000000 + (now.tv_nsec - begin.tv_nsec) < nanoseconds);
}

static void make_one(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  check(both.get_id(&id) || both.init(&comm, 1, id, 0), "a communicator");
}

__attribute__((visibility("default"))) void plugin_constructs(void);
void plugin_constructs(void) {
  ncclUniqueId id;
  constructing = 1;
  if (both.init) {
    spin(later);
    make_one();
    return;
  }
  for (int sleeps = 0; sleeps < 20; usleep(1000)) /* not the pause before it, but the lock */
    sleeps = state_of(caller) == 'S' ? sleeps + 1 : 0;
  check(first_call(&id), "ncclGetUniqueId in a constructor");
}

static int constructor(int n, char **paths) {
  pthread_t thread;
  (void)n;
  *(void **)&first_call = dlsym(RTLD_DEFAULT, "ncclGetUniqueId");
  check(!first_call || pthread_create(&thread, NULL, call_first, NULL), "create");
  while (!caller)
    usleep(1000);
  check(!dlopen(paths[0], RTLD_NOW), paths[0]);
  pthread_join(thread, NULL);
  return 0;
}

/* Whoever has called before goes on calling while an object ends that waits for it: the loader's lock is held all the time. */
static int (*known_call)(void);

static void *call_again(void *unused) {
  check(known_call() != 0, "ncclGetUniqueId while an object ends");
  return unused;
}

__attribute__((visibility("default"))) void plugin_ends(void);
void plugin_ends(void) {
  pthread_t thread;
  check(pthread_create(&thread, NULL, call_again, NULL), "create");
  pthread_join(thread, NULL);
  puts("ended");
}

static int destructor(int n, char **paths) {
  void *user = dlopen(paths[0], RTLD_NOW | RTLD_LOCAL), *plugin = dlopen(paths[1], RTLD_NOW);
  (void)n;
  check(!user || !plugin, paths[1]);
  *(void **)&known_call = dlsym(user, "user_ask");
  call_again(NULL);
  check(dlclose(plugin), "dlclose");
  call_again(NULL);
  return 0;
}

/* Two threads make their first communicators, one of them in a constructor, at every distance of time. Each turn is a
 * process of its own; one that hangs is ended. */
static void *make_other(void *unused) {
  caller = 1;
  while (!constructing)
    ;
  spin(-later);
  make_one();
  return unused;
}

static int both_make(char *path) {
  pthread_t thread;
  caller = constructing = 0;
  alarm(10);
  check(pthread_create(&thread, NULL, make_other, NULL), "create");
  while (!caller)
    usleep(100);
  check(!dlopen(path, RTLD_NOW), path);
  pthread_join(thread, NULL);
  return 0;
}

static int first_in_constructor(int n, char **paths) {
  (void)n;
  look_up(&both, RTLD_DEFAULT);
  for (int turn = 0; turn < 48; turn++) {
    int status = 0;
    later = (turn % 24 - 8) * 50000;
    pid_t child = fork();
    if (!child)
      _exit(both_make(paths[0]));
    check(waitpid(child, &status, 0) != child || status, "the two wait for each other");
  }
  return 0;
}

struct look {
  char **paths;
  int n;
};

static void *look_up_often(void *data) {
  const struct look *look = data;
  struct nccl first[COPIES], again;
  for (int turn = 0; turn < 200; turn++)
    for (int i = 0; i < look->n; i++) {
      struct nccl *now = turn ? &again : &first[i];
      open_copy(now, look->paths[i]);
      check(now->all_reduce != first[i].all_reduce, "another entry");
      check(dlsym(RTLD_DEFAULT, "nothing_like_it") != NULL, "something");
      check(!dlsym(RTLD_DEFAULT, "malloc"), "malloc");
    }
  return NULL;
}

static int threads(int n, char **paths) {
  struct look look = {paths, n};
  pthread_t ids[THREADS];
  for (int i = 0; i < THREADS; i++)
    check(pthread_create(&ids[i], NULL, look_up_often, &look), "create");
  for (int i = 0; i < THREADS; i++)
    pthread_join(ids[i], NULL);
  return by_path(n, paths);
}

/* Each in a namespace of its own, all looked up, and the CUDA runtime, before the first is called. */
static int namespaces(int n, char **paths) {
  struct nccl copies[COPIES];
  for (int i = 0; i < n && i < COPIES; i++) {
    void *handle = dlmopen(LM_ID_NEWLM, paths[i], RTLD_NOW);
    check(!handle, paths[i]);
    look_up(&copies[i], handle);
    copies[i].calls = counter_of(handle);
  }
  void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
  check(!runtime || !dlsym(runtime, "cudaStreamSynchronize"), "the CUDA runtime");
  for (int i = 0; i < n && i < COPIES; i++)
    use(&copies[i], 10 + (size_t)i);
  return 0;
}

/* The first copies come and go, looked up and never called, while the others are looked up and called. */
enum { COMING = 4 };
static _Atomic int called_all;

static void *come_and_go(void *path) {
  while (!called_all) {
    struct nccl nccl;
    open_copy(&nccl, path);
    dlclose(nccl.handle);
  }
  return NULL;
}

static void *call_once(void *path) {
  struct nccl nccl;
  ncclUniqueId id;
  for (int turn = 0; turn < 50; turn++) {
    open_copy(&nccl, path);
    sched_yield();
    check(turn == 49 && (nccl.get_id(&id) || *nccl.calls != 1), "the call went to another copy");
    dlclose(nccl.handle);
  }
  return NULL;
}

static int comings(int n, char **paths) {
  pthread_t ids[COPIES];
  for (int i = 0; i < n && i < COPIES; i++)
    check(pthread_create(&ids[i], NULL, i < COMING ? come_and_go : call_once, paths[i]), "create");
  for (int i = COMING; i < n && i < COPIES; i++)
    pthread_join(ids[i], NULL);
  called_all = 1;
  for (int i = 0; i < n && i < COMING; i++)
    pthread_join(ids[i], NULL);
  return 0;
}

/* Every name on stdin: what it is, and what is said of it. */
static int names(int n, char **paths) {
  char name[256];
  void *handles[] = {RTLD_DEFAULT, RTLD_NEXT, dlopen(paths[0], RTLD_NOW | RTLD_LOCAL)};
  (void)n;
  while (fgets(name, sizeof(name), stdin)) {
    name[strcspn(name, "\n")] = 0;
    for (int i = 0; i < 3; i++) {
      Dl_info info;
      errno = 5;
      void *found = i == 1 ? dlsym(RTLD_NEXT, name) : dlsym(handles[i], name);
      const char *said = dlerror();
      int known = found && dladdr(found, &info);
      printf("%s %d: %s+%lx, errno %d, %s\n", name, i, known ? info.dli_fname : "nothing",
             known ? (unsigned long)((char *)found - (char *)info.dli_fbase) : 0, errno,
             said ? said : "no error");
    }
  }
  return 0;
}

static int quota(int n, char **paths) {
  int (*ask)(void) = NULL;
  *(void **)&ask = dlsym(RTLD_DEFAULT, "cuQuota");
  check(!ask || ask() != 4711, "the other hook");
  return by_path(n, paths);
}

static const struct {
  const char *name;
  int (*run)(int n, char **paths);
} cases[] = {
    {"by-path", by_path},
    {"profiled", profiled},
    {"nested", nested},
    {"probe", probe},
    {"user-local", user_local},
    {"user-deepbind", user_deepbind},
    {"user-deepbind-lazy", user_deepbind_lazy},
    {"stays", stays},
    {"stays-deepbind", stays_deepbind},
    {"only-deepbind", only_deepbind},
    {"absent", absent},
    {"raw", raw},
    {"reopened", reopened},
    {"callers-change", callers_change},
    {"caller-arrives", caller_arrives},
    {"foreign-comm", foreign_comm},
    {"through-front", through_front},
    {"own-thread", own_thread},
    {"constructor", constructor},
    {"destructor", destructor},
    {"first-in-constructor", first_in_constructor},
    {"threads", threads},
    {"namespaces", namespaces},
    {"comings", comings},
    {"names", names},
    {"quota", quota},
};

int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
    if (argc > 1 && !strcmp(argv[1], cases[i].name))
      return cases[i].run(argc - 2, argv + 2);
  fprintf(stderr, "resolve_cases: which case?\n");
  return 98;
}
