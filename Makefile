# SPDX-License-Identifier: Apache-2.0
#
# One non-recursive Makefile: every .c file in a directory below is picked up by itself, header
# dependencies are generated, and `make -j` is safe. `make help` lists targets and variables.
#
#   $(BUILD)/libnt.a           libnccltrace/{nccl,trace}, compiled once, for library and tools
#   $(BUILD)/libnccltrace.so   libnccltrace/preload + libnt.a + static zstd; needs libc alone
#   $(BUILD)/tracediff, $(BUILD)/nccltrace   the tools, with static zstd, jansson, libdw

VERSION = 0.1.0

HOST_ARCH := $(shell uname -m)
ARCH  = $(HOST_ARCH)
GLIBC =
SAN   =
DEBUG =
V     =
FOREIGN = $(filter-out $(HOST_ARCH),$(ARCH))
# Builds with other flags live in directories of their own, so that they never mix. No comma in the name: -Wl splits there.
, := ,
BUILD = build$(FOREIGN:%=-%)$(GLIBC:%=-glibc%)$(if $(SAN),-$(subst $(,),-,$(SAN)))$(if $(DEBUG),-debug)

PREFIX  = /usr/local
DESTDIR =
BINDIR  = $(PREFIX)/bin
LIBDIR  = $(PREFIX)/lib
MANDIR  = $(PREFIX)/share/man
DOCDIR  = $(PREFIX)/share/doc/libnccltrace

FUZZ_SECONDS = 30
# Goals that build before they run use all processors, unless make was already told how many.
PARALLEL = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))

CFLAGS ?= $(if $(DEBUG),-O0 -g3,-O2 -g)
WERROR ?= $(filter true 1,$(CI))

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
export BUILD SAN CC

Q   := $(if $(V),,@)
say  = @printf '  %-7s %s\n' $(1) $(2)

include mk/target.mk

# ---- flags -------------------------------------------------------------------------------------

NT_WARN = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wundef -Wvla \
          $(if $(WERROR),-Werror)
NT_CPPFLAGS = -D_GNU_SOURCE -DNT_VERSION='"$(VERSION)"' $(if $(DEBUG)$(SAN),-DNT_DEBUG=1,-DNDEBUG) \
              -Ilibnccltrace -Itools $(TARGET_CPPFLAGS) $(CPPFLAGS)
NT_CFLAGS   = -std=gnu11 -pthread $(NT_WARN) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer) \
              $(TARGET_CFLAGS) $(CFLAGS)
NT_LDFLAGS  = -pthread $(if $(SAN),-fsanitize=$(SAN)) $(TARGET_LDFLAGS) $(LDFLAGS)

# libnt.a and the preload objects go into a shared object. Initial-exec: thread-local variables are
# reached without a call into the loader, and ld-linux stays out of DT_NEEDED.
PIC_CFLAGS = -fPIC -fvisibility=hidden -ftls-model=initial-exec

# -z defs: an undefined symbol in a preloaded library would kill every process it is loaded into.
# -z now:  nothing is bound lazily inside a wrapper or a signal handler.
# -z nodelete: its threads and its wrappers outlive any dlclose.
SO_LDFLAGS = -shared -static-libgcc -Wl,-soname,libnccltrace.so -Wl,-z,defs -Wl,-z,now -Wl,-z,relro \
             -Wl,-z,nodelete -Wl,--as-needed $(if $(GLIBC),,-Wl,--exclude-libs,ALL) \
             -Wl,--version-script=$(BUILD)/nccltrace.map

ZSTD    = $(call archive,zstd)
JANSSON = $(call archive,jansson)
# What libdw reads may be packed with any of the others.
LIBDW   = $(foreach name,dw elf bz2 lzma z,$(call archive,$(name)))

# ---- sources -----------------------------------------------------------------------------------

obj = $(patsubst %,$(BUILD)/obj/%.o,$(basename $(wildcard $(1))))

NT_OBJS        := $(call obj,libnccltrace/nccl/*.c libnccltrace/trace/*.c)
PRELOAD_OBJS   := $(call obj,libnccltrace/preload/*.c libnccltrace/preload/*.S)
ANALYSIS_OBJS  := $(call obj,tools/analysis/*.c)
CLI_OBJS       := $(call obj,tools/cli/*.c)
TRACEDIFF_OBJS := $(call obj,tools/tracediff/*.c)
NCCLTRACE_OBJS := $(call obj,tools/nccltrace/*.c)
TOOL_OBJS      := $(ANALYSIS_OBJS) $(CLI_OBJS) $(TRACEDIFF_OBJS) $(NCCLTRACE_OBJS)

UNIT_SRCS  := $(wildcard tests/unit/*.c)
UNIT_HELP  := $(call obj,$(filter-out tests/unit/test_%,$(UNIT_SRCS)))
UNIT_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(filter tests/unit/test_%,$(UNIT_SRCS)))
BENCHES    := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/bench_*.c))
GEN_JOB    := $(BUILD)/bench/gen_job
FUZZ_NAMES := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
REPLAYS    := $(FUZZ_NAMES:%=$(BUILD)/fuzz/replay_%)
TEST_OBJS  := $(call obj,tests/unit/*.c tests/bench/*.c tests/fuzz/*.c tests/scenario/renumber.c)

TOOL_LIBS = $(BUILD)/libanalysis.a $(BUILD)/libcli.a $(BUILD)/libnt.a
PRODUCTS  = $(BUILD)/libnt.a $(if $(PRELOAD_OBJS),$(BUILD)/libnccltrace.so) \
            $(if $(TRACEDIFF_OBJS),$(BUILD)/tracediff) $(if $(NCCLTRACE_OBJS),$(BUILD)/nccltrace)

# ---- targets people type -----------------------------------------------------------------------

.PHONY: all sim scenario check check-build check-fast check-sim check-unit check-cli check-runner \
        check-scenarios check-users check-fuzz check-api check-abi check-aarch64 check-dist lint bench bench-large fuzz demo \
        install dist clean help FORCE

all: $(PRODUCTS)

# The fragments below add the prerequisites of these two.
sim scenario:
include tests/sim/sim.mk tests/scenario/shim.mk tests/preload/preload.mk tests/python/python.mk

check:
	@tests/setup build check lint cross
	@$(MAKE) --no-print-directory $(if $(V),,-s) $(PARALLEL) check-build
	@tests/run-check sim unit cli runner scenarios users fuzz api aarch64 dist lint

check-fast: check-build
	@tests/run-check sim unit cli runner fuzz api lint

check-build: all sim scenario $(UNIT_TESTS) $(REPLAYS) $(GEN_JOB) $(BENCHES)

check-sim: sim
check-unit: $(UNIT_TESTS)
check-cli check-runner check-scenarios check-users: all sim scenario
# Fetches other people's packages, up to so many MB for each user.
check-users: export USERS_DOWNLOAD ?= 500
check-cli: $(GEN_JOB) $(BENCHES)
check-fuzz: $(REPLAYS)
check-aarch64: all
check-dist: all sim
lint: all
check-sim check-unit check-cli check-runner check-scenarios check-users check-fuzz check-api check-aarch64 check-dist:
	@tests/run-check $(@:check-%=%)
lint:
	@tests/run-check lint

# It downloads some 40 MB the first time; without CI=true `make check` only uses what is there already.
check-abi:
	@tests/abi/fetch; tests/run-check api

bench: all $(BENCHES) $(GEN_JOB)
	@NCCLTRACE_LIBRARY=$(abspath $(BUILD)/libnccltrace.so) tests/bench/run $(BENCHES)

# 4,096 ranks of 100,000 calls: 2.4 GB in TMPDIR and minutes to make them.
bench-large: all $(BUILD)/bench/bench_tracediff $(GEN_JOB)
	@tests/bench/run '$(BUILD)/bench/bench_tracediff large'

demo:
	@[ -e $(BUILD)/tracediff ] || echo "demo: installs what is missing and builds everything first, which takes some minutes"
	@tests/setup build
	@$(MAKE) --no-print-directory $(if $(V),,-s) $(PARALLEL) all sim
	@examples/demo/run

install: all
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR) $(MANDIR)/man1 $(MANDIR)/man7 $(DOCDIR))
	install -m 755 $(BUILD)/tracediff $(BUILD)/nccltrace $(DESTDIR)$(BINDIR)
	install -m 755 $(BUILD)/libnccltrace.so $(DESTDIR)$(LIBDIR)
	install -m 644 $(wildcard docs/man/*.1) $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(wildcard docs/man/*.7) $(DESTDIR)$(MANDIR)/man7
	install -m 644 README.md CHANGELOG.md CONTRIBUTING.md LICENSE $(DESTDIR)$(DOCDIR)
	for file in docs/*.md $$(find examples -type f); do \
	  mode=644; [ ! -x $$file ] || mode=755; install -D -m $$mode $$file $(DESTDIR)$(DOCDIR)/$$file || exit 1; \
	done

# Binaries that others install: for RHEL 8, Ubuntu 20.04 and later.
DIST_GLIBC = 2.28
DIST_ARCHS = x86_64 aarch64
dist:
	@tests/setup build cross
	@MAKE='$(MAKE) $(PARALLEL)' mk/dist $(VERSION) $(DIST_GLIBC) $(BUILD) $(DIST_ARCHS)

clean:
	rm -rf $(BUILD)

help:
	@cat mk/help.txt

# ---- products ----------------------------------------------------------------------------------

$(NT_OBJS) $(PRELOAD_OBJS): OBJ_CFLAGS = $(PIC_CFLAGS)
$(filter $(BUILD)/obj/libnccltrace/trace/%,$(NT_OBJS)): OBJ_CFLAGS = $(PIC_CFLAGS) -Wconversion
$(BUILD)/obj/libnccltrace/preload/entries.o: OBJ_CFLAGS = $(PIC_CFLAGS) -Os
# Tests keep their assertions in every build.
$(TEST_OBJS): OBJ_CFLAGS = -UNDEBUG

COMPILE = $(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) $(OBJ_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.o: %.c $(BUILD)/.flags | $(BUILD)/.probed
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(COMPILE)

$(BUILD)/obj/%.o: %.S $(BUILD)/.flags | $(BUILD)/.probed
	@mkdir -p $(@D)
	$(call say,AS,$<)
	$(Q)$(COMPILE)

$(BUILD)/libnt.a: $(NT_OBJS)
$(BUILD)/libpreload.a: $(PRELOAD_OBJS)
$(BUILD)/libanalysis.a: $(ANALYSIS_OBJS)
$(BUILD)/libcli.a: $(CLI_OBJS)
$(BUILD)/libnt.a $(BUILD)/libpreload.a $(BUILD)/libanalysis.a $(BUILD)/libcli.a:
	@mkdir -p $(@D)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# The export list is one C preprocessor pass over the API table.
$(BUILD)/nccltrace.map: libnccltrace/nccltrace.map libnccltrace/nccl/nccl_api.def libnccltrace/nccl/cuda_api.def \
  | $(BUILD)/.probed
	@mkdir -p $(@D)
	$(call say,MAP,$@)
	$(Q)$(CC) -E -P -x c -Ilibnccltrace $< -o $@

$(BUILD)/libnccltrace.so: $(PRELOAD_OBJS) $(BUILD)/libnt.a $(BUILD)/nccltrace.map
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_LDFLAGS) $(SO_LDFLAGS) -o $@ $(filter %.o %.a,$^) $(ZSTD) -ldl -lrt

LINK_TOOL = $(CC) $(NT_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) \
            -Wl,--end-group $(LIBDW) $(ZSTD) $(JANSSON) -Wl,--as-needed -lm -ldl -lrt

$(BUILD)/tracediff: $(TRACEDIFF_OBJS) $(TOOL_LIBS)
	$(call say,LD,$@)
	$(Q)$(LINK_TOOL)

$(BUILD)/nccltrace: $(NCCLTRACE_OBJS) $(TOOL_LIBS)
	$(call say,LD,$@)
	$(Q)$(LINK_TOOL)

# ---- tests, benchmarks, fuzzing ----------------------------------------------------------------

# Copies of traces with other world ranks, for tests/run-scenario --properties.
RENUMBER = $(BUILD)/scenario/renumber
scenario: $(RENUMBER)
$(RENUMBER): $(BUILD)/obj/tests/scenario/renumber.o $(BUILD)/libnt.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(LINK_TOOL)

# test_preload_*.c and bench_preload_*.c may call the functions of the preload library as well.
$(filter $(BUILD)/unit/test_preload_% $(BUILD)/bench/bench_preload_%,$(UNIT_TESTS) $(BENCHES)): \
  $(BUILD)/libpreload.a
$(BUILD)/unit/%: $(BUILD)/obj/tests/unit/%.o $(UNIT_HELP) $(TOOL_LIBS) | $(BUILD)/.probed-check
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(LINK_TOOL) -lcmocka

# Benchmarks that call NCCL get one whose calls do nothing, and may open such a CUDA driver.
NULL_NCCL = $(BUILD)/bench/null/libnccl.so.2
NULL_CUDA = $(BUILD)/bench/null/libcuda.so.1
NULL_CUDART = $(BUILD)/bench/null/libcudart.so.12
$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(TOOL_LIBS) $(NULL_NCCL) | $(NULL_CUDA)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(LINK_TOOL) $(NULL_NCCL) -Wl,-rpath,'$$ORIGIN/null'

$(BUILD)/bench/bench_codec $(BUILD)/bench/bench_trace_size: $(BUILD)/obj/tests/bench/call_pattern.o
$(BUILD)/bench/bench_trace_size: $(BUILD)/obj/tests/bench/other_formats.o

# Beside the library, to see what its constructors take.
INIT_CLOCKS = $(BUILD)/bench/init/first.so $(BUILD)/bench/init/last.so
$(BUILD)/bench/bench_library: | $(INIT_CLOCKS)
$(BUILD)/obj/tests/bench/init_clock.o: OBJ_CFLAGS = $(PIC_CFLAGS)
$(INIT_CLOCKS): $(BUILD)/obj/tests/bench/init_clock.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_LDFLAGS) -shared -o $@ $<

# Traces of a job of any size.
$(GEN_JOB): $(BUILD)/obj/tests/bench/job_plan.o

$(BUILD)/obj/tests/bench/null_nccl.o $(BUILD)/obj/tests/bench/null_cuda.o $(BUILD)/obj/tests/bench/null_cudart.o: OBJ_CFLAGS = $(PIC_CFLAGS)
$(NULL_NCCL): $(BUILD)/obj/tests/bench/null_nccl.o
$(NULL_CUDA): $(BUILD)/obj/tests/bench/null_cuda.o
$(NULL_CUDART): $(BUILD)/obj/tests/bench/null_cudart.o
$(NULL_NCCL) $(NULL_CUDA) $(NULL_CUDART):
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $<

$(BUILD)/fuzz/replay_%: $(BUILD)/obj/tests/fuzz/%.o $(BUILD)/obj/tests/fuzz/replay.o $(TOOL_LIBS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(LINK_TOOL)

# The fuzzers proper need clang: one more compilation of the readers, with coverage and sanitizers.
FUZZ_CC    = clang
FUZZ_FLAGS = -std=gnu11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
FUZZ_SRCS  = $(wildcard libnccltrace/nccl/*.c libnccltrace/trace/*.c tools/analysis/*.c tools/cli/*.c)

FUZZ_HDRS  = $(wildcard libnccltrace/*/*.h libnccltrace/*/*.def tools/*/*.h)

$(BUILD)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(FUZZ_SRCS) $(FUZZ_HDRS) $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,FUZZCC,$@)
	$(Q)$(FUZZ_CC) -D_GNU_SOURCE -DNT_VERSION='"$(VERSION)"' -Ilibnccltrace -Itools $(FUZZ_FLAGS) \
	  -pthread -o $@ $(filter %.c,$^) $(LIBDW) $(ZSTD) $(JANSSON) -lm

fuzz:
	@command -v $(FUZZ_CC) >/dev/null || \
	  { echo 'make fuzz: no clang; install the package clang' >&2; exit 1; }
	@$(MAKE) --no-print-directory $(FUZZ_NAMES:%=$(BUILD)/fuzz/%)
	@tests/fuzz/run $(FUZZ_SECONDS) $(FUZZ_NAMES)

# ---- what a build rests on ---------------------------------------------------------------------

# Rewritten only when compiler or flags change, and then everything is compiled again.
export NT_FLAGS_NOW = $(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) $(PIC_CFLAGS) $(NT_LDFLAGS) $(SO_LDFLAGS)
$(BUILD)/.flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' "$$NT_FLAGS_NOW" | cmp -s - $@ || printf '%s\n' "$$NT_FLAGS_NOW" >$@

# Checked and printed once per build directory: what is there, or which package is missing.
$(BUILD)/.probed $(BUILD)/.probed-check: $(BUILD)/.probed%: mk/probe $(SYSROOT:%=%/packages) $(TOOLCHAIN)
	@mkdir -p $(@D)
	@SYSROOT=$(SYSROOT) EMULATOR='$(or $(EMULATOR),$(if $(FOREIGN),true))' \
	  mk/probe $(if $*,$(*:-%=%),build) && touch $@
FORCE:

-include $(NT_OBJS:.o=.d) $(PRELOAD_OBJS:.o=.d) $(TOOL_OBJS:.o=.d) $(TEST_OBJS:.o=.d)
