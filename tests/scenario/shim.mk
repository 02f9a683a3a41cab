# SPDX-License-Identifier: Apache-2.0
# The shim through which scenarios call NCCL and CUDA. `make scenario` builds it against the
# simulator; tests/run-scenario --real builds another one with the real libraries' paths:
#   make -f tests/scenario/shim.mk SHIM=… SHIM_NCCL=… SHIM_CUDART=…
BUILD       ?= build
SHIM        ?= $(BUILD)/scenario/libscnshim.so
SHIM_NCCL    ?= $(BUILD)/sim/libnccl.so.2
SHIM_CUDART  ?= $(BUILD)/sim/libcudart.so.13
SHIM_CFLAGS ?= -std=gnu11 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra

.PHONY: scenario
scenario: $(SHIM)

# Alltoall, gather and scatter are weak: an older NCCL may lack them.
$(SHIM): tests/scenario/shim.c $(SHIM_NCCL) $(SHIM_CUDART)
	@mkdir -p $(@D)
	$(CC) $(SHIM_CFLAGS) -shared -Wl,-soname,$(@F) -o $@ $< $(SHIM_NCCL) $(SHIM_CUDART) -ldl
