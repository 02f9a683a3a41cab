/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/evidence.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "preload/cgroup.h"
#include "preload/comm_config.h"
#include "preload/evidence_parts.h"
#include "preload/gpu_identity.h"
#include "preload/nccl_copies.h"
#include "preload/native_stack.h"
#include "preload/python_layout.h"
#include "preload/resolve.h"
#include "trace/oom_count.h"
#include "trace/read_text.h"

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
    "MV2_COMM_WORLD_",
    "JSM_NAMESPACE_",
    "FLUX_TASK_",
    "FLUX_JOB_SIZE=",
    "PADDLE_GLOBAL_",
    "PADDLE_LOCAL_RANK=",
    "PMI_",
    "PMIX_RANK=",
    "SLURM_JOB_",
    "SLURM_PROCID",
    "SLURM_NODE",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS=",
    "SLURM_RESTART_COUNT=",
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
static unsigned gpus_written, libraries_written, copies_written;
static uint32_t configs_written;
static bool python_written;

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
  struct nt_evidence_text out = {environment, environment + sizeof(environment)};
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
    nt_evidence_put(&out, key, "%s", value + 1);
  }
}

bool nt_evidence_variable(const char *name, char *out, size_t size) {
  const size_t length = strlen(name);
  for (const char *line = environment; *line; line += strcspn(line, "\n") + 1) {
    if (strncmp(line, "env.", 4) || strncmp(line + 4, name, length) || line[4 + length] != '=')
      continue;
    const char *value = line + 4 + length + 1;
    snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
    return true;
  }
  return false;
}

static void put_program(struct nt_evidence_text *out) {
  char text[4096];
  ssize_t n = readlink("/proc/self/exe", text, sizeof(text) - 1);
  if (n > 0) {
    text[n] = 0;
    nt_evidence_put(out, "exe", "%s", text);
  }
  ssize_t got = nt_read_text("/proc/self/cmdline", text, sizeof(text));
  size_t length = got > 0 ? (size_t)got : 0;
  nt_evidence_script(out, text, length);
  for (size_t i = 0; i + 1 < length; i++)
    if (!text[i])
      text[i] = ' ';
  if (length)
    nt_evidence_put(out, "cmdline", "%s", text);
  if (getcwd(text, sizeof(text)))
    nt_evidence_put(out, "cwd", "%s", text);
}

static void put_limit(struct nt_evidence_text *out, const char *key, int which) {
  struct rlimit limit;
  if (getrlimit((__rlimit_resource_t)which, &limit) != 0)
    return;
  if (limit.rlim_cur == RLIM_INFINITY)
    nt_evidence_put(out, key, "unlimited");
  else
    nt_evidence_put(out, key, "%llu", (unsigned long long)limit.rlim_cur);
}

static void put_machine(struct nt_evidence_text *out) {
  struct utsname name;
  struct statvfs shm;
  if (uname(&name) == 0) {
    nt_evidence_put(out, "kernel", "%s %s", name.sysname, name.release);
    nt_evidence_put(out, "machine", "%s", name.machine);
  }
  nt_evidence_put(out, "cpus", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
  if (statvfs("/dev/shm", &shm) == 0) {
    nt_evidence_put(out, "shm.size", "%llu", (unsigned long long)shm.f_blocks * shm.f_frsize);
    nt_evidence_put(out, "shm.free", "%llu", (unsigned long long)shm.f_bavail * shm.f_frsize);
  }
  put_limit(out, "limit.memlock", RLIMIT_MEMLOCK);
  put_limit(out, "limit.nofile", RLIMIT_NOFILE);
  put_limit(out, "limit.core", RLIMIT_CORE);
}

/* By it others can tell an out-of-memory kill (oom.h). */
static void put_cgroup(struct nt_evidence_text *out) {
  char dir[NT_CGROUP_PATH];
  struct stat group;
  int version;
  if (nt_cgroup_memory(dir, sizeof(dir), &version) != 0 || stat(dir, &group) != 0)
    return;
  nt_evidence_put(out, NT_OOM_GROUP_KEY, "%s", dir);
  nt_evidence_put(out, NT_OOM_INODE_KEY, "%llu", (unsigned long long)group.st_ino);
}

static void put_interfaces(struct nt_evidence_text *out) {
  DIR *dir = opendir("/sys/class/net");
  if (!dir)
    return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char key[300], state[32];
    if (entry->d_name[0] == '.')
      continue;
    nt_read_text_at(state, sizeof(state), "/sys/class/net/%s/operstate", entry->d_name);
    snprintf(key, sizeof(key), "net.%s", entry->d_name);
    nt_evidence_put(out, key, "%s", state);
  }
  closedir(dir);
}

static void put_gpus(struct nt_evidence_text *out) {
  const struct nt_gpu *gpu;
  for (gpus_written = 0; (gpu = nt_gpu_at(gpus_written)); gpus_written++) {
    char key[64];
    snprintf(key, sizeof(key), "gpu.%d.uuid", gpu->device);
    nt_evidence_put(out, key, "%s", gpu->uuid);
    snprintf(key, sizeof(key), "gpu.%d.pci", gpu->device);
    nt_evidence_put(out, key, "%s", gpu->pci);
    snprintf(key, sizeof(key), "gpu.%d.name", gpu->device);
    nt_evidence_put(out, key, "%s", gpu->name);
    int index = nt_evidence_gpu_index("", gpu->pci);
    snprintf(key, sizeof(key), "gpu.%d.index", gpu->device);
    if (index >= 0)
      nt_evidence_put(out, key, "%d", index);
  }
  int version = nt_gpu_driver_version();
  if (version)
    nt_evidence_put(out, "cuda.driver", "%d.%d", version / 1000, version % 1000 / 10);
  version = nt_cuda_runtime_version();
  if (version)
    nt_evidence_put(out, "cuda.runtime", "%d.%d", version / 1000, version % 1000 / 10);
}

/* One of the copies that are called; NULL if this one is not. */
static const struct nt_library *library_in(const char *path) {
  const struct nt_library *library;
  for (unsigned i = 0; (library = nt_library_at(i)); i++)
    if (nt_library_is_called(library) && library->fn[NT_FN_AllReduce] &&
        !strcmp(library->path, path))
      return library;
  return NULL;
}

static void put_copies(struct nt_evidence_text *out) {
  const struct nt_nccl_copy *copy;
  unsigned others = 0, untraced = 0;
  copies_written = nt_nccl_copies_version();
  for (unsigned i = 0; (copy = nt_nccl_copy_at(i)); i++) {
    const struct nt_library *library = library_in(copy->path);
    char key[64];
    if (library) {
      snprintf(key, sizeof(key), "nccl.%u.build_id", library->index);
    } else {
      snprintf(key, sizeof(key), "nccl.other.%u.path", others);
      nt_evidence_put(out, key, "%s", copy->path[0] ? copy->path : "the program itself");
      snprintf(key, sizeof(key), "nccl.other.%u.build_id", others++);
    }
    if (copy->build_id[0])
      nt_evidence_put(out, key, "%s", copy->build_id);
    if (!copy->bound[0])
      continue;
    snprintf(key, sizeof(key), "nccl.untraced.%u.copy", untraced);
    nt_evidence_put(out, key, "%s", copy->path[0] ? copy->path : "the program itself");
    snprintf(key, sizeof(key), "nccl.untraced.%u.by", untraced++);
    nt_evidence_put(out, key, "%s", copy->bound);
  }
}

static void put_libraries(struct nt_evidence_text *out) {
  const struct nt_library *library;
  libraries_written = nt_libraries_called();
  for (unsigned i = 0; (library = nt_library_at(i)); i++) {
    char key[64];
    if (!nt_library_is_called(library) || !library->fn[NT_FN_AllReduce])
      continue; /* only looked up, or the CUDA runtime */
    snprintf(key, sizeof(key), "nccl.%u.path", i);
    nt_evidence_put(out, key, "%s", library->path);
    snprintf(key, sizeof(key), "nccl.%u.version", i);
    /* Up to 2.8 a minor version had one digit. */
    const int major = library->version >= 10000 ? 10000 : 1000;
    if (library->version)
      nt_evidence_put(out, key, "%d.%d.%d", library->version / major,
                      library->version % major / 100, library->version % 100);
  }
}

/* How communicators were configured, as far as the application did not leave it to NCCL. */
static void put_configs(struct nt_evidence_text *out) {
  char key[64], text[NT_COMM_CONFIG_TEXT];
  uint32_t comm;
  configs_written = nt_comm_config_count();
  for (unsigned i = 0; nt_comm_config_at(i, &comm, text); i++) {
    snprintf(key, sizeof(key), "comm.%u.config", comm);
    nt_evidence_put(out, key, "%s", text);
  }
}

static void put_python(struct nt_evidence_text *out, const struct nt_settings *settings) {
  const char *version, *state;
  python_written = !settings->python || nt_python_describe(&version, &state);
  if (!settings->python) {
    nt_evidence_put(out, "python.stacks", "off: NCCLTRACE_PYTHON");
  } else if (python_written) {
    nt_evidence_put(out, "python.version", "%s", version);
    nt_evidence_put(out, "python.stacks", "%s", state);
  }
}

void nt_evidence_write(struct nt_area *area, const struct nt_settings *settings) {
  struct nt_area_header *header = area->header;
  struct nt_evidence_text out = {area->evidence, area->evidence + header->evidence_size};
  /* Readers see either length 0 or a complete text. */
  atomic_store_explicit(&header->evidence_length, 0, memory_order_release);
  nt_evidence_put(&out, "library", "libnccltrace %s", NT_VERSION);
  nt_evidence_put(&out, "host", "%s", header->host);
  nt_evidence_put(&out, "pid", "%u", header->pid);
  nt_evidence_put(&out, "area", "%s", area->path[0] ? area->path : "memory of the process only");
  nt_evidence_put(&out, "directory", "%s", settings->directory);
  nt_evidence_start(&out, header->start_time);
  put_program(&out);
  uint32_t dump_signal = atomic_load_explicit(&header->dump_signal, memory_order_relaxed);
  if (dump_signal)
    nt_evidence_put(&out, "dump.signal", "%u", dump_signal);
  put_gpus(&out);
  put_libraries(&out);
  put_copies(&out);
  put_configs(&out);
  put_python(&out, settings);
  if (nt_native_describe())
    nt_evidence_put(&out, "native.stacks", "%s", nt_native_describe());
  put_machine(&out);
  put_cgroup(&out);
  put_interfaces(&out);
  nt_evidence_infiniband(&out, "");
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
  if (!nt_gpu_at(gpus_written) && libraries_written == nt_libraries_called() &&
      copies_written == nt_nccl_copies_version() && nt_comm_config_count() == configs_written &&
      (python_written || !nt_python_describe(&version, &state)))
    return false;
  nt_evidence_write(area, settings);
  return true;
}
