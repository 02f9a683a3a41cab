# SPDX-License-Identifier: Apache-2.0
# What is built for: another processor, or systems with an older libc than this one. Included by the top Makefile.
#
#   ARCH=aarch64   with Debian's gcc-aarch64-linux-gnu; programs of the build run under qemu-aarch64 where it is there
#   GLIBC=2.28     with Zig's C compiler, which has the symbols of every glibc; it comes from PyPI
#
# Neither takes a library from this system: mk/sysroot puts Debian's packages for ARCH into $(CACHE).
ZIG_VERSION = 0.15.2
ZIG         = $(CACHE)/zig-$(ZIG_VERSION)/ziglang/zig
CACHE       = $(CURDIR)/build-cache

SYSROOT  := $(if $(FOREIGN)$(GLIBC),$(CACHE)/sysroot-$(ARCH))
EMULATOR := $(if $(FOREIGN),$(if $(shell command -v qemu-$(ARCH)),qemu-$(ARCH) -L $(SYSROOT)/root))


TOOLCHAIN := $(if $(GLIBC),$(ZIG))
ZIG_CC    := $(ZIG) cc -target $(ARCH)-linux-gnu.$(GLIBC) -fno-sanitize=all
CROSS_CC  := $(ARCH)-linux-gnu-gcc --sysroot=$(SYSROOT)/root

ifeq ($(origin CC),default)
CC  = $(if $(GLIBC),$(ZIG_CC),$(if $(FOREIGN),$(CROSS_CC),gcc))
endif
ifeq ($(origin AR),default)
AR  = $(if $(GLIBC),$(ZIG) ar,$(if $(FOREIGN),$(ARCH)-linux-gnu-ar,ar))
endif
ifeq ($(origin CXX),default)
CXX = $(if $(FOREIGN),$(ARCH)-linux-gnu-g++ --sysroot=$(SYSROOT)/root,g++)
endif

TARGET_CPPFLAGS = $(if $(SYSROOT),-isystem $(SYSROOT)/include)
# The same bytes from whichever folder.
TARGET_CFLAGS   = $(if $(GLIBC),-ffile-prefix-map=$(CURDIR)=. -ffile-prefix-map=$(CACHE)=. \
                  -Wno-string-plus-int -Wno-format-zero-length)
TARGET_LDFLAGS  = $(if $(SYSROOT),-L$(SYSROOT)/lib)

# A static library: the sysroot's, or this system's.
archive = $(if $(SYSROOT),$(SYSROOT)/lib/lib$(1).a,-l:lib$(1).a)

$(CACHE)/sysroot-%/packages: mk/sysroot
	@printf '  %-7s %s\n' GET $(@D)
	$(Q)mk/sysroot $* $(@D)

$(CACHE)/zig-$(ZIG_VERSION)/ziglang/zig: mk/zig
	@printf '  %-7s %s\n' GET $(CACHE)/zig-$(ZIG_VERSION)
	$(Q)mk/zig $(ZIG_VERSION) $(CACHE)/zig-$(ZIG_VERSION)
