/* SPDX-License-Identifier: Apache-2.0 */
/* Finds traces, opens each once, and says in one line what is wrong with those that cannot be used. */
#include "tracediff/gather.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <uthash.h>

#include "analysis/load_source.h"
#include "cli/text.h"
#include "tracediff/idle_ranks.h"
#include "tracediff/read_traces.h"
#include "tracediff/unusable.h"

enum { STRANGE_MAX = 16 };

/* A process that has been loaded. */
struct loaded {
  struct {
    uint64_t pid, start_time, nonce, host;
  } key;
  UT_hash_handle hh;
};

/* A file that is not ours, read once it is known that there is no trace. */
struct foreign {
  char *path;
  enum nt_recorder recorder;
  dev_t device;
  ino_t inode;
};

struct gather {
  struct nt_trace_loader loader;
  struct foreign *foreign;
  int foreign_count;
  struct loaded *known;
  struct nt_source *sources; /* found and not read yet, in the order of the command line */
  size_t source_count, source_room;
  char **directories; /* resolved */
  int directory_count;
  int loaded;
  char **strange; /* files of directories that are nothing known */
  size_t strange_count, strange_room;
  struct nt_look look;
  int64_t live_ns; /* the latest moment at which one of them lived; 0 if none did */
  bool others;     /* what is read now is perhaps none of our business */
  int status;
};

static void complain_of(const struct gather *g, const char *path, const char *reason) {
  FILE *out = g->look.complaints;
  if (!out)
    return;
  fputs("tracediff: ", out);
  nt_text_escape_print(out, path);
  fputs(": ", out);
  nt_text_escape_print(out, reason);
  fputc('\n', out);
}

static void refuse(struct gather *g, const char *path, const char *reason) {
  if (g->others)
    return;
  nt_model_unreadable(&g->loader.model, path, reason);
  complain_of(g, path, reason);
}

static void complain(struct gather *g, const struct nt_source *source) {
  char reason[sizeof source->err.reason + 64];
  const bool foreign = source->recorder == NT_RECORDER_TRACE && source->err.code == -NT_ERR_FOREIGN;
  const char *why = foreign ? nt_source_refusal(source->path) : NULL;
  if (source->err.code == -NT_ERR_IO || source->err.code == -NT_ERR_MEMORY)
    snprintf(reason, sizeof reason, "%s", source->err.reason); /* nothing of it was seen */
  else
    snprintf(reason, sizeof reason, "at byte %" PRIu64 ": %s", source->err.offset,
             why ? why : source->err.reason);
  refuse(g, source->path, reason);
}

static void warn(const struct gather *g, const struct nt_source *source) {
  for (size_t i = 0; i < source->warning_count; i++)
    complain_of(g, source->path, source->warnings[i]);
}

/* ---- processes, each once ------------------------------------------------------------------------ */

static struct loaded key_of(uint32_t pid, uint64_t start_time, uint64_t nonce, const char *host) {
  struct loaded entry;
  memset(&entry, 0, sizeof entry);
  entry.key.pid = pid;
  entry.key.start_time = start_time;
  entry.key.nonce = nonce;
  for (const char *c = host ? host : ""; *c; c++)
    entry.key.host = (entry.key.host ^ (unsigned char)*c) * UINT64_C(1099511628211);
  return entry;
}

static bool has(const struct gather *g, const struct loaded *entry) {
  struct loaded *found;
  HASH_FIND(hh, g->known, &entry->key, sizeof entry->key, found);
  return found != NULL;
}

static bool is_known(const struct nt_process_info *process, const void *context) {
  const struct loaded entry =
      key_of(process->pid, process->start_time, process->nonce, process->host);
  return has(context, &entry);
}

static int take_foreign(struct gather *g, struct nt_source *source) {
  g->loaded++;
  return nt_trace_loader_join(&g->loader, &source->foreign);
}

/* Takes it into the model, unless its process is there already. */
static int take(struct gather *g, struct nt_source *source) {
  if (source->recorder != NT_RECORDER_TRACE)
    return take_foreign(g, source);
  const struct nt_model_rank *rank = &source->loaded.rank;
  struct loaded *entry = malloc(sizeof *entry);
  if (!entry)
    return -NT_ERR_MEMORY;
  *entry = key_of(rank->pid, rank->start_time, rank->nonce, rank->host);
  if (has(g, entry)) {
    free(entry);
    return 0;
  }
  warn(g, source);
  if (nt_trace_loader_take(&g->loader, &source->loaded) < 0) {
    free(entry);
    return -NT_ERR_MEMORY;
  }
  HASH_ADD(hh, g->known, key, sizeof entry->key, entry);
  g->loaded++;
  if (source->live_ns > g->live_ns)
    g->live_ns = source->live_ns;
  return 0;
}

static void forget(struct gather *g) {
  struct loaded *entry, *following;
  HASH_ITER(hh, g->known, entry, following) {
    HASH_DEL(g->known, entry);
    free(entry);
  }
}

static bool has_suffix(const char *name) {
  size_t length = strlen(name);
  return length > 6 && !strcmp(name + length - 6, ".trace");
}

static bool add_foreign(struct gather *g, const char *path, bool named, bool deep);

/* Has the name of a trace, and is something else that can be read. */
static bool is_foreign(struct gather *g, const struct nt_source *source) {
  return source->recorder == NT_RECORDER_TRACE && source->status == -NT_ERR_FOREIGN &&
         has_suffix(source->path) && add_foreign(g, source->path, true, true);
}

/* Reads what has been found, and takes it in the order in which it was found. */
static void read_sources(struct gather *g) {
  nt_sources_read(g->sources, g->source_count, is_known, g, &g->look);
  for (size_t i = 0; i < g->source_count; i++) {
    struct nt_source *source = &g->sources[i];
    if (source->status == -NT_ERR_MEMORY)
      g->status = source->status;
    else if (source->status && !is_foreign(g, source)) {
      warn(g, source);
      complain(g, source);
    } else if (!source->status && !source->known && take(g, source) < 0)
      g->status = -NT_ERR_MEMORY;
    nt_source_free(source);
  }
  g->source_count = 0;
}

/* ---- files and directories ----------------------------------------------------------------------- */

/* `path` is taken over. */
static struct nt_source *add_source(struct gather *g, char *path) {
  if (path && g->source_count == g->source_room) {
    size_t room = g->source_room ? 2 * g->source_room : 64;
    struct nt_source *grown = realloc(g->sources, room * sizeof *grown);
    if (grown) {
      g->sources = grown;
      g->source_room = room;
    }
  }
  if (!path || g->source_count == g->source_room) {
    free(path);
    g->status = -NT_ERR_MEMORY;
    return NULL;
  }
  struct nt_source *source = &g->sources[g->source_count++];
  memset(source, 0, sizeof *source);
  source->path = path;
  return source;
}

/* False if there is nothing in the file that could be read here: it is a trace, or is refused as one. */
static bool add_foreign(struct gather *g, const char *path, bool named, bool deep) {
  enum nt_recorder recorder = nt_source_detect(path, named, deep);
  struct stat status = {0};
  if (recorder == NT_RECORDER_TRACE || stat(path, &status) != 0)
    return false;
  for (int i = 0; i < g->foreign_count; i++)
    if (g->foreign[i].device == status.st_dev && g->foreign[i].inode == status.st_ino)
      return true; /* named twice */
  struct foreign *list = realloc(g->foreign, ((size_t)g->foreign_count + 1) * sizeof *list);
  char *copy = list ? strdup(path) : NULL;
  if (list)
    g->foreign = list;
  if (copy)
    list[g->foreign_count++] = (struct foreign){copy, recorder, status.st_dev, status.st_ino};
  else
    g->status = -NT_ERR_MEMORY;
  return true;
}

/* What has the name of a trace is looked at when it is read: there are many. */
static void add_file(struct gather *g, const char *path) {
  if (has_suffix(path) || !add_foreign(g, path, true, true))
    add_source(g, strdup(path));
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry) {
  return entry->d_name[0] != '.' || has_suffix(entry->d_name);
}

bool nt_gather_is_file(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 ? !S_ISDIR(status.st_mode) : has_suffix(path);
}

static void add_strange(struct gather *g, const char *path) {
  if (g->strange_count == g->strange_room) {
    const size_t room = g->strange_room ? 2 * g->strange_room : 64;
    char **grown = realloc(g->strange, room * sizeof *grown);
    if (!grown)
      return; /* it would only be named */
    g->strange = grown;
    g->strange_room = room;
  }
  g->strange[g->strange_count] = strdup(path);
  g->strange_count += g->strange[g->strange_count] != NULL;
}

/* Resolved where it is there; as one of the root where it is not. The caller frees it. */
static char *resolve(const char *path) {
  char *real = realpath(path, NULL), *own = NULL;
  if (real || *path == '/')
    return real ? real : strdup(path);
  own = getcwd(NULL, 0);
  if (own && asprintf(&real, "%s/%s", own, path + (strncmp(path, "./", 2) ? 0 : 2)) < 0)
    real = NULL;
  free(own);
  return real;
}

/* Its traces, and whatever else can be read. Why `alone` could not be read is said in the end, if nothing is found. */
static void add_directory(struct gather *g, const char *path, bool alone) {
  struct dirent **entries;
  int count = scandir(path, &entries, is_visible, by_name);
  const int error = errno;
  g->directories[g->directory_count] = resolve(path);
  g->directory_count += g->directories[g->directory_count] != NULL;
  if (count < 0) {
    if (!alone)
      refuse(g, path, error == ENOENT ? "does not exist" : strerror(error));
    return;
  }
  bool traces = false; /* then all else would only be noted, and is looked at but briefly */
  for (int i = 0; i < count; i++)
    traces |= has_suffix(entries[i]->d_name);
  for (int i = 0; i < count; i++) {
    char *file;
    if (asprintf(&file, "%s/%s", path, entries[i]->d_name) >= 0) {
      if (has_suffix(entries[i]->d_name))
        add_file(g, file);
      else if (!add_foreign(g, file, false, !traces))
        add_strange(g, file);
      free(file);
    } else {
      g->status = -NT_ERR_MEMORY;
    }
    free(entries[i]);
  }
  free(entries);
}

/* Is it one of a kind of which others were read? */
static bool is_alike(const struct gather *g, const char *path) {
  for (int i = 0; i < g->foreign_count; i++)
    if (nt_unusable_is_alike(g->foreign[i].path, path))
      return true;
  return false;
}

/* Files that are nothing known, but look as if they should be. Where nothing was read at all, those of which no more can be
 * said than that share a line. */
static void name_strange(struct gather *g) {
  const char *first = NULL, *unknown = NULL;
  char line[256];
  uint32_t told = 0, more = 0, shared = 0;
  for (size_t i = 0; i < g->strange_count; i++) {
    const char *path = g->strange[i];
    const bool meant = g->loaded ? is_alike(g, path) : nt_unusable_is_meant(path);
    const char *reason = meant ? nt_source_refusal(path) : NULL;
    if (!reason)
      continue;
    const bool shares = !g->loaded && nt_source_is_unknown(reason);
    if (shares && !shared++) {
      first = path;
      unknown = reason;
    }
    if (told++ < STRANGE_MAX) {
      nt_model_unreadable(&g->loader.model, path, reason);
      if (!shares)
        complain_of(g, path, reason);
    } else {
      more += !shares;
    }
  }
  if (shared > 1)
    snprintf(line, sizeof line, "%s; nor in %u more that are named like logs or dumps", unknown,
             shared - 1);
  if (shared)
    complain_of(g, first, shared > 1 ? line : unknown);
  if (more && g->look.complaints)
    fprintf(g->look.complaints, "tracediff: and %u more files that cannot be read\n", more);
}

/* The directory in which the area's file lies. */
static bool directory_of_file(const struct nt_area *area, char *out, size_t size) {
  const struct nt_area_header *header = area->header;
  if (!atomic_load_explicit(&header->file_ready, memory_order_acquire))
    return false;
  int length = snprintf(out, size, "%.*s", (int)sizeof header->file_path, header->file_path);
  char *slash = strrchr(out, '/');
  if (length < 0 || (size_t)length >= size || !slash)
    return false;
  *(slash == out ? slash + 1 : slash) = '\0';
  return true;
}

/* The directory that its process was told of: where it cannot be written the file lies elsewhere, or there is none. */
static bool directory_told(const struct nt_area *area, char *out, size_t size) {
  const struct nt_area_header *header = area->header;
  const char *key = "directory=";
  uint32_t length = atomic_load_explicit(&header->evidence_length, memory_order_acquire);
  length = length < header->evidence_size ? length : header->evidence_size;
  const char *line = memmem(area->evidence, length, key, strlen(key));
  if (!line)
    return false;
  line += strlen(key);
  const char *end = memchr(line, '\n', length - (size_t)(line - area->evidence));
  return end && snprintf(out, size, "%.*s", (int)(end - line), line) < (int)size;
}

static bool is_given(const struct gather *g, const char *directory) {
  char *real = resolve(directory);
  bool found = false;
  for (int i = 0; real && i < g->directory_count; i++)
    found |= !strcmp(real, g->directories[i]);
  free(real);
  return found;
}

/* Looks at the header only: a node may hold large traces of other jobs. */
static bool belongs(const struct gather *g, const char *path) {
  struct nt_area area;
  char directory[PATH_MAX];
  if (nt_area_open(path, 0, &area) != 0)
    return false;
  bool found = directory_of_file(&area, directory, sizeof directory) && is_given(g, directory);
  found = found || (directory_told(&area, directory, sizeof directory) && is_given(g, directory));
  nt_area_close(&area);
  return found;
}

static int add_area(const char *path, void *context) {
  struct gather *g = context;
  if (belongs(g, path))
    add_source(g, strdup(path));
  return 0;
}

/* An area that cannot be read is somebody else's business, or gone in the meantime. */
static void read_areas(struct gather *g) {
  FILE *complaints = g->look.complaints;
  nt_area_each(add_area, g);
  g->look.complaints = NULL;
  g->others = true;
  read_sources(g);
  g->look.complaints = complaints;
  g->others = false;
}

/* Loads all files of one kind; returns how many there are. */
static int load_kind(struct gather *g, enum nt_recorder recorder, bool wanted) {
  int count = 0;
  for (int i = 0; i < g->foreign_count; i++) {
    if (g->foreign[i].recorder != recorder)
      continue;
    count++;
    struct nt_source *source =
        wanted && !g->status ? add_source(g, strdup(g->foreign[i].path)) : NULL;
    if (source)
      source->recorder = recorder;
  }
  if (wanted && count)
    read_sources(g);
  return count;
}

/* Ranks of different sources are never judged together: they tell different things of one call. The first source that can
 * be read is judged: traces, dumps, logs. */
static void load_foreign(struct gather *g) {
  enum nt_recorder chosen = NT_RECORDER_TRACE;
  for (enum nt_recorder kind = NT_RECORDER_FLIGHT; kind <= NT_RECORDER_LOG; kind++) {
    const bool wanted = !g->loaded;
    const int count = load_kind(g, kind, wanted);
    if (wanted && g->loaded)
      chosen = kind;
    else if (count && g->loaded && !wanted)
      nt_model_note(&g->loader.model, "%d %s %s left out: what is judged are the %s", count,
                    nt_source_name(kind, count), count == 1 ? "was" : "were",
                    nt_source_name(chosen, 2));
  }
  if (g->loaded && !g->status)
    g->status = nt_source_finish(&g->loader.model, chosen);
}

static void free_gather(struct gather *g) {
  for (int i = 0; i < g->directory_count; i++)
    free(g->directories[i]);
  free(g->directories);
  for (int i = 0; i < g->foreign_count; i++)
    free(g->foreign[i].path);
  free(g->foreign);
  for (size_t i = 0; i < g->strange_count; i++)
    free(g->strange[i]);
  free(g->strange);
  free(g->sources);
  forget(g);
}

int nt_gather(char **paths, int count, const struct nt_look *look, struct nt_model *out) {
  struct gather g = {.look = *look};
  g.directories = calloc((size_t)count + 1, sizeof *g.directories);
  if (!g.directories)
    return -NT_ERR_MEMORY;
  for (int i = 0; i < count; i++)
    if (nt_gather_is_file(paths[i]))
      add_file(&g, paths[i]);
    else
      add_directory(&g, paths[i], count == 1);
  read_sources(&g);
  if (g.directory_count)
    read_areas(&g);
  load_foreign(&g);
  name_strange(&g);
  free_gather(&g);
  memset(out, 0, sizeof *out);
  if (g.status) {
    nt_trace_loader_free(&g.loader);
    return g.status;
  }
  int status = nt_trace_loader_finish(&g.loader, g.live_ns, out);
  if (!status)
    status = nt_find_idle_ranks(out);
  return status ? status : g.loaded;
}
