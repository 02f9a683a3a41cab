/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings: ranks that run with another version of NCCL, or with other settings of it; settings known to do harm. */
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "cli/text.h"

#define WARNINGS_MAX 16

/* One setting of one rank; the text is the rank's, "NAME=VALUE" up to a line's end. */
struct setting {
  const char *text;
  size_t name, length;
  uint32_t rank;
};

static int by_name(const struct setting *x, const struct setting *y) {
  int order = strncmp(x->text, y->text, x->name < y->name ? x->name : y->name);
  return order ? order : x->name < y->name ? -1 : x->name > y->name;
}

static int by_setting(const void *a, const void *b) {
  const struct setting *x = a, *y = b;
  int order = by_name(x, y);
  if (!order)
    order = strncmp(x->text, y->text, x->length < y->length ? x->length : y->length);
  if (!order)
    order = x->length < y->length ? -1 : x->length > y->length;
  return order ? order : x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool same_value(const struct setting *x, const struct setting *y) {
  return x->length == y->length && !memcmp(x->text, y->text, x->length);
}

static uint32_t list_settings(const struct nt_model *model, struct setting *out) {
  uint32_t count = 0;
  for (uint32_t r = 0; r < model->rank_count; r++)
    for (const char *at = model->ranks[r].nccl_env; at && *at;) {
      size_t length = strcspn(at, "\n"), name = strcspn(at, "=");
      if (out)
        out[count] = (struct setting){at, name < length ? name : length, length, r};
      count++;
      at += length + (at[length] == '\n');
    }
  return count;
}

static struct nt_finding *warn(struct nt_inquiry *inquiry) {
  struct nt_finding *finding = nt_inquiry_warn(inquiry, NT_CLASS_CONFIG, NT_NONE);
  if (!finding)
    return NULL;
  finding->confidence = NT_CERTAIN;
  nt_lines_add(&finding->next,
               "run all ranks with one version of NCCL and the same settings of it");
  return finding;
}

/* Ranks with known settings that have none of these. */
static int find_unset(struct nt_inquiry *inquiry, const struct setting *list, uint32_t count,
                      struct nt_rank_set *out) {
  const struct nt_model *model = inquiry->job->model;
  bool *set = calloc((size_t)model->rank_count + 1, sizeof *set);
  int status = set ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < count && !status; i++)
    set[list[i].rank] = true;
  for (uint32_t r = 0; r < model->rank_count && !status; r++)
    if (model->ranks[r].nccl_env && !set[r])
      status = nt_finding_add(inquiry->job, out, r);
  free(set);
  return status;
}

/* Settings first … first + count - 1 have one name and not one value on all ranks. */
static int tell(struct nt_inquiry *inquiry, const struct setting *list, uint32_t count,
                uint32_t ranks) {
  struct nt_finding *finding = warn(inquiry);
  struct nt_rank_set unset = {0};
  char name[128], value[256], who[NT_DESCRIBE];
  if (!finding)
    return -NT_ERR_MEMORY;
  int status = find_unset(inquiry, list, count, &unset);
  snprintf(value, sizeof value, "%.*s", (int)list[0].name, list[0].text);
  nt_text_escape(name, sizeof name, value);
  for (uint32_t i = 0, n; i < count && !status; i += n) {
    struct nt_rank_set with = {0};
    for (n = 0; i + n < count && same_value(&list[i], &list[i + n]) && !status; n++)
      status = nt_finding_add(inquiry->job, &with, list[i + n].rank);
    char plain[200];
    snprintf(plain, sizeof plain, "%.*s", (int)(list[i].length < 190 ? list[i].length : 190),
             list[i].text);
    nt_text_escape(value, sizeof value, plain);
    if (finding->evidence.count < 8)
      nt_lines_add(&finding->evidence, "%s on %s", value,
                   nt_describe_ranks(who, sizeof who, &with));
    for (uint32_t w = nt_rank_set_next(&with, 0); n * 2 < ranks && w < NT_RANK_MAX && !status;
         w = nt_rank_set_next(&with, w + 1))
      status = nt_rank_set_add(&finding->blame, w);
    nt_rank_set_free(&with);
  }
  if (nt_rank_set_count(&unset))
    nt_lines_add(&finding->evidence, "not set on %s", nt_describe_ranks(who, sizeof who, &unset));
  for (uint32_t w = nt_rank_set_next(&unset, 0);
       nt_rank_set_count(&unset) * 2 < ranks && w < NT_RANK_MAX && !status;
       w = nt_rank_set_next(&unset, w + 1))
    status = nt_rank_set_add(&finding->blame, w);
  nt_rank_set_free(&unset);
  nt_finding_say(finding, "%s is not the same on all ranks", name);
  return status;
}

/* Settings that have hung or spoiled jobs, alike on all ranks or not. */
static const struct harmful {
  const char *name, *value; /* `value` stands in it, and not behind a ^ */
  const char *why;
} harmful[] = {
    /* https://github.com/NVIDIA/nccl/issues/750 */
    {"CUDA_LAUNCH_BLOCKING", "1",
     "a launch waits for the kernel, which may wait for work that NCCL hands over only after it"},
    /* NCCL's documentation of NCCL_PROTO */
    {"NCCL_PROTO", "LL128", "where hardware does not support LL128 it corrupts data"},
    /* NCCL's documentation of NCCL_GRAPH_MIXING_SUPPORT */
    {"NCCL_GRAPH_MIXING_SUPPORT", "0",
     "captured and other calls, or two graphs, that are outstanding at once may then hang"},
};

static bool does_harm(const struct setting *setting, const struct harmful *known) {
  const char *value = setting->text + setting->name;
  const char *found =
      memmem(value, setting->length - setting->name, known->value, strlen(known->value));
  return setting->name == strlen(known->name) &&
         !memcmp(setting->text, known->name, setting->name) && found && value[1] != '^';
}

static int judge_harmful(struct nt_inquiry *inquiry, const struct setting *list, uint32_t count) {
  char who[NT_DESCRIBE];
  int status = 0;
  for (size_t k = 0; k < sizeof harmful / sizeof *harmful && !status; k++) {
    struct nt_rank_set with = {0};
    for (uint32_t i = 0; i < count && !status; i++)
      if (does_harm(&list[i], &harmful[k]))
        status = nt_finding_add(inquiry->job, &with, list[i].rank);
    struct nt_finding *finding = nt_rank_set_count(&with) && !status
                                     ? nt_inquiry_warn(inquiry, NT_CLASS_CONFIG, NT_NONE)
                                     : NULL;
    if (finding) {
      finding->confidence = NT_LIKELY;
      nt_finding_say(finding, "%s=%s on %s: %s", harmful[k].name, harmful[k].value,
                     nt_describe_ranks(who, sizeof who, &with), harmful[k].why);
      nt_lines_add(&finding->next, "run without %s, unless it is a workaround that was measured",
                   harmful[k].name);
    }
    nt_rank_set_free(&with);
  }
  return status;
}

static int judge_environment(struct nt_inquiry *inquiry, uint32_t ranks) {
  uint32_t count = list_settings(inquiry->job->model, NULL);
  struct setting *list = malloc((count + 1) * sizeof *list);
  if (!list)
    return -NT_ERR_MEMORY;
  list_settings(inquiry->job->model, list);
  if (count)
    qsort(list, count, sizeof *list, by_setting);
  int status = ranks > 1 ? judge_harmful(inquiry, list, count) : 0;
  for (uint32_t i = 0, n; i < count && !status; i += n) {
    bool differs = false;
    for (n = 1; i + n < count && !by_name(&list[i], &list[i + n]); n++)
      differs |= !same_value(&list[i], &list[i + n]);
    if ((differs || n != ranks) && inquiry->verdict->warning_count < WARNINGS_MAX)
      status = tell(inquiry, &list[i], n, ranks);
  }
  free(list);
  return status;
}

static int judge_version(struct nt_inquiry *inquiry) {
  const struct nt_model *model = inquiry->job->model;
  const char *first = NULL, *other = NULL;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const char *own = model->ranks[r].nccl;
    first = first ? first : own;
    if (own && strcmp(own, first))
      other = own;
  }
  if (!other)
    return 0;
  struct nt_finding *finding = warn(inquiry);
  if (!finding)
    return -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < model->rank_count && finding->evidence.count < 16; r++) {
    char version[64];
    if (model->ranks[r].nccl)
      nt_lines_add(&finding->evidence, "rank %d: NCCL %s", model->ranks[r].world,
                   nt_text_escape(version, sizeof version, model->ranks[r].nccl));
  }
  nt_finding_say(finding, "the ranks run different versions of NCCL");
  return 0;
}

int nt_judge_settings(struct nt_inquiry *inquiry) {
  uint32_t ranks = 0;
  for (uint32_t r = 0; r < inquiry->job->model->rank_count; r++)
    ranks += inquiry->job->model->ranks[r].nccl_env != NULL;
  int status = judge_version(inquiry);
  return status ? status : judge_environment(inquiry, ranks);
}
