/* SPDX-License-Identifier: Apache-2.0 */
/* Tests client processes with device memory that use a tmad on the device through libtmaclient: what they
 * share and move, how their streams and the service wait for each other, invalid requests, killed clients,
 * and a lost device.
 *
 *    clients TMAD ASTRAY [order]     Output is TAP. TMAD is the service, ASTRAY that of
 * tests/support/astray.c. order selects only how streams and the service wait for each other.
 */
#include "clients.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/tap.h"

int main(int argc, char **argv)
{
	struct service service;
	char why[512];
	const bool only_order = argc == 4 && strcmp(argv[3], "order") == 0;

	if ((argc != 3 && !only_order) || access(argv[1], X_OK) < 0 || access(argv[2], X_OK) < 0) {
		fprintf(stderr, "usage: clients TMAD ASTRAY [order], the two are programs\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (!service_start(&service, argv[1], why, sizeof why))
		return tap_skip_all("%s", why);
	order_cases(&service);
	if (!only_order) {
		memory_cases(&service);
		refusal_cases(&service);
		kill_cases(&service);
	}
	tap_case(service_stop(&service), "the service ends as it is asked to");
	if (!only_order)
		loss_cases(argv[2]);
	return tap_end();
}
