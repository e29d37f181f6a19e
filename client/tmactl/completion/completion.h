/* SPDX-License-Identifier: Apache-2.0 */
/* Prints shell completion scripts, generated from commands.def, to standard output. */
#ifndef CLIENT_TMACTL_COMPLETION_COMPLETION_H
#define CLIENT_TMACTL_COMPLETION_COMPLETION_H

#include "client/tmactl/commands.h"

void completion_bash(void);
void completion_zsh(void);
void completion_fish(void);

/* Prints the first clause of an option's documentation, which is short enough for a completion. Each byte
 * that occurs in `escaped` gets a backslash; a single quote becomes '\'' instead, which is right inside
 * single quotes. */
void completion_print_doc(const char *doc, const char *escaped);

/* Prints the values that an argument can have, separated by spaces. */
void completion_print_words(enum words words);

#endif
