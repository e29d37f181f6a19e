/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds: the usual introductory examples of the Tensor Memory Accelerator, run on whatever GPU the driver
 * finds.
 *
 * A launch that fails ends its context, and the process cannot get another. Therefore a child runs the cases:
 * it exits after such a case, and the next child continues with the case after it.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"
#include "tests/support/tap.h"

#define MAX_LOST 60 /* children lost after which the test gives up */

enum { NO_GPU = RIG_LOST + 1 };

static int run_cases(void)
{
	const char *reason = rig_open();

	if (reason) {
		tap_skip_all("%s", reason);
		return NO_GPU;
	}
	tap_note("%s, from case %d", rig_device_name(), tap_count() + 1);
	cases_of_barriers();
	case_bulk();
	case_mojo();
	case_half_tile();
	cases_of_multicast();
	cases_of_copies();
	cases_of_moves();
	cases_of_ranks();
	cases_of_types();
	cases_of_swizzles();
	cases_of_element_strides();
	cases_of_interleaves();
	if (rig_is_lost())
		return RIG_LOST;
	rig_close();
	return 0;
}

/* Runs the cases and returns the child's exit status. */
static int run_child(void)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		exit(run_cases());
	if (child < 0 || waitpid(child, &status, 0) < 0)
		tap_bail_out("no child process");
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	tap_case(false, "ended by signal %d", WTERMSIG(status));
	return RIG_LOST;
}

int main(void)
{
	int lost = 0, end;

	tap_share();
	do {
		end = run_child();
	} while (end == RIG_LOST && ++lost < MAX_LOST);
	if (end == NO_GPU)
		return 0;
	if (end != 0)
		tap_bail_out("%d launches failed, after %d cases", lost, tap_count());
	return tap_end();
}
