/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loaded object defines, read from its own tables.
 *
 * For the questions that dlsym cannot be asked: where dlsym itself is, and what an object exports without its
 * dependencies. No lock, no allocation, and not one function of libc: it works before libc and sanitizers are ready.
 */
#ifndef NT_ELF_SYMBOLS_H
#define NT_ELF_SYMBOLS_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Compiled the same in builds with sanitizers, whose functions may not be ready yet. */
#if defined(__has_attribute) && __has_attribute(no_stack_protector)
#define NT_EARLY __attribute__((no_sanitize("address", "thread", "undefined"), no_stack_protector))
#else
#define NT_EARLY __attribute__((no_sanitize("address", "thread", "undefined")))
#endif

struct nt_elf_tables {
  ElfW(Addr) base;
  const ElfW(Sym) * symbols;
  const char *strings;
  const uint32_t *gnu_hash;
  const uint32_t *sysv_hash; /* objects of old linkers have only this one */
  const ElfW(Half) * versions;
  const ElfW(Rela) * rela, *plt; /* relocations of data, and of the procedure linkage table */
  size_t rela_count, plt_count,
      relative_count; /* the last: of the first of rela, which name no symbol */
  bool symbolic;      /* its own references are bound inside it: -Bsymbolic */
};

/* The object stays loaded as long as the tables are used. false: it has no symbols. */
NT_EARLY bool nt_elf_tables(ElfW(Addr) base, const ElfW(Dyn) * dynamic, struct nt_elf_tables *out);

/* Address of a function that the object defines under this name as its default version; NULL if it does not. */
NT_EARLY void *nt_elf_symbol(const struct nt_elf_tables *tables, const char *name);

#endif
