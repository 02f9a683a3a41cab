/* SPDX-License-Identifier: Apache-2.0 */
/* From which line of the program to which other the ranks went, and who of two went once as nobody else did. */
#ifndef NT_PASSAGES_H
#define NT_PASSAGES_H

#include "analysis/inquiry.h"

enum nt_passage_side {
  NT_PASSAGE_UNTOLD,
  NT_PASSAGE_OWNER,   /* it made a message too many */
  NT_PASSAGE_PARTNER, /* it left one out */
};

/*
 * Of a message without counterpart: which side once went another way than it always does, and than all who use that line.
 *
 * The partner left one out if it once went straight from a line to another, between which it calls at a third at all other
 * times, which has the message; the owner made one too many if its line stands once between two that it passes straight at all other
 * times. A loop that ended looks otherwise. Only where the records of both are whole and each has one thread that calls; nothing is
 * told where both, or neither, went such a way.
 */
enum nt_passage_side nt_passages_tell(const struct nt_inquiry *inquiry,
                                      const struct nt_p2p_end *end);

#endif
