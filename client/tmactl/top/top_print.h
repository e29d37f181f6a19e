/* A look, for people and for programs. */
#ifndef CLIENT_TMACTL_TOP_TOP_PRINT_H
#define CLIENT_TMACTL_TOP_TOP_PRINT_H

#include "snapshot.h"

/* note: a line above the table, "": none. columns and lines: of the terminal; 0: as many as are needed. */
void top_print(FILE *file, const struct look *look, enum sort_key key, const char *note, int columns,
               int lines);

/* One line. look NULL: the service did not answer, and error says why. */
void top_print_json(const struct look *look, const char *error);

#endif
