/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of arguments that hold nothing to judge. */
#ifndef NT_UNUSABLE_H
#define NT_UNUSABLE_H

#include <stdbool.h>

/* Why there is no verdict, as one line: of the first of the paths that is no file, or of all. `implied`: the user named
 * none of them. The caller frees it; NULL when there is no memory. */
char *nt_unusable_text(char **paths, int count, bool implied);

/* The directory of a file in which more traces lie; NULL if there are none. The caller frees it. */
char *nt_unusable_beside(const char *path);

/* Does a file of this name look like a dump, a log or a trace of a rank? */
bool nt_unusable_is_meant(const char *path);
/* Are the names of two files alike but for their numbers and for what compression adds, in one directory? */
bool nt_unusable_is_alike(const char *a, const char *b);

#endif
