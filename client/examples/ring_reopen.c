/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes the matrices that arrive on standard input, across restarts of the
 * service. A ring ends with its connection; opening another one reconnects,
 * which also restores the regions and the plan. A run that was in flight may or
 * may not have ended, and is repeated: this is harmless, because nobody else
 * uses its memory. */
#include <stdio.h>
#include <tmaclient.h>

enum { SIZE = 64, BYTES = SIZE * SIZE * sizeof(float) };

static int run_once(tma_ring *ring, const tma_plan *plan, struct tma_place dst,
                    struct tma_place src)
{
	struct tma_ring_end end;
	int r = tma_ring_push(ring, plan, dst, src, 0);

	if (r == 0)
		r = tma_ring_wait(ring, 20, &end);
	return r == 0 ? end.status : r;
}

static int run(tma_client *client, tma_ring **ring, const tma_plan *plan,
               struct tma_place dst, struct tma_place src)
{
	int r = *ring ? run_once(*ring, plan, dst, src) : TMA_DISCONNECTED;

	if (r != TMA_DISCONNECTED)
		return r;
	tma_ring_close(*ring);
	*ring = NULL;
	r = tma_ring_open(client, 2, 100, ring);
	return r == 0 ? run_once(*ring, plan, dst, src) : r;
}

static int filter(tma_client *client)
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
	tma_ring *ring = NULL;
	tma_plan *plan;
	int r;

	r = tma_region_create_kind(client, TMA_REGION_MEMFD, BYTES,
	                           &src.region);
	if (r == 0)
		r = tma_region_create_kind(client, TMA_REGION_MEMFD, BYTES,
		                           &dst.region);
	if (r == 0)
		r = tma_plan_prepare(client, &transform, &plan);
	while (r == 0 &&
	       fread(tma_region_data(src.region), BYTES, 1, stdin) == 1) {
		r = run(client, &ring, plan, dst, src);
		if (r == 0) {
			fwrite(tma_region_data(dst.region), BYTES, 1, stdout);
			fflush(stdout);
		}
	}
	fprintf(stderr, "reconnected %u times\n",
	        (unsigned)tma_reconnects(client));
	return r;
}

int main(void)
{
	tma_client *client = tma_new();
	int r = client ? tma_connect(client, NULL) : TMA_NO_MEMORY;

	if (r == 0)
		r = filter(client);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", tma_status_name(r),
		        client ? tma_last_error(client) : "");
	tma_free(client);
	return r < 0;
}
