/* tmactl regions: the regions of its own connection, which is to say what region_list answers. */
#include "tmactl.h"

#include <stdio.h>

#include "print.h"

static void print_regions(const tma_document *regions)
{
	size_t count = tma_document_count(regions);

	for (size_t i = 0; i < count; i++) {
		if (i)
			putchar('\n');
		print_map(tma_document_at(regions, i, NULL));
	}
	if (!count)
		puts("no regions: the service shows a connection its own, and this one has made none "
		     "(tmactl stats counts all)");
}

int cmd_regions(struct tmactl *t, int argc, char **argv)
{
	tma_document *regions = NULL;
	tma_client *client = NULL;

	if (!tmactl_no_arguments(t, argc, argv))
		client = tmactl_connect(t, &t->error);
	if (client && tma_regions(client, &regions) < 0)
		tmactl_refused(client, &t->error);
	else if (regions && t->json)
		tmactl_print_json(t, regions);
	else if (regions)
		print_regions(regions);
	tma_document_free(regions);
	tma_free(client);
	return tmactl_report(t);
}
