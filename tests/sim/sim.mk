# SPDX-License-Identifier: Apache-2.0
# Builds the simulated libraries into $(BUILD)/sim. Included by the top Makefile, and usable alone:
#   make -f tests/sim/sim.mk BUILD=build
BUILD ?= build
SIM := $(BUILD)/sim
SIM_SRC := tests/sim
SIM_CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -g -fPIC -fvisibility=hidden -pthread \
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla \
  -I$(SIM_SRC)/include -I$(SIM_SRC) -Ilibnccltrace
SIM_LDFLAGS := -shared -pthread -Wl,-z,defs -Wl,-rpath,'$$ORIGIN' -L$(SIM)

SIM_CUDA_OBJ := $(addprefix $(SIM)/obj/,sim_device.o sim_stream.o sim_event.o sim_capture.o sim_graph.o sim_cuda.o)
SIM_CUDART_OBJ := $(SIM)/obj/sim_cudart.o
SIM_NCCL_OBJ := $(addprefix $(SIM)/obj/,sim_boot.o sim_call_config.o sim_comm.o sim_connect.o sim_enqueue.o \
  sim_group.o sim_grow.o sim_p2p.o sim_reduce.o sim_ring.o sim_rma.o sim_shm.o sim_split.o sim_stubs.o)
SIM_LIBS := $(SIM)/libcuda.so.1 $(SIM)/libcudart.so.13 $(SIM)/libnccl.so.2
# The same NCCL as a static archive, and with the interface of 2.10, for tests of symbol resolution.
SIM_VARIANTS := $(SIM)/libnccl_static.a $(SIM)/nccl-2.10/libnccl.so.2

.PHONY: sim sim-check
sim: $(SIM_LIBS) $(SIM_VARIANTS) $(SIM)/sim_selftest

sim-check: sim
	$(SIM)/sim_selftest

$(SIM)/obj/%.o: $(SIM_SRC)/%.c $(SIM_SRC)/sim.mk
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(SIM)/libcuda.so.1: $(SIM_CUDA_OBJ)
	$(CC) $(SIM_LDFLAGS) $(LDFLAGS) -Wl,-soname,libcuda.so.1 -o $@ $^
	ln -sf libcuda.so.1 $(SIM)/libcuda.so

$(SIM)/libcudart.so.13: $(SIM_CUDART_OBJ) $(SIM)/libcuda.so.1
	$(CC) $(SIM_LDFLAGS) $(LDFLAGS) -Wl,-soname,libcudart.so.13 -o $@ $(SIM_CUDART_OBJ) -l:libcuda.so.1
	ln -sf libcudart.so.13 $(SIM)/libcudart.so.12
	ln -sf libcudart.so.13 $(SIM)/libcudart.so

$(SIM)/libnccl.so.2: $(SIM_NCCL_OBJ) $(SIM)/libcuda.so.1
	$(CC) $(SIM_LDFLAGS) $(LDFLAGS) -Wl,-soname,libnccl.so.2 -o $@ $(SIM_NCCL_OBJ) -l:libcuda.so.1
	ln -sf libnccl.so.2 $(SIM)/libnccl.so

SIM_TEST_OBJ := $(addprefix $(SIM)/obj/,sim_selftest.o sim_selftest_data.o sim_selftest_comm.o \
  sim_selftest_hang.o)

$(SIM)/libnccl_static.a: $(SIM_NCCL_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

$(SIM)/obj/old/sim_stubs.o: $(SIM_SRC)/sim_stubs.c $(SIM_SRC)/sim.mk
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) $(CFLAGS) -DSIM_VERSION_CODE=21003 -MMD -MP -c -o $@ $<

SIM_OLD_OBJ := $(filter-out %/sim_stubs.o,$(SIM_NCCL_OBJ)) $(SIM)/obj/old/sim_stubs.o
$(SIM)/nccl-2.10/libnccl.so.2: $(SIM_OLD_OBJ) $(SIM_SRC)/sim_nccl_2_10.map $(SIM)/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(SIM_LDFLAGS) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/..' -Wl,-soname,libnccl.so.2 \
	  -Wl,--version-script=$(SIM_SRC)/sim_nccl_2_10.map -o $@ $(SIM_OLD_OBJ) -l:libcuda.so.1

$(SIM)/sim_selftest: $(SIM_TEST_OBJ) $(SIM_LIBS)
	$(CC) -pthread $(LDFLAGS) -o $@ $(SIM_TEST_OBJ) -L$(SIM) -Wl,-rpath,'$$ORIGIN' \
	  -lnccl -lcudart -lcuda -lm

-include $(wildcard $(SIM)/obj/*.d $(SIM)/obj/old/*.d)
