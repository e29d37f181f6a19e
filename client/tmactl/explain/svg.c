/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the few SVG elements that tmactl draws with, and their style sheet. */
#include "svg.h"

#include <stdarg.h>

static const char style[] =
    "text { font-family: system-ui, 'DejaVu Sans', sans-serif; fill: #1f2933 }\n"
    ".title { font-size: 22px; font-weight: 600 }\n"
    ".sub { font-size: 14px; fill: #52606d }\n"
    ".head { font-size: 15px; font-weight: 600 }\n"
    ".axis { font-size: 12px; fill: #52606d }\n"
    ".mono { font-family: 'DejaVu Sans Mono', ui-monospace, monospace; font-size: 11px }\n"
    ".dim { fill: #7b8794 }\n"
    ".cell { stroke: #ffffff; stroke-width: 1.5 }\n"
    ".mark { fill: none; stroke: #1f2933; stroke-width: 2 }\n"
    ".page { stroke: #e4e7eb }\n"
    ".rule { stroke: #cbd2d9 }\n";

void svg_begin(FILE *file, int width, int height, const char *title)
{
	fprintf(
	    file,
	    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
	    "<title>",
	    width, height, width, height);
	svg_escape(file, title);
	fprintf(file, "</title>\n<style>\n%s</style>\n", style);
	svg_rect(file, 0, 0, width, height, "#ffffff", "page");
}

void svg_end(FILE *file)
{
	fputs("</svg>\n", file);
}

void svg_group(FILE *file, const char *id)
{
	if (id)
		fprintf(file, "<g id=\"%s\">\n", id);
	else
		fputs("<g>\n", file);
}

void svg_group_end(FILE *file)
{
	fputs("</g>\n", file);
}

void svg_rect(FILE *file, int x, int y, int width, int height, const char *fill, const char *class)
{
	fprintf(file, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"", x, y, width, height);
	if (fill)
		fprintf(file, " fill=\"%s\"", fill);
	fprintf(file, " class=\"%s\"/>\n", class);
}

void svg_line(FILE *file, int x1, int y1, int x2, int y2, const char *class)
{
	fprintf(file, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" class=\"%s\"/>\n", x1, y1, x2, y2,
	        class);
}

void svg_text(FILE *file, int x, int y, enum svg_anchor anchor, const char *class, const char *format, ...)
{
	static const char *const anchors[] = { "start", "middle", "end" };
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" class=\"%s\">", x, y, anchors[anchor],
	        class);
	svg_escape(file, text);
	fputs("</text>\n", file);
}

void svg_escape(FILE *file, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '&')
			fputs("&amp;", file);
		else if (c == '<')
			fputs("&lt;", file);
		else if (c == '>')
			fputs("&gt;", file);
		else if (c == '"')
			fputs("&quot;", file);
		else if (c < 0x20 || c == 0x7f)
			fputc('?', file);
		else
			fputc(c, file);
	}
}
