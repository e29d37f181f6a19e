/* SPDX-License-Identifier: Apache-2.0 */
/* SVG, written as it is drawn. Lengths are in user units, a pixel unless it is scaled; texts are escaped. */
#ifndef CLIENT_TMACTL_EXPLAIN_SVG_H
#define CLIENT_TMACTL_EXPLAIN_SVG_H

#include <stdio.h>

/* How text stands: sizes and colours are classes of the style sheet that svg_begin writes. */
enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

void svg_begin(FILE *file, int width, int height, const char *title);
void svg_end(FILE *file);

/* A group that what follows is in, until its end; id may be NULL. */
void svg_group(FILE *file, const char *id);
void svg_group_end(FILE *file);

void svg_rect(FILE *file, int x, int y, int width, int height, const char *fill, const char *class);
void svg_line(FILE *file, int x1, int y1, int x2, int y2, const char *class);

__attribute__((format(printf, 6, 7))) void svg_text(FILE *file, int x, int y, enum svg_anchor anchor,
                                                    const char *class, const char *format, ...);

/* text as character data or an attribute's value. Bytes that no document may have become '?'. */
void svg_escape(FILE *file, const char *text);

#endif
