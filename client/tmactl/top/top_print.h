/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a snapshot, for people or for programs. */
#ifndef CLIENT_TMACTL_TOP_TOP_PRINT_H
#define CLIENT_TMACTL_TOP_TOP_PRINT_H

#include "snapshot.h"

/* note: a line above the table, "": none. columns and lines: of the terminal; 0: as many as are needed. */
void top_print(FILE *file, const struct snapshot *snapshot, enum sort_key key, const char *note, int columns,
               int lines);

/* On one line. If snapshot is NULL, the service did not answer, and error says why. */
void top_print_json(const struct snapshot *snapshot, const char *error);

#endif
