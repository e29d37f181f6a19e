/* SPDX-License-Identifier: Apache-2.0 */
/* Writes SVG elements to a file in the order of the calls. Lengths are in user units, which are pixels unless
 * the drawing is scaled. Texts are escaped. Errors are left in the file (ferror). */
#ifndef CLIENT_TMACTL_EXPLAIN_SVG_H
#define CLIENT_TMACTL_EXPLAIN_SVG_H

#include <stdio.h>

/* How a text is aligned at its x. The text's size and colour come from its class in the style sheet that
 * svg_begin() writes. */
enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

void svg_begin(FILE *file, int width, int height, const char *title);
void svg_end(FILE *file);

/* Opens a group, which contains all elements up to the matching svg_group_end(). id may be NULL. */
void svg_group(FILE *file, const char *id);
void svg_group_end(FILE *file);

void svg_rect(FILE *file, int x, int y, int width, int height, const char *fill, const char *class);
void svg_line(FILE *file, int x1, int y1, int x2, int y2, const char *class);

__attribute__((format(printf, 6, 7))) void svg_text(FILE *file, int x, int y, enum svg_anchor anchor,
                                                    const char *class, const char *format, ...);

/* Writes text as character data or the value of an attribute. Control characters, which XML does not allow,
 * become '?'. */
void svg_escape(FILE *file, const char *text);

#endif
