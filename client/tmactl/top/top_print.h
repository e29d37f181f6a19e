/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a snapshot, for people or for programs. */
#ifndef CLIENT_TMACTL_TOP_TOP_PRINT_H
#define CLIENT_TMACTL_TOP_TOP_PRINT_H

#include "snapshot.h"

/* Prints the snapshot as text. note is a line above the table; "" means none. columns and lines are the size
 * of the terminal, to which the output is cut; 0 means no limit. */
void top_print(FILE *file, const struct snapshot *snapshot, enum sort_key key, const char *note, int columns,
               int lines);

/* Prints the snapshot as JSON on one line. If snapshot is NULL, the service did not answer, and error says
 * why. */
void top_print_json(const struct snapshot *snapshot, const char *error);

#endif
