/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/evidence.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "preload/cgroup.h"
#include "preload/gpu_identity.h"
#include "preload/python_layout.h"
#include "preload/resolve.h"
#include "trace/oom_count.h"

extern char **environ;

static const char *const allowed[] = {
    "NCCL_",
    "NCCLTRACE_",
    "TORCH_NCCL_",
    "TORCH_DISTRIBUTED_",
    "TORCHELASTIC_",
    "CUDA_VISIBLE",
    "CUDA_DEVICE",
    "CUDA_LAUNCH",
    "CUDA_MODULE",
    "NVIDIA_VISIBLE",
    "RANK=",
    "WORLD_SIZE=",
    "LOCAL_RANK=",
    "LOCAL_WORLD_SIZE=",
    "GROUP_RANK=",
    "NODE_RANK=",
    "MASTER_ADDR=",
    "MASTER_PORT=",
    "OMPI_COMM_WORLD_",
    "PMI_",
    "PMIX_RANK=",
    "SLURM_JOB_",
    "SLURM_PROCID",
    "SLURM_NODE",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_STEP_ID",
    "UCX_",
    "FI_",
    "GLOO_",
    "PYTORCH_CUDA_ALLOC_CONF=",
    "OMP_NUM_THREADS=",
    "LD_PRELOAD=",
    "MPI_LOCALRANKID=",
};

/* Even behind an allowed prefix. */
static const char *const forbidden[] = {"TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY"};

static char environment[24 * 1024];
static unsigned gpus_written, libraries_written;
static bool python_written;

struct text {
  char *at, *end;
};

/* Appends "key=value\n" with control characters replaced; what does not fit is left out whole. */
__attribute__((format(printf, 3, 4))) static void put(struct text *out, const char *key,
                                                      const char *format, ...) {
  char value[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(value, sizeof(value), format, args);
  va_end(args);
  for (char *c = value; *c; c++)
    if ((unsigned char)*c < 32)
      *c = ' ';
  size_t room = (size_t)(out->end - out->at);
  int n = snprintf(out->at, room, "%s=%s\n", key, value);
  if (n > 0 && (size_t)n < room)
    out->at += n;
}

static bool may_be_kept(const char *variable) {
  size_t name = strcspn(variable, "=");
  for (size_t i = 0; i < sizeof(forbidden) / sizeof(*forbidden); i++) {
    const char *found = strstr(variable, forbidden[i]);
    if (found && found < variable + name)
      return false;
  }
  for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
    if (strncmp(variable, allowed[i], strlen(allowed[i])) == 0)
      return true;
  return false;
}

void nt_evidence_capture_environment(void) {
  struct text out = {environment, environment + sizeof(environment)};
  environment[0] = 0;
  for (char **variable = environ; variable && *variable; variable++) {
    char key[256];
    const char *value = strchr(*variable, '=');
    if (!value || !may_be_kept(*variable))
      continue;
    int length = (int)(value - *variable);
    if (length > 200)
      continue;
    snprintf(key, sizeof(key), "env.%.*s", length, *variable);
    put(&out, key, "%s", value + 1);
  }
}

static size_t read_file(const char *path, char *out, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
  if (fd >= 0)
    close(fd);
  out[n > 0 ? n : 0] = 0;
  return n > 0 ? (size_t)n : 0;
}

static void put_program(struct text *out) {
  char text[4096];
  ssize_t n = readlink("/proc/self/exe", text, sizeof(text) - 1);
  if (n > 0) {
    text[n] = 0;
    put(out, "exe", "%s", text);
  }
  size_t length = read_file("/proc/self/cmdline", text, 1000);
  for (size_t i = 0; i + 1 < length; i++)
    if (!text[i])
      text[i] = ' ';
  if (length)
    put(out, "cmdline", "%s", text);
  if (getcwd(text, sizeof(text)))
    put(out, "cwd", "%s", text);
}

static void put_limit(struct text *out, const char *key, int which) {
  struct rlimit limit;
  if (getrlimit((__rlimit_resource_t)which, &limit) != 0)
    return;
  if (limit.rlim_cur == RLIM_INFINITY)
    put(out, key, "unlimited");
  else
    put(out, key, "%llu", (unsigned long long)limit.rlim_cur);
}

static void put_machine(struct text *out) {
  struct utsname name;
  struct statvfs shm;
  if (uname(&name) == 0) {
    put(out, "kernel", "%s %s", name.sysname, name.release);
    put(out, "machine", "%s", name.machine);
  }
  put(out, "cpus", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
  if (statvfs("/dev/shm", &shm) == 0) {
    put(out, "shm.size", "%llu", (unsigned long long)shm.f_blocks * shm.f_frsize);
    put(out, "shm.free", "%llu", (unsigned long long)shm.f_bavail * shm.f_frsize);
  }
  put_limit(out, "limit.memlock", RLIMIT_MEMLOCK);
  put_limit(out, "limit.nofile", RLIMIT_NOFILE);
  put_limit(out, "limit.core", RLIMIT_CORE);
}

/* By it others can tell an out-of-memory kill (oom.h). */
static void put_cgroup(struct text *out) {
  char dir[NT_CGROUP_PATH];
  struct stat group;
  int version;
  if (nt_cgroup_memory(dir, sizeof(dir), &version) != 0 || stat(dir, &group) != 0)
    return;
  put(out, NT_OOM_GROUP_KEY, "%s", dir);
  put(out, NT_OOM_INODE_KEY, "%llu", (unsigned long long)group.st_ino);
}

static void put_interfaces(struct text *out) {
  DIR *dir = opendir("/sys/class/net");
  if (!dir)
    return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char path[512], key[300], state[32];
    if (entry->d_name[0] == '.')
      continue;
    snprintf(path, sizeof(path), "/sys/class/net/%s/operstate", entry->d_name);
    read_file(path, state, sizeof(state));
    state[strcspn(state, "\n")] = 0;
    snprintf(key, sizeof(key), "net.%s", entry->d_name);
    put(out, key, "%s", state);
  }
  closedir(dir);
}

static void put_gpus(struct text *out) {
  const struct nt_gpu *gpu;
  for (gpus_written = 0; (gpu = nt_gpu_at(gpus_written)); gpus_written++) {
    char key[64];
    snprintf(key, sizeof(key), "gpu.%d.uuid", gpu->device);
    put(out, key, "%s", gpu->uuid);
    snprintf(key, sizeof(key), "gpu.%d.pci", gpu->device);
    put(out, key, "%s", gpu->pci);
    snprintf(key, sizeof(key), "gpu.%d.name", gpu->device);
    put(out, key, "%s", gpu->name);
  }
  int version = nt_gpu_driver_version();
  if (version)
    put(out, "cuda.driver", "%d.%d", version / 1000, version % 1000 / 10);
}

static void put_libraries(struct text *out) {
  const struct nt_library *library;
  for (libraries_written = 0; (library = nt_library_at(libraries_written)); libraries_written++) {
    char key[64];
    if (!library->fn[NT_FN_AllReduce])
      continue; /* the CUDA runtime */
    snprintf(key, sizeof(key), "nccl.%u.path", libraries_written);
    put(out, key, "%s", library->path);
    snprintf(key, sizeof(key), "nccl.%u.version", libraries_written);
    if (library->version)
      put(out, key, "%d.%d.%d", library->version / 10000, library->version / 100 % 100,
          library->version % 100);
  }
}

static void put_python(struct text *out, const struct nt_settings *settings) {
  const char *version, *state;
  python_written = !settings->python || nt_python_describe(&version, &state);
  if (!settings->python) {
    put(out, "python.stacks", "off: NCCLTRACE_PYTHON");
  } else if (python_written) {
    put(out, "python.version", "%s", version);
    put(out, "python.stacks", "%s", state);
  }
}

void nt_evidence_write(struct nt_area *area, const struct nt_settings *settings) {
  struct nt_area_header *header = area->header;
  struct text out = {area->evidence, area->evidence + header->evidence_size};
  /* Readers see either length 0 or a complete text. */
  atomic_store_explicit(&header->evidence_length, 0, memory_order_release);
  put(&out, "library", "libnccltrace %s", NT_VERSION);
  put(&out, "host", "%s", header->host);
  put(&out, "pid", "%u", header->pid);
  put(&out, "area", "%s", area->path[0] ? area->path : "memory of the process only");
  put(&out, "directory", "%s", settings->directory);
  put_program(&out);
  uint32_t dump_signal = atomic_load_explicit(&header->dump_signal, memory_order_relaxed);
  if (dump_signal)
    put(&out, "dump.signal", "%u", dump_signal);
  put_gpus(&out);
  put_libraries(&out);
  put_python(&out, settings);
  put_machine(&out);
  put_cgroup(&out);
  put_interfaces(&out);
  size_t length = strlen(environment);
  if (length < (size_t)(out.end - out.at)) {
    memcpy(out.at, environment, length);
    out.at += length;
  }
  atomic_store_explicit(&header->evidence_length, (uint32_t)(out.at - area->evidence),
                        memory_order_release);
}

bool nt_evidence_update(struct nt_area *area, const struct nt_settings *settings) {
  const char *version, *state;
  if (!nt_gpu_at(gpus_written) && !nt_library_at(libraries_written) &&
      (python_written || !nt_python_describe(&version, &state)))
    return false;
  nt_evidence_write(area, settings);
  return true;
}
