/* SPDX-License-Identifier: Apache-2.0 */
/* Shell completion, printed from commands.def. */
#ifndef CLIENT_TMACTL_COMPLETION_COMPLETION_H
#define CLIENT_TMACTL_COMPLETION_COMPLETION_H

#include "client/tmactl/commands.h"

void completion_bash(void);
void completion_zsh(void);
void completion_fish(void);

/* A doc as short as a completion's: its first part, before a semicolon, a bracket or a colon, in which every
 * byte of `escaped` has a backslash, or, for a single quote, what shells want inside of single quotes. */
void completion_print_doc(const char *doc, const char *escaped);

/* The words that an argument can be, with a space between two. */
void completion_print_words(enum words words);

#endif
