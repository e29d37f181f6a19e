/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one user's connections of the soak test one after the other, each with mixed work for a while.
 *
 *    soak SOCKET SEED UID    works until standard input ends, then prints one line of counts and the errors
 *                            that it provoked:
 *        CONNECTIONS CALLS TRANSFORMS [STATUS=COUNT...]
 *
 * It exits with 1 at the first unexpected answer.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mixed.h"
#include "tests/support/oracle.h"

#define LONGEST 3000 /* steps of a connection */

static struct {
	uint64_t connections, calls, transforms;
	uint64_t provoked[STATUS_COUNT];
} total;

static bool is_over(void)
{
	struct pollfd end = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&end, 1, 0) != 0;
}

static void count(const struct mixed *m)
{
	total.connections++;
	total.calls += m->calls;
	total.transforms += m->transforms;
	for (int i = 0; i < STATUS_COUNT; i++)
		total.provoked[i] += m->provoked[i];
}

/* Frees half of the connections without releasing what they hold. */
static bool connection(const char *path, uint64_t *state)
{
	struct mixed m = { .client = tma_new(), .state = oracle_random(state) };
	int64_t steps = oracle_between(state, 1, oracle_between(state, 1, LONGEST));
	int status = tma_connect(m.client, path);
	bool good = status == TMA_OK;

	if (!good)
		snprintf(m.why, sizeof m.why, "connect: %s", tma_last_error(m.client));
	for (int64_t i = 0; good && i < steps && !is_over(); i++)
		good = mixed_step(&m);
	if (good && oracle_between(state, 0, 1))
		good = mixed_end(&m);
	if (!good)
		fprintf(stderr, "%s\n", m.why);
	count(&m);
	tma_free(m.client);
	return good;
}

int main(int argc, char **argv)
{
	bool good = true;
	uint64_t state;
	uid_t uid;

	if (argc != 4) {
		fprintf(stderr, "usage: soak SOCKET SEED UID\n");
		return 2;
	}
	state = strtoull(argv[2], NULL, 10);
	uid = (uid_t)atol(argv[3]);
	if (uid != getuid() && (setgid(uid) < 0 || setuid(uid) < 0)) {
		perror("setuid");
		return 2;
	}
	while (good && !is_over())
		good = connection(argv[1], &state);
	printf("%llu %llu %llu", (unsigned long long)total.connections, (unsigned long long)total.calls,
	       (unsigned long long)total.transforms);
	for (int i = 0; i < STATUS_COUNT; i++)
		if (total.provoked[i])
			printf(" %s=%llu", tma_status_name(-i - 1), (unsigned long long)total.provoked[i]);
	putchar('\n');
	return !good;
}
