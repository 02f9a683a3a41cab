/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report for people: the verdict in one line, what is missing from the evidence, then for each finding
 * why, who, since when, and what to do. All text from traces is escaped.
 */
#include "tracediff/report.h"

#include <string.h>

#include "analysis/describe.h"
#include "cli/rank_name.h"
#include "cli/text.h"

#define RECENT_NS INT64_C(2000000000) /* without a call for so long, it may stand */

static void print_line(FILE *out, const char *indent, const char *text) {
  fputs(indent, out);
  nt_text_escape_print(out, text);
  fputc('\n', out);
}

static void print_missing(const struct nt_verdict *verdict, bool color, FILE *out) {
  char text[NT_DESCRIBE];
  uint32_t missing = nt_rank_set_count(&verdict->missing);
  if (missing)
    fprintf(out, "%s%u of %d ranks %s no trace: %s%s\n", nt_style_text(color, NT_STYLE_WARN),
            missing, verdict->job.model->expected, missing == 1 ? "has" : "have",
            nt_rank_set_text(text, sizeof text, &verdict->missing),
            nt_style_text(color, NT_STYLE_PLAIN));
}

static void print_notes(const struct nt_verdict *verdict, FILE *out) {
  for (uint32_t i = 0; i < verdict->notes.count; i++)
    print_line(out, "note: ", verdict->notes.line[i]);
}

static void print_stack(const struct nt_model_stack *stack, bool of_last, bool whole, FILE *out) {
  if (stack && of_last)
    fputs("    where it made its last call:\n", out);
  const char *indent = of_last ? "      " : "    ";
  const char *text = !stack ? "" : whole || !*stack->user ? stack->all : stack->user;
  while (*text) {
    size_t length = strcspn(text, "\n");
    fprintf(out, "%s%.*s\n", indent, (int)length, text);
    text += length + (text[length] == '\n');
    if (!whole && stack && text > stack->all && !*stack->user)
      break; /* nothing of the program: the innermost frame says where it is */
  }
}

static void print_culprit(const struct nt_verdict *verdict, const struct nt_culprit *culprit,
                          const struct nt_report_style *style, FILE *out) {
  char state[NT_FATE_TEXT], time[NT_TIME_TEXT], name[NT_RANK_NAME];
  if (culprit->rank == NT_NONE) {
    fprintf(out, "  rank %d: no trace\n", culprit->world);
    return;
  }
  const struct nt_model_rank *rank = &verdict->job.model->ranks[culprit->rank];
  nt_describe_state(state, sizeof state, rank);
  const bool same =
      culprit->now && (strstr(state, culprit->now) ||
                       (strcmp(state, "running") != 0 && strstr(culprit->now, state)));
  fprintf(out, "  %s", nt_describe_rank(name, sizeof name, rank));
  if (!same)
    fprintf(out, ": %s", state);
  if (culprit->thread)
    fprintf(out, ", its thread %u", culprit->thread);
  /* What it is in, or where, stands behind "now". */
  const bool inside = culprit->last && culprit->now && strstr(culprit->now, culprit->last);
  if (culprit->last && !inside) {
    fputs(", last call ", out);
    nt_text_escape_print(out, culprit->last);
  }
  if (culprit->at && !inside && !(culprit->now && strstr(culprit->now, culprit->at))) {
    fputs(" at ", out);
    nt_text_escape_print(out, culprit->at);
  }
  if (culprit->now) {
    bool gone = rank->state == NT_PROCESS_EXITED || rank->state == NT_PROCESS_VANISHED;
    fputs(culprit->dumped && gone ? ", last seen " : ", now ", out);
    nt_text_escape_print(out, culprit->now);
  }
  if (culprit->since_ns >= NT_TIME_FIRST && !(culprit->now && strstr(culprit->now, " since ")))
    fprintf(out, ", since %s", nt_time_short(time, culprit->since_ns));
  fputc('\n', out);
  print_stack(culprit->stack, culprit->of_last, style->full_stacks, out);
}

/* Of a finding that blames nobody: the whole stack of each rank, as far as there are some. */
static void print_stands(const struct nt_verdict *verdict, const struct nt_finding *finding,
                         bool color, FILE *out) {
  char name[NT_RANK_NAME];
  bool titled = false;
  for (uint32_t i = 0; i < finding->stand_count; i++) {
    const struct nt_culprit *stand = &finding->stands[i];
    if (!stand->stack)
      continue;
    if (!titled)
      fprintf(out, "%sstacks:%s\n", nt_style_text(color, NT_STYLE_BOLD),
              nt_style_text(color, NT_STYLE_PLAIN));
    titled = true;
    fprintf(out, "  %s",
            nt_describe_rank(name, sizeof name, &verdict->job.model->ranks[stand->rank]));
    if (stand->now) {
      fputs(": ", out);
      nt_text_escape_print(out, stand->now);
    }
    fputc('\n', out);
    print_stack(stand->stack, stand->of_last, true, out);
  }
}

static void print_lines(const char *title, const struct nt_lines *lines, bool color, FILE *out) {
  if (!lines->count)
    return;
  fprintf(out, "%s%s%s\n", nt_style_text(color, NT_STYLE_BOLD), title,
          nt_style_text(color, NT_STYLE_PLAIN));
  for (uint32_t i = 0; i < lines->count; i++)
    print_line(out, "  ", lines->line[i]);
}

static void print_headline(const struct nt_finding *finding, bool color, FILE *out) {
  fprintf(out, "%s%s%s", nt_style_text(color, NT_STYLE_BAD), nt_class_name(finding->class),
          nt_style_text(color, NT_STYLE_PLAIN));
  if (finding->class != NT_CLASS_UNDECIDED)
    fprintf(out, " (%s)", nt_confidence_name(finding->confidence));
  fputs(": ", out);
  nt_text_escape_print(out, finding->summary ? finding->summary : "");
  fputc('\n', out);
}

/* By which its ranks' traces and nccltrace call one without a name; 0: they do not agree, or no trace is ours. */
static uint32_t number_of(const struct nt_job *job, const struct nt_joint *joint) {
  uint32_t number = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const uint32_t own = nt_member_view(job, &joint->members[i])->number;
    if (nt_member_rank(job, &joint->members[i])->recorder != NT_RECORDER_TRACE ||
        (number && own != number))
      return 0;
    number = own;
  }
  return number;
}

static void print_finding(const struct nt_verdict *verdict, const struct nt_finding *finding,
                          const struct nt_report_style *style, FILE *out) {
  char text[NT_DESCRIBE], time[NT_TIME_TEXT];
  if (finding->joint != NT_NONE) {
    const struct nt_joint *joint = &verdict->job.joints[finding->joint];
    char label[NT_DESCRIBE];
    const char *name = nt_describe_joint(label, sizeof label, &verdict->job, finding->joint);
    fprintf(out, "communicator: %s, size %d", name, joint->size);
    if (*joint->name) /* else it is called by its ranks */
      fprintf(out, ", %s", nt_describe_ranks(text, sizeof text, &joint->worlds));
    else if (number_of(&verdict->job, joint))
      fprintf(out, ", comm %u in nccltrace", number_of(&verdict->job, joint));
    fputc('\n', out);
  }
  fprintf(out, "to blame: %s\n", nt_describe_ranks(text, sizeof text, &finding->blame));
  for (uint32_t i = 0; i < finding->culprit_count; i++)
    print_culprit(verdict, &finding->culprits[i], style, out);
  if (nt_rank_set_count(&finding->blame) > finding->culprit_count)
    fprintf(out, "  and %u more\n", nt_rank_set_count(&finding->blame) - finding->culprit_count);
  if (nt_rank_set_count(&finding->waiting))
    fprintf(out, "%s: %s\n", finding->only_called ? "called it" : "waiting",
            nt_describe_ranks(text, sizeof text, &finding->waiting));
  if (finding->since_ns >= NT_TIME_FIRST)
    fprintf(out, "since: %s\n", nt_time_text(time, finding->since_ns));
  if (style->full_stacks)
    print_stands(verdict, finding, style->color, out);
  print_lines("evidence:", &finding->evidence, style->color, out);
  print_lines("next:", &finding->next, style->color, out);
}

static void print_warnings(const struct nt_verdict *verdict, bool color, FILE *out) {
  for (uint32_t i = 0; i < verdict->warning_count; i++) {
    const struct nt_finding *warning = &verdict->warnings[i];
    fprintf(out, "\n%swarning%s (%s): ", nt_style_text(color, NT_STYLE_WARN),
            nt_style_text(color, NT_STYLE_PLAIN), nt_class_name(warning->class));
    nt_text_escape_print(out, warning->summary ? warning->summary : "");
    fputc('\n', out);
    for (uint32_t j = 0; j < warning->evidence.count; j++)
      print_line(out, "  ", warning->evidence.line[j]);
    for (uint32_t j = 0; j < warning->next.count; j++)
      print_line(out, "  next: ", warning->next.line[j]);
  }
}

char *nt_report_motion(char *out, size_t size, const struct nt_verdict *verdict) {
  const struct nt_model *model = verdict->job.model;
  uint32_t alive = 0;
  int64_t last = 0;
  char ago[NT_DURATION_TEXT];
  out[0] = '\0';
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const struct nt_model_rank *rank = &model->ranks[r];
    alive += !nt_model_is_over(rank);
    for (uint32_t i = 0; i < rank->call_count; i++) {
      const struct nt_model_call *call = &rank->calls[i];
      int64_t end = call->exit_ns > call->enter_ns ? call->exit_ns : call->enter_ns;
      last = end > last ? end : last;
    }
  }
  if (verdict->over || verdict->moving || !model->rank_count ||
      model->ranks[0].recorder != NT_RECORDER_TRACE)
    return out; /* said already, or not known */
  if (!alive)
    snprintf(out, size, "all processes%s have ended",
             nt_rank_set_count(&verdict->missing) ? " with a trace" : "");
  else if (alive < model->rank_count)
    snprintf(out, size, "%u of %u processes have ended", model->rank_count - alive,
             model->rank_count);
  else if (model->now_ns && last && model->now_ns - last < RECENT_NS)
    snprintf(out, size, "the job moves");
  else if (model->now_ns > last && last)
    snprintf(out, size, "all processes are alive, the last call was %s ago",
             nt_duration_text(ago, model->now_ns - last));
  return out;
}

static const char *why_consistent(const struct nt_verdict *verdict) {
  const struct nt_model *model = verdict->job.model;
  if (model->rank_count && model->ranks[0].recorder == NT_RECORDER_LOG)
    return "the calls agree; whether they finished cannot be told from NCCL logs";
  if (verdict->over)
    return "the ranks' calls agree up to the moment at which all processes ended; what was under "
           "way "
           "then cannot be told from a job that was stopped as it ran";
  if (verdict->moving)
    return "no divergence, and the ranks that are behind still make calls or have been so for less "
           "than "
           "a second";
  if (nt_rank_set_count(&verdict->missing))
    return "what was read shows nothing unfinished and nothing that differs";
  return "nothing is outstanding, and the ranks' calls agree";
}

/* What limits the sentence above; "" where every rank has a trace. */
static const char *but_for_missing(char *out, size_t size, const struct nt_verdict *verdict) {
  uint32_t missing = nt_rank_set_count(&verdict->missing);
  out[0] = '\0';
  if (missing)
    snprintf(out, size, "; %u of %d ranks %s no trace, and what %s would show is not known",
             missing, verdict->job.model->expected, missing == 1 ? "has" : "have",
             missing == 1 ? "it" : "they");
  return out;
}

int nt_report_text(const struct nt_verdict *verdict, const struct nt_report_style *style,
                   FILE *out) {
  bool color = style->color;
  if (!verdict->count) {
    char coverage[NT_COVERAGE], motion[NT_MOTION], missing[NT_COVERAGE];
    nt_report_motion(motion, sizeof motion, verdict);
    fprintf(out, "%sconsistent%s: %s%s%s%s (%s)\n", nt_style_text(color, NT_STYLE_GOOD),
            nt_style_text(color, NT_STYLE_PLAIN), why_consistent(verdict),
            but_for_missing(missing, sizeof missing, verdict), *motion ? "; " : "", motion,
            nt_verdict_coverage(coverage, sizeof coverage, verdict));
    print_missing(verdict, color, out);
    print_notes(verdict, out);
    print_warnings(verdict, color, out);
    return ferror(out) ? -1 : 0;
  }
  print_headline(&verdict->findings[0], color, out);
  print_missing(verdict, color, out);
  print_notes(verdict, out);
  for (uint32_t i = 0; i < verdict->count; i++) {
    fputc('\n', out);
    if (i)
      print_headline(&verdict->findings[i], color, out);
    print_finding(verdict, &verdict->findings[i], style, out);
  }
  print_warnings(verdict, color, out);
  return ferror(out) ? -1 : 0;
}
