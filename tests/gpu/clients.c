/* Client processes with device memory, through libtmaclient, of a tmad on the device: what they share and
 * move, what they get wrong, how they die, and how the device does.
 *
 *   clients TMAD ASTRAY     TAP. TMAD: the service; ASTRAY: that of tests/support/astray.c
 */
#include "clients.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/tap.h"

int main(int argc, char **argv)
{
	struct service service;
	char why[512];

	if (argc != 3 || access(argv[1], X_OK) < 0 || access(argv[2], X_OK) < 0) {
		fprintf(stderr, "usage: clients TMAD ASTRAY, which are programs\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (!service_start(&service, argv[1], why, sizeof why))
		return tap_skip_all("%s", why);
	memory_cases(&service);
	refusal_cases(&service);
	kill_cases(&service);
	tap_case(service_stop(&service), "the service ends as it is asked to");
	loss_cases(argv[2]);
	return tap_end();
}
