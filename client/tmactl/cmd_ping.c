/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl ping: checks whether the service answers, and how fast. */
#include "tmactl.h"

#include <stdio.h>

#include "proto/clock.h"

static int ping(struct tmactl *t, tma_client *client)
{
	uint64_t start = clock_ns();
	double us;

	if (tma_ping(client) < 0)
		return tmactl_refused(client, &t->error);
	us = (double)(clock_ns() - start) / 1e3;
	if (t->json)
		printf("{\"answered\": true, \"us\": %.1f}\n", us);
	else if (!t->quiet)
		printf("%s answered in %.0f us\n", tma_socket_path(client), us);
	return 0;
}

int cmd_ping(struct tmactl *t, int argc, char **argv)
{
	tma_client *client;

	if (!tmactl_no_arguments(t, argc, argv)) {
		client = tmactl_connect(t, &t->error);
		if (client)
			ping(t, client);
		tma_free(client);
	}
	return tmactl_report(t);
}
