/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl layouts: lists the library's named layouts. It needs no service. */
#include "tmactl.h"

#include <stdio.h>
#include <string.h>

#include "client/tmactl/terminal/colour.h"
#include "client/tmactl/terminal/print.h"

enum { ORDER_COLUMN = 20, DOC_COLUMN = 38 };

static void print_row(const tma_layout *layout)
{
	int at = printf("%-*s", ORDER_COLUMN, tma_layout_name(layout));

	at += printf("%-*s", DOC_COLUMN - ORDER_COLUMN, tma_layout_order(layout));
	print_wrapped(tma_layout_doc(layout), DOC_COLUMN, at);
}

static void print_kind(const char *title, bool is_blocked)
{
	const tma_layout *layout;

	printf("%s%s%s\n", colour(COLOUR_BOLD), title, colour(COLOUR_NONE));
	for (size_t i = 0; (layout = tma_layout_at(i)); i++)
		if (tma_layout_is_blocked(layout) == is_blocked)
			print_row(layout);
}

static void print_member(const char *name, const char *text)
{
	printf("\"%s\": ", name);
	print_json_string(text, strlen(text), 1);
	printf(", ");
}

static void print_json(void)
{
	const tma_layout *layout;

	for (size_t i = 0; (layout = tma_layout_at(i)); i++) {
		printf("%s\n  {", i ? "," : "[");
		print_member("name", tma_layout_name(layout));
		print_member("order", tma_layout_order(layout));
		print_member("doc", tma_layout_doc(layout));
		printf("\"blocked\": %s}", tma_layout_is_blocked(layout) ? "true" : "false");
	}
	puts("\n]");
}

int cmd_layouts(struct tmactl *t, int argc, char **argv)
{
	if (!tmactl_no_arguments(t, argc, argv)) {
		if (t->json) {
			print_json();
		} else {
			print_kind("KV caches", false);
			print_kind("\nblocked tensors", true);
		}
	}
	return tmactl_report(t);
}
