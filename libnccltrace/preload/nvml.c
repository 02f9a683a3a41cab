/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything is asked by name and left out where the version or the GPU has it not: a fault is what matters, and a
 * lost GPU says so in its answers.
 */
#include "preload/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "preload/fork_gate.h"

enum { LINKS = 36 /* NVML_NVLINK_MAX_LINKS */, KEY = 64 };

/* One GPU while it is asked. */
struct subject {
  struct nt_buffer *out;
  void *nvml;
  nt_nvml_device device;
  int number; /* CUDA's */
  int fault;  /* the first answer that tells of a broken GPU */
};

static const char *error_text(void *nvml, int error) {
  const char *(*text)(int) = NULL;
  *(void **)&text = dlsym(nvml, "nvmlErrorString");
  const char *found = text ? text(error) : NULL;
  return found ? found : "no text for the error";
}

/* False if the GPU has no answer. */
static bool worked(struct subject *gpu, int result) {
  if (!gpu->fault && (result == NT_NVML_GPU_IS_LOST || result == NT_NVML_RESET_REQUIRED))
    gpu->fault = result;
  return result == NT_NVML_SUCCESS;
}

static const char *key_of(char key[KEY], const struct subject *gpu, const char *name) {
  snprintf(key, KEY, "gpu.%d.%s", gpu->number, name);
  return key;
}

/* Functions that all have the same form. */
static bool ask_number(struct subject *gpu, const char *function, unsigned *value) {
  nt_nvml_number ask = NULL;
  *(void **)&ask = dlsym(gpu->nvml, function);
  return ask && worked(gpu, ask(gpu->device, value));
}

static void add_clocks(struct subject *gpu) {
  /* nvmlClocksEventReason*, nvmlClocksThrottleReason* */
  static const struct {
    unsigned long long bit;
    const char *word;
  } reasons[] = {
      {0x01, "idle"},
      {0x02, "application clocks"},
      {0x04, "power cap"},
      {0x08, "hardware slowdown"},
      {0x10, "sync boost"},
      {0x20, "thermal slowdown by software"},
      {0x40, "thermal slowdown by hardware"},
      {0x80, "power brake"},
      {0x100, "display clocks"},
  };
  int (*ask)(nt_nvml_device, unsigned long long *) = NULL;
  int (*clock)(nt_nvml_device, int, unsigned *) = NULL;
  unsigned long long bits = 0;
  unsigned mhz;
  char text[256] = "", key[KEY];
  *(void **)&ask = dlsym(gpu->nvml, "nvmlDeviceGetCurrentClocksEventReasons");
  if (!ask)
    *(void **)&ask = dlsym(gpu->nvml, "nvmlDeviceGetCurrentClocksThrottleReasons");
  if (ask && worked(gpu, ask(gpu->device, &bits))) {
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
      if (bits & reasons[i].bit)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? ", " : "",
                 reasons[i].word);
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "clocks.held_by"), "%s", *text ? text : "nothing");
  }
  *(void **)&clock = dlsym(gpu->nvml, "nvmlDeviceGetClockInfo");
  if (clock && worked(gpu, clock(gpu->device, 1 /* NVML_CLOCK_SM */, &mhz)))
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "clocks.sm"), "%u MHz", mhz);
}

static void add_heat(struct subject *gpu) {
  int (*temperature)(nt_nvml_device, int, unsigned *) = NULL;
  unsigned celsius, milliwatts, limit;
  char key[KEY];
  *(void **)&temperature = dlsym(gpu->nvml, "nvmlDeviceGetTemperature");
  if (temperature && worked(gpu, temperature(gpu->device, 0 /* NVML_TEMPERATURE_GPU */, &celsius)))
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "temperature"), "%u C", celsius);
  if (!ask_number(gpu, "nvmlDeviceGetPowerUsage", &milliwatts))
    return;
  if (ask_number(gpu, "nvmlDeviceGetEnforcedPowerLimit", &limit))
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "power"), "%u of %u W", milliwatts / 1000,
                     limit / 1000);
  else
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "power"), "%u W", milliwatts / 1000);
}

static void add_memory_errors(struct subject *gpu) {
  static const char *const names[] = {"ecc.corrected", "ecc.uncorrected"};
  int (*errors)(nt_nvml_device, int, int, unsigned long long *) = NULL;
  int (*remapped)(nt_nvml_device, unsigned *, unsigned *, unsigned *, unsigned *) = NULL;
  unsigned corrected, uncorrected, pending, failed;
  char key[KEY];
  *(void **)&errors = dlsym(gpu->nvml, "nvmlDeviceGetTotalEccErrors");
  for (int kind = 0; errors && kind < 2; kind++) {
    unsigned long long count;
    if (worked(gpu, errors(gpu->device, kind, 0 /* NVML_VOLATILE_ECC */, &count)))
      nt_dump_add_fact(gpu->out, key_of(key, gpu, names[kind]), "%llu", count);
  }
  if (ask_number(gpu, "nvmlDeviceGetRetiredPagesPendingStatus", &pending))
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "pages.retiring"), "%s", pending ? "yes" : "no");
  *(void **)&remapped = dlsym(gpu->nvml, "nvmlDeviceGetRemappedRows");
  if (remapped && worked(gpu, remapped(gpu->device, &corrected, &uncorrected, &pending, &failed)))
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "rows.remapped"), "%u%s%s", corrected + uncorrected,
                     pending ? ", more at the next reset" : "", failed ? ", one failed" : "");
}

static void add_use(struct subject *gpu) {
  int (*utilisation)(nt_nvml_device, unsigned *) = NULL;
  int (*memory)(nt_nvml_device, unsigned long long *) = NULL;
  int (*processes)(nt_nvml_device, unsigned *, void *) = NULL;
  unsigned percent[2];         /* nvmlUtilization_t: GPU, memory */
  unsigned long long bytes[3]; /* nvmlMemory_t: total, free, used */
  char key[KEY];
  *(void **)&utilisation = dlsym(gpu->nvml, "nvmlDeviceGetUtilizationRates");
  if (utilisation && worked(gpu, utilisation(gpu->device, percent)))
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "busy"), "%u %%", percent[0]);
  *(void **)&memory = dlsym(gpu->nvml, "nvmlDeviceGetMemoryInfo");
  if (memory && worked(gpu, memory(gpu->device, bytes))) {
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "memory"), "%llu", bytes[0]);
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "memory.used"), "%llu", bytes[2]);
  }
  /* Without room it answers with the count alone, whatever the layout of the version's rows. */
  *(void **)&processes = dlsym(gpu->nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (!processes)
    *(void **)&processes = dlsym(gpu->nvml, "nvmlDeviceGetComputeRunningProcesses");
  unsigned count = 0;
  int result = processes ? processes(gpu->device, &count, NULL) : -1;
  if (worked(gpu, result) || result == NT_NVML_INSUFFICIENT_SIZE)
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "processes"), "%u", count);
}

static void add_pcie(struct subject *gpu) {
  unsigned generation, width, most_generation = 0, most_width = 0, replays;
  char key[KEY];
  if (ask_number(gpu, "nvmlDeviceGetCurrPcieLinkGeneration", &generation) &&
      ask_number(gpu, "nvmlDeviceGetCurrPcieLinkWidth", &width)) {
    ask_number(gpu, "nvmlDeviceGetMaxPcieLinkGeneration", &most_generation);
    ask_number(gpu, "nvmlDeviceGetMaxPcieLinkWidth", &most_width);
    if (most_generation && most_width)
      nt_dump_add_fact(gpu->out, key_of(key, gpu, "pcie"), "generation %u x%u of generation %u x%u",
                       generation, width, most_generation, most_width);
    else
      nt_dump_add_fact(gpu->out, key_of(key, gpu, "pcie"), "generation %u x%u", generation, width);
  }
  if (ask_number(gpu, "nvmlDeviceGetPcieReplayCounter", &replays))
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "pcie.replays"), "%u", replays);
}

static void add_link_errors(struct subject *gpu, unsigned link) {
  /* nvmlNvLinkErrorCounter_t */
  static const char *const names[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
  int (*counter)(nt_nvml_device, unsigned, int, unsigned long long *) = NULL;
  *(void **)&counter = dlsym(gpu->nvml, "nvmlDeviceGetNvLinkErrorCounter");
  for (int i = 0; counter && i < (int)(sizeof names / sizeof *names); i++) {
    unsigned long long count = 0;
    char key[KEY], name[KEY / 2];
    if (!worked(gpu, counter(gpu->device, link, i, &count)) || !count)
      continue;
    snprintf(name, sizeof name, "nvlink.%u.%s", link, names[i]);
    nt_dump_add_fact(gpu->out, key_of(key, gpu, name), "%llu", count);
  }
}

static void add_links(struct subject *gpu) {
  int (*state)(nt_nvml_device, unsigned, unsigned *) = NULL;
  unsigned links = 0, up = 0;
  char down[4 * LINKS + 16] = "", key[KEY];
  *(void **)&state = dlsym(gpu->nvml, "nvmlDeviceGetNvLinkState");
  for (unsigned link = 0; state && link < LINKS; link++) {
    unsigned active = 0;
    if (!worked(gpu, state(gpu->device, link, &active)))
      continue; /* it has fewer */
    links++;
    up += active != 0;
    if (!active)
      snprintf(down + strlen(down), sizeof down - strlen(down), "%s%u", *down ? " " : ", without ",
               link);
    else
      add_link_errors(gpu, link);
  }
  if (links)
    nt_dump_add_fact(gpu->out, key_of(key, gpu, "nvlink"), "%u of %u links are up%s", up, links,
                     down);
}

static void ask_gpu(struct nt_buffer *out, void *nvml, const struct nt_gpu *which) {
  struct subject gpu = {.out = out, .nvml = nvml, .number = which->device};
  int (*find)(const char *, nt_nvml_device *) = NULL;
  char key[KEY];
  snprintf(key, sizeof key, "missing.gpu.%d", which->device);
  *(void **)&find = dlsym(nvml, "nvmlDeviceGetHandleByPciBusId_v2");
  if (!find || !which->pci[0]) {
    nt_dump_add_fact(out, key, "%s", find ? "its PCI id is not known" : "NVML is too old");
    return;
  }
  int result = find(which->pci, &gpu.device);
  if (result != NT_NVML_SUCCESS) {
    nt_dump_add_fact(out, key, "NVML on %s: %s", which->pci, error_text(nvml, result));
    return;
  }
  add_heat(&gpu);
  add_clocks(&gpu);
  add_memory_errors(&gpu);
  add_use(&gpu);
  add_pcie(&gpu);
  add_links(&gpu);
  if (gpu.fault)
    nt_dump_add_fact(out, key_of(key, &gpu, "fault"), "%s", error_text(nvml, gpu.fault));
}

/* Asks with the library open. */
static void ask_all(struct nt_buffer *out, void *nvml, const struct nt_gpu *gpus, unsigned count) {
  int (*begin)(void) = NULL, (*end)(void) = NULL;
  *(void **)&begin = dlsym(nvml, "nvmlInit_v2");
  *(void **)&end = dlsym(nvml, "nvmlShutdown");
  if (!begin || !end) {
    nt_dump_add_fact(out, "missing.NVML", "it lacks nvmlInit_v2 or nvmlShutdown");
    return;
  }
  int result = begin();
  if (result != NT_NVML_SUCCESS) {
    nt_dump_add_fact(out, "missing.NVML", "%s", error_text(nvml, result));
    return;
  }
  for (unsigned i = 0; i < count; i++)
    ask_gpu(out, nvml, &gpus[i]);
  end(); /* NVML counts: others who use it keep it */
}

void nt_nvml_ask(struct nt_buffer *out, const char *library, const struct nt_gpu *gpus,
                 unsigned count) {
  if (!nt_fork_gate_enter(NT_GATE_DUMP_MS)) {
    nt_dump_add_fact(out, "missing.NVML", "the program forked all the time");
    return;
  }
  void *nvml = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  nt_fork_gate_leave();
  if (!nvml) {
    const char *why = dlerror();
    nt_dump_add_fact(out, "missing.NVML", "%s", why ? why : "it cannot be opened");
    return;
  }
  ask_all(out, nvml, gpus, count);
  // cppcheck-suppress resourceLeak ; unloading it could end what others began in it
}
