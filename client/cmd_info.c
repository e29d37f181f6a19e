/* tmactl info: what the service is and allows. */
#include "tmactl.h"

#include "print.h"

int cmd_info(struct tmactl *t, int argc, char **argv)
{
	tma_document *info = NULL;
	tma_client *client = NULL;

	if (!tmactl_no_arguments(t, argc, argv))
		client = tmactl_connect(t, &t->error);
	if (client && tma_info(client, &info) < 0)
		tmactl_refused(client, &t->error);
	else if (info && t->json)
		tmactl_print_json(t, info);
	else if (info)
		print_map(info);
	tma_document_free(info);
	tma_free(client);
	return tmactl_report(t);
}
