/* SPDX-License-Identifier: Apache-2.0 */
/* Formats: elf(5); the table of hashes as binutils writes it (DT_GNU_HASH). */
#include "preload/elf_symbols.h"

/* The compiler must not make calls of strcmp or strlen from these loops. */
#define NT_KEEP_LOOP() __asm__ volatile("")

enum { HIDDEN_VERSION = 0x8000 };

/* The loader has made most of these addresses already, but not in objects whose table is read-only. */
static NT_EARLY const void *pointer(ElfW(Addr) base, ElfW(Addr) value) {
  return (const void *)(value < base ? value + base : value);
}

static NT_EARLY void take_relocations(struct nt_elf_tables *out, const ElfW(Dyn) * entry) {
  switch (entry->d_tag) {
  case DT_RELA:
    out->rela = pointer(out->base, entry->d_un.d_ptr);
    break;
  case DT_RELASZ:
    out->rela_count = entry->d_un.d_val / sizeof(ElfW(Rela));
    break;
  case DT_RELACOUNT:
    out->relative_count = entry->d_un.d_val;
    break;
  case DT_JMPREL:
    out->plt = pointer(out->base, entry->d_un.d_ptr);
    break;
  case DT_PLTRELSZ:
    out->plt_count = entry->d_un.d_val / sizeof(ElfW(Rela));
    break;
  case DT_SYMBOLIC:
    out->symbolic = true;
    break;
  case DT_FLAGS:
    out->symbolic |= (entry->d_un.d_val & DF_SYMBOLIC) != 0;
    break;
  default:
    break;
  }
}

bool nt_elf_tables(ElfW(Addr) base, const ElfW(Dyn) * dynamic, struct nt_elf_tables *out) {
  out->base = base; /* one by one: a structure may be cleared by a call of memset */
  out->symbols = NULL;
  out->strings = NULL;
  out->gnu_hash = out->sysv_hash = NULL;
  out->versions = NULL;
  out->rela = out->plt = NULL;
  out->rela_count = out->plt_count = out->relative_count = 0;
  out->symbolic = false;
  for (const ElfW(Dyn) *entry = dynamic; entry && entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_SYMTAB)
      out->symbols = pointer(base, entry->d_un.d_ptr);
    else if (entry->d_tag == DT_STRTAB)
      out->strings = pointer(base, entry->d_un.d_ptr);
    else if (entry->d_tag == DT_GNU_HASH)
      out->gnu_hash = pointer(base, entry->d_un.d_ptr);
    else if (entry->d_tag == DT_HASH)
      out->sysv_hash = pointer(base, entry->d_un.d_ptr);
    else if (entry->d_tag == DT_VERSYM)
      out->versions = pointer(base, entry->d_un.d_ptr);
    else
      take_relocations(out, entry);
  }
  return out->symbols && out->strings && (out->gnu_hash || out->sysv_hash);
}

static NT_EARLY bool equal(const char *a, const char *b) {
  for (; *a && *a == *b; a++, b++)
    NT_KEEP_LOOP();
  return *a == *b;
}

static NT_EARLY bool is_definition(const struct nt_elf_tables *tables, uint32_t i,
                                   const char *name) {
  const ElfW(Sym) *symbol = &tables->symbols[i];
  return symbol->st_shndx != SHN_UNDEF && symbol->st_value &&
         !(tables->versions && tables->versions[i] & HIDDEN_VERSION) &&
         equal(tables->strings + symbol->st_name, name);
}

static NT_EARLY uint32_t find_gnu(const struct nt_elf_tables *tables, const char *name) {
  const uint32_t *table = tables->gnu_hash;
  const uint32_t buckets = table[0], first = table[1], words = table[2];
  const uint32_t *bucket = table + 4 + words * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
  uint32_t hash = 5381;
  for (const char *at = name; *at; at++) {
    NT_KEEP_LOOP();
    hash = hash * 33 + (unsigned char)*at;
  }
  uint32_t i = buckets ? bucket[hash % buckets] : 0;
  if (i < first)
    return 0;
  for (;; i++) {
    const uint32_t here = chain[i - first];
    if ((here | 1) == (hash | 1) && is_definition(tables, i, name))
      return i;
    if (here & 1)
      return 0;
  }
}

static NT_EARLY uint32_t find_sysv(const struct nt_elf_tables *tables, const char *name) {
  const uint32_t *table = tables->sysv_hash, buckets = table[0];
  uint32_t hash = 0;
  for (const char *at = name; *at; at++) {
    NT_KEEP_LOOP();
    hash = (hash << 4) + (unsigned char)*at;
    hash = (hash ^ ((hash >> 24) & 0xf0)) & 0x0fffffff;
  }
  for (uint32_t i = buckets ? table[2 + hash % buckets] : 0; i; i = table[2 + buckets + i])
    if (is_definition(tables, i, name))
      return i;
  return 0;
}

void *nt_elf_symbol(const struct nt_elf_tables *tables, const char *name) {
  uint32_t i = tables->gnu_hash ? find_gnu(tables, name) : find_sysv(tables, name);
  if (!i)
    return NULL;
  const ElfW(Sym) *symbol = &tables->symbols[i];
  void *address = (void *)(tables->base + symbol->st_value);
  /* ELF64_ST_TYPE is the same as that of 32 bits. */
  if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC) {
    void *(*choose)(void) = NULL;
    *(void **)&choose = address;
    return choose();
  }
  return address;
}
