# SPDX-License-Identifier: Apache-2.0
# Programs that tests/cli/*.sh run with the library preloaded, on the simulator. Included by the top Makefile.
PRELOAD_CASES := $(BUILD)/preload/library_cases $(BUILD)/preload/libjumping.so \
  $(BUILD)/preload/plugin.so $(BUILD)/preload/reloader $(BUILD)/preload/gpu_cases \
  $(BUILD)/preload/graph_cases $(BUILD)/preload/rma_cases \
  $(BUILD)/preload/fate_cases $(BUILD)/preload/native_cases $(BUILD)/preload/native_throws.so

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
	$(Q)$(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -fPIC -shared -o $@ $< -L$(BUILD)/sim -l:libnccl.so.2 \
	  -Wl,-rpath-link,$(BUILD)/sim

$(BUILD)/preload/libjumping.so: tests/preload/jumping_nccl.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -fPIC -shared -o $@ $< -ldl

# Behind one unit test.
$(BUILD)/unit/test_preload_nvml: | $(BUILD)/preload/libnvidia-ml-stub.so

$(BUILD)/preload/libnvidia-ml-stub.so: tests/preload/stub_nvml.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) $(NT_CFLAGS) -fPIC -shared -o $@ $<

$(BUILD)/preload/gpu_cases: tests/preload/gpu_cases.c $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) -Itests/sim/include $(NT_CFLAGS) -o $@ $< -L$(BUILD)/sim \
	  -l:libnccl.so.2 -l:libcudart.so.13 -Wl,-rpath-link,$(BUILD)/sim -ldl

$(BUILD)/preload/graph_cases $(BUILD)/preload/rma_cases: $(BUILD)/preload/%: tests/preload/%.c $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) -Itests/sim/include $(NT_CFLAGS) -o $@ $< -L$(BUILD)/sim \
	  -l:libnccl.so.2 -l:libcudart.so.13 -l:libcuda.so.1

$(BUILD)/preload/fate_cases: tests/preload/fate_cases.c $(BUILD)/.flags | sim
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_CPPFLAGS) -Itests/sim/include $(NT_CFLAGS) -o $@ $< -L$(BUILD)/sim \
	  -l:libnccl.so.2 -l:libcudart.so.13 -Wl,-rpath-link,$(BUILD)/sim -ldl

$(BUILD)/preload/native_throws.so: tests/preload/native_throws.cc $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CXX) $(CFLAGS) -Wall -Wextra -fPIC -shared -o $@ $<
