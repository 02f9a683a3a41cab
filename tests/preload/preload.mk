# SPDX-License-Identifier: Apache-2.0
# Programs that tests/cli/*.sh run with the library preloaded, on the simulator. Included by the top Makefile.
PRELOAD_CASES := $(BUILD)/preload/library_cases $(BUILD)/preload/libjumping.so $(BUILD)/preload/libasked.so \
  $(BUILD)/preload/plugin.so $(BUILD)/preload/reloader $(BUILD)/preload/gpu_cases \
  $(BUILD)/preload/graph_cases $(BUILD)/preload/process_cases $(BUILD)/preload/comm_cases $(BUILD)/preload/rma_cases \
  $(BUILD)/preload/fate_cases $(BUILD)/preload/native_cases $(BUILD)/preload/native_throws.so \
  $(BUILD)/preload/call_cases $(BUILD)/preload/libnccl-calling.so

scenario: $(PRELOAD_CASES)

$(BUILD)/preload/library_cases $(BUILD)/preload/native_cases: $(BUILD)/preload/%: tests/preload/%.c $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -o $@ $< -L$(BUILD)/sim -l:libnccl.so.2 -l:libcudart.so.13 \
	  -Wl,-rpath-link,$(BUILD)/sim -ldl

# The reloading program must not link NCCL itself.
$(BUILD)/preload/reloader: tests/preload/reloader.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -o $@ $< -ldl

$(BUILD)/preload/plugin.so: tests/preload/plugin.c $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) -Itests/sim/include $(NT_CFLAGS) -fPIC -shared -o $@ $< -L$(BUILD)/sim \
	  -l:libnccl.so.2 -l:libcudart.so.13 -Wl,-rpath-link,$(BUILD)/sim

$(BUILD)/preload/libjumping.so $(BUILD)/preload/libasked.so: $(BUILD)/preload/lib%.so: tests/preload/%_nccl.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -fPIC -shared -o $@ $< -ldl

$(BUILD)/preload/libnccl-calling.so: tests/preload/calling_nccl.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -fPIC -shared -o $@ $<

# Behind one unit test.
$(BUILD)/unit/test_preload_nvml: | $(BUILD)/preload/libnvidia-ml-stub.so

$(BUILD)/preload/libnvidia-ml-stub.so: tests/preload/stub_nvml.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -fPIC -shared -o $@ $<

$(BUILD)/preload/gpu_cases: tests/preload/gpu_cases.c tests/preload/cases.h $(BUILD)/preload/libtorch_cuda.so
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) -Itests/sim/include $(NT_CFLAGS) -o $@ $< $(BUILD)/preload/libtorch_cuda.so \
	  -Wl,-rpath,$(abspath $(BUILD))/preload -L$(BUILD)/sim -l:libnccl.so.2 -l:libcudart.so.13 \
	  -Wl,-rpath-link,$(BUILD)/sim -ldl

$(BUILD)/preload/libtorch_cuda.so: tests/preload/torch_calls.c $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) -Itests/sim/include $(NT_CFLAGS) -fPIC -shared -Wl,-soname,libtorch_cuda.so -o $@ $< \
	  -L$(BUILD)/sim -l:libnccl.so.2 -l:libcudart.so.13

$(BUILD)/preload/graph_cases $(BUILD)/preload/rma_cases: $(BUILD)/preload/%: tests/preload/%.c tests/preload/cases.h $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) -Itests/sim/include $(NT_CFLAGS) -o $@ $< -L$(BUILD)/sim \
	  -l:libnccl.so.2 -l:libcudart.so.13 -l:libcuda.so.1

$(BUILD)/preload/call_cases $(BUILD)/preload/fate_cases $(BUILD)/preload/process_cases: $(BUILD)/preload/%: tests/preload/%.c tests/preload/cases.h $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) -Itests/sim/include $(NT_CFLAGS) -o $@ $< -L$(BUILD)/sim \
	  -l:libnccl.so.2 -l:libcudart.so.13 -Wl,-rpath-link,$(BUILD)/sim -ldl

# Their NCCL and CUDA runtime are those of the benchmarks.
NULL_LIBRARIES = $(BUILD)/bench/null/libnccl.so.2 $(BUILD)/bench/null/libcudart.so.12
NULL_LINK = $(NULL_LIBRARIES) -Wl,-rpath,$(abspath $(BUILD))/bench/null -Wl,-z,now
scenario: $(BUILD)/preload/path_calls $(BUILD)/preload/flood
$(BUILD)/preload/path_calls $(BUILD)/preload/flood: $(BUILD)/preload/%: tests/preload/%.c $(NULL_LIBRARIES) $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -o $@ $< $(NULL_LINK)

COMM_CASES := $(addprefix tests/preload/,comm_cases.c comm_call_cases.c comm_device_cases.c comm_derived_cases.c)
$(BUILD)/preload/comm_cases: $(COMM_CASES) tests/preload/comm_cases.h $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) -Itests/sim/include $(NT_CFLAGS) -o $@ $(COMM_CASES) -L$(BUILD)/sim \
	  -l:libnccl.so.2 -l:libcudart.so.13 -Wl,-rpath-link,$(BUILD)/sim

$(BUILD)/preload/native_throws.so: tests/preload/native_throws.cc $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CXX) $(CFLAGS) -Wall -Wextra -fPIC -shared -o $@ $<

# Copies of NCCL that can be told apart, and users of NCCL linked in every way: tests/cli/resolve.sh.
NCCL_USERS := $(addprefix $(BUILD)/preload/,numbered/libnccl-1.so numbered/libnccl-2.so numbered/libnccl-3.so \
  user_linked.so user_outer.so user_lazy.so user_numbered1.so user_numbered2.so user_static.so user_symbolic.so user_program libpassing.so \
  libquota.so libpausing.so libanswering.so libearly.so constructing.so destructing.so resolve_cases resolve_early resolve_cases-asan resolve_cases-tsan)
scenario: $(NCCL_USERS)

LINK_USER = $(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -fPIC -shared -o $@ $<
SIM_LINK = -L$(BUILD)/sim -Wl,-rpath-link,$(BUILD)/sim
SIM_STATIC = -Wl,--whole-archive $(BUILD)/sim/libnccl_static.a -Wl,--no-whole-archive $(SIM_LINK) -l:libcuda.so.1

$(BUILD)/preload/numbered/libnccl-%.so: tests/preload/numbered_nccl.c $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(LINK_USER) $(SIM_STATIC) -Wl,-soname,$(@F)

$(BUILD)/preload/user_linked.so: tests/preload/nccl_user.c $(BUILD)/.flags | sim
	$(call say,LD,$@)
	$(Q)$(LINK_USER) $(SIM_LINK) -l:libnccl.so.2

# Needs a user of NCCL, and has nothing of its own.
$(BUILD)/preload/user_outer.so: $(BUILD)/preload/user_linked.so
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CFLAGS) -fPIC -shared -o $@ -x c /dev/null -L$(@D) -Wl,--no-as-needed -l:user_linked.so $(SIM_LINK) \
	  -Wl,-rpath,'$$ORIGIN'

$(BUILD)/preload/user_lazy.so: tests/preload/nccl_user.c $(BUILD)/.flags | sim
	$(call say,LD,$@)
	$(Q)$(LINK_USER) $(SIM_LINK) -l:libnccl.so.2 -Wl,-z,lazy

$(BUILD)/preload/user_numbered%.so: tests/preload/nccl_user.c $(BUILD)/preload/numbered/libnccl-%.so
	$(call say,LD,$@)
	$(Q)$(LINK_USER) -L$(@D)/numbered -l:libnccl-$*.so $(SIM_LINK) -Wl,-rpath,'$$ORIGIN/numbered'

$(BUILD)/preload/user_static.so: tests/preload/nccl_user.c $(BUILD)/.flags | sim
	$(call say,LD,$@)
	$(Q)$(LINK_USER) $(SIM_STATIC)

$(BUILD)/preload/user_symbolic.so: tests/preload/nccl_user.c $(BUILD)/.flags | sim
	$(call say,LD,$@)
	$(Q)$(LINK_USER) $(SIM_STATIC) -Wl,-Bsymbolic

$(BUILD)/preload/libpassing.so: tests/preload/passing_nccl.c $(BUILD)/.flags
	$(call say,LD,$@)
	$(Q)$(LINK_USER) -ldl

$(BUILD)/preload/libquota.so: tests/preload/quota_dlsym.c $(BUILD)/.flags
	$(call say,LD,$@)
	$(Q)$(LINK_USER) -ldl

$(BUILD)/preload/libpausing.so: tests/preload/pausing_dlclose.c $(BUILD)/.flags
	$(call say,LD,$@)
	$(Q)$(LINK_USER) -ldl

$(BUILD)/preload/libanswering.so: tests/preload/answering_dlsym.c $(BUILD)/.flags
	$(call say,LD,$@)
	$(Q)$(LINK_USER) -ldl

$(BUILD)/preload/libearly.so: tests/preload/early_user.c $(BUILD)/.flags
	$(call say,LD,$@)
	$(Q)$(LINK_USER) -ldl

$(BUILD)/preload/constructing.so $(BUILD)/preload/destructing.so: $(BUILD)/preload/%.so: tests/preload/%.c $(BUILD)/.flags
	$(call say,LD,$@)
	$(Q)$(LINK_USER)

RESOLVE_CASES = $(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -o $@ $<
$(BUILD)/preload/resolve_cases: tests/preload/resolve_cases.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(RESOLVE_CASES) -rdynamic -ldl

$(BUILD)/preload/resolve_cases-asan: tests/preload/resolve_cases.c $(BUILD)/.flags
	$(call say,LD,$@)
	$(Q)$(RESOLVE_CASES) -fsanitize=address -rdynamic -ldl

$(BUILD)/preload/resolve_cases-tsan: tests/preload/resolve_cases.c $(BUILD)/.flags
	$(call say,LD,$@)
	$(Q)$(RESOLVE_CASES) -fsanitize=thread -rdynamic -ldl

# Programs that need one of the libraries from the start.
$(BUILD)/preload/resolve_early: tests/preload/user_program.c $(BUILD)/preload/libearly.so
	$(call say,LD,$@)
	$(Q)$(RESOLVE_CASES) -DUSER_FUNCTION='early_result()' -L$(@D) -l:libearly.so -Wl,-rpath,'$$ORIGIN' -ldl

$(BUILD)/preload/user_program: tests/preload/user_program.c tests/preload/nccl_user.c $(BUILD)/.flags | sim
	$(call say,LD,$@)
	$(Q)$(RESOLVE_CASES) -DUSER_FUNCTION='user_run(9)' tests/preload/nccl_user.c $(SIM_LINK) -l:libnccl.so.2
