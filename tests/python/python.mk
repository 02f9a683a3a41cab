# SPDX-License-Identifier: Apache-2.0
# The stack walk as a library for Python to load and as a program that embeds Python; tests/python/run
# uses both. Included by the top Makefile.
PROBE_OBJS  := $(addprefix $(BUILD)/obj/tests/python/,probe.o probe_dump.o) \
               $(addprefix $(BUILD)/obj/libnccltrace/preload/,python_layout.o python_lists.o python_code.o \
                 python_stack.o stack_intern.o modules.o fork_gate.o python_threads.o python_walk.o dump_python.o \
                 dump_read.o)
PYTHON_TEST := $(BUILD)/python/libprobe.so $(BUILD)/python/embed

scenario bench: $(PYTHON_TEST)

$(BUILD)/obj/tests/python/%.o: OBJ_CFLAGS = $(PIC_CFLAGS) -UNDEBUG -Itests/python

$(BUILD)/python/libprobe.so: $(PROBE_OBJS) $(BUILD)/libnt.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_LDFLAGS) -shared -Wl,--exclude-libs,ALL -o $@ $^ $(ZSTD) -ldl

$(BUILD)/python/embed: $(BUILD)/obj/tests/python/embed.o $(PROBE_OBJS) $(BUILD)/libnt.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(NT_LDFLAGS) -rdynamic -o $@ $^ $(ZSTD) -ldl

-include $(PROBE_OBJS:.o=.d) $(BUILD)/obj/tests/python/embed.d
