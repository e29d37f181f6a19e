/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a plan for each of 1000 matrices through a submission ring, with at most
 * 64 runs in flight. */
#include <stdio.h>
#include <tmaclient.h>

enum {
	RUNS = 1000,
	ENTRIES = 64,
	SIZE = 64,
	BYTES = SIZE * SIZE * sizeof(float)
};

static int run_all(tma_ring *ring, const tma_plan *plan, struct tma_place dst,
                   struct tma_place src)
{
	struct tma_ring_end end;
	int pushed = 0, r;

	for (int taken = 0; taken < RUNS; taken++) {
		while (pushed < RUNS && pushed - taken < ENTRIES) {
			r = tma_ring_push(ring, plan, dst, src, pushed);
			if (r < 0)
				return r;
			dst.offset += BYTES;
			src.offset += BYTES;
			pushed++;
		}
		r = tma_ring_wait(ring, 20, &end);
		if (r != 0)
			return r;
		if (end.status < 0) {
			fprintf(stderr, "run %d failed\n", (int)end.tag);
			return end.status;
		}
	}
	return 0;
}

static int transpose(tma_client *client)
{
	struct tma_tensor matrix = {
		.dtype = TMA_FLOAT32,
		.rank = 2,
		.shape = { SIZE, SIZE },
	};
	struct tma_transform transform = {
		.dst = &matrix,
		.src = &matrix,
		.perm = (const int[]){ 1, 0 },
	};
	struct tma_place src = { 0 }, dst = { 0 };
	tma_plan *plan;
	tma_ring *ring;
	float *data;
	int r;

	r = tma_region_create_kind(client, TMA_REGION_MEMFD, RUNS * BYTES,
	                           &src.region);
	if (r == 0)
		r = tma_region_create_kind(client, TMA_REGION_MEMFD,
		                           RUNS * BYTES, &dst.region);
	if (r == 0)
		r = tma_plan_prepare(client, &transform, &plan);
	if (r == 0)
		r = tma_ring_open(client, ENTRIES, 0, &ring);
	if (r < 0)
		return r;

	data = tma_region_data(src.region);
	for (int i = 0; i < RUNS * SIZE * SIZE; i++)
		data[i] = (float)i;
	r = run_all(ring, plan, dst, src);
	if (r != 0)
		return r;
	data = tma_region_data(dst.region);
	printf("%g %g %g ...\n", data[0], data[1], data[2]);
	return tma_ring_close(ring);
}

int main(void)
{
	tma_client *client = tma_new();
	int r = client ? tma_connect(client, NULL) : TMA_NO_MEMORY;

	if (r == 0)
		r = transpose(client);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", tma_status_name(r),
		        client ? tma_last_error(client) : "");
	tma_free(client);
	return r < 0;
}
