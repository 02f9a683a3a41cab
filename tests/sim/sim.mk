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

SIM_CUDA_OBJ := $(addprefix $(SIM)/obj/,sim_device.o sim_stream.o sim_event.o sim_capture.o sim_cuda.o)
SIM_CUDART_OBJ := $(SIM)/obj/sim_cudart.o
SIM_NCCL_OBJ := $(addprefix $(SIM)/obj/,sim_boot.o sim_comm.o sim_connect.o sim_enqueue.o \
  sim_group.o sim_p2p.o sim_reduce.o sim_ring.o sim_shm.o sim_split.o sim_stubs.o)
SIM_LIBS := $(SIM)/libcuda.so.1 $(SIM)/libcudart.so.13 $(SIM)/libnccl.so.2

.PHONY: sim sim-check
sim: $(SIM_LIBS) $(SIM)/sim_selftest

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

SIM_TEST_OBJ := $(addprefix $(SIM)/obj/,sim_selftest.o sim_selftest_data.o sim_selftest_hang.o)
$(SIM)/sim_selftest: $(SIM_TEST_OBJ) $(SIM_LIBS)
	$(CC) -pthread $(LDFLAGS) -o $@ $(SIM_TEST_OBJ) -L$(SIM) -Wl,-rpath,'$$ORIGIN' \
	  -lnccl -lcudart -lcuda -lm

-include $(wildcard $(SIM)/obj/*.d)
