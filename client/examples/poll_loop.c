/* SPDX-License-Identifier: Apache-2.0 */
/* Submits transforms and takes their tickets as they end, in a poll loop that
 * can serve other descriptors as well. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <tmaclient.h>

enum { JOBS = 8, SIZE = 256, BYTES = SIZE * SIZE * sizeof(float) };

struct job {
	int number, status;
};

static int submit(tma_client *client, struct job *jobs)
{
	struct tma_tensor src = {
		.dtype = TMA_FLOAT32,
		.rank = 2,
		.shape = { SIZE, SIZE },
	};
	struct tma_tensor dst = src;
	const int perm[] = { 1, 0 };
	tma_ticket ticket;
	int r;

	r = tma_region_create_kind(client, TMA_REGION_MEMFD, BYTES,
	                           &src.region);
	if (r == 0)
		r = tma_region_create_kind(client, TMA_REGION_MEMFD,
		                           JOBS * BYTES, &dst.region);
	for (int i = 0; i < JOBS && r == 0; i++, dst.offset += BYTES) {
		struct tma_order order = { .user = &jobs[i] };
		struct tma_transform transform = {
			.dst = &dst,
			.src = &src,
			.perm = perm,
			.order = &order,
		};

		jobs[i].number = i;
		r = tma_submit(client, &transform, &ticket);
	}
	return r;
}

/* Takes the tickets that have ended, and returns TMA_PENDING while there are
 * others. */
static int take_all(tma_client *client)
{
	struct tma_completed done;
	int r;

	while ((r = tma_next(client, 0, &done)) == 0) {
		struct job *job = done.user;

		job->status = done.result.status;
		printf("%d: %s\n", job->number,
		       job->status < 0 ? tma_last_error(client)
		                       : done.result.path);
	}
	return r;
}

static int run(tma_client *client)
{
	struct job jobs[JOBS] = { 0 };
	int r = submit(client, jobs);

	/* If the connection is lost, all tickets end, and so does the loop. */
	while (take_all(client) == TMA_PENDING) {
		struct pollfd own = {
			.fd = tma_fd(client),
			.events = tma_events(client),
		};

		if (poll(&own, 1, -1) < 0 && errno != EINTR)
			return TMA_INTERNAL;
		tma_dispatch(client);
	}
	for (int i = 0; i < JOBS && r == 0; i++)
		r = jobs[i].status;
	return r;
}

int main(void)
{
	tma_client *client = tma_new();
	int r = client ? tma_connect(client, NULL) : TMA_NO_MEMORY;

	if (r == 0)
		r = run(client);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", tma_status_name(r),
		        client ? tma_last_error(client) : "");
	tma_free(client);
	return r < 0;
}
