/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the loads: submits a request, then waits for the one submitted load->depth before it. */
#include "neighbour_load.h"

#include <stdlib.h>

#include "figures.h"
#include "transpose.h"

void memory_init(struct memory *memory, tma_client *client, enum side side, size_t size)
{
	*memory = (struct memory){ 0 };
	if (side == SIDE_HOST) {
		must(client, tma_region_create_kind(client, TMA_REGION_MEMFD, size, &memory->region));
		return;
	}
	memory->device = rig_new(size);
	must(client,
	     tma_region_from_device_ptr(client, (const void *)memory->device, size, 0, &memory->region));
}

void memory_deinit(struct memory *memory)
{
	tma_region_release(memory->region);
	if (memory->device)
		rig_free(memory->device);
}

void load_init_square(struct load *load, tma_client *client, const struct memory *dst,
                      const struct memory *src, int64_t n)
{
	*load = (struct load){ .client = client, .depth = 1, .bytes = 8.0 * (double)(n * n) };
	load->dst =
	    (struct tma_tensor){ .region = dst->region, .dtype = TMA_FLOAT32, .rank = 2, .shape = { n, n } };
	load->src = load->dst;
	load->src.region = src->region;
	load->transform =
	    (struct tma_transform){ .dst = &load->dst, .src = &load->src, .perm = transpose_perm };
}

void load_init_copy(struct load *load, tma_client *client, const struct memory *dst, const struct memory *src,
                    size_t bytes)
{
	*load = (struct load){ .client = client, .depth = 1, .bytes = 2.0 * (double)bytes };
	load->dst = (struct tma_tensor){
		.region = dst->region, .dtype = TMA_UINT8, .rank = 1, .shape = { (int64_t)bytes }
	};
	load->src = load->dst;
	load->src.region = src->region;
	load->transform = (struct tma_transform){ .dst = &load->dst, .src = &load->src };
}

static int32_t *shuffled(uint32_t n)
{
	int32_t *index = malloc(n * sizeof *index);

	if (!index)
		rig_die("out of memory");
	srand(11);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t at = (uint32_t)rand() % (i + 1);

		index[i] = index[at];
		index[at] = (int32_t)i;
	}
	return index;
}

void load_init_blocks(struct load *load, tma_client *client, enum load_kind kind, const struct memory *dst,
                      const struct memory *src, uint32_t n, uint32_t block_bytes)
{
	load_init_copy(load, client, dst, src, block_bytes);
	load->kind = kind;
	load->bytes *= n;
	load->index = shuffled(n);
	load->blocks = (struct tma_blocks){ .transform = &load->transform,
		                            .count = n,
		                            .index_dtype = TMA_INT32,
		                            .index = load->index,
		                            .limit = n };
}

void load_deinit(struct load *load)
{
	free(load->index);
}

static void submit(struct load *load, tma_ticket *ret)
{
	switch (load->kind) {
	case LOAD_TRANSFORM:
		must(load->client, tma_submit(load->client, &load->transform, ret));
		break;
	case LOAD_GATHER:
		must(load->client, tma_submit_gather(load->client, &load->blocks, ret));
		break;
	case LOAD_SCATTER:
		must(load->client, tma_submit_scatter(load->client, &load->blocks, ret));
		break;
	}
}

int load_keep_busy(struct load *load, load_go_on *go_on, void *arg, double *ret_ns)
{
	tma_ticket ticket[LOAD_DEPTH];
	int sent = 0, done = 0;

	*ret_ns = 0;
	while (done < sent || go_on(arg, sent)) {
		struct tma_result result;

		if (sent - done < load->depth && go_on(arg, sent)) {
			submit(load, &ticket[sent++ % load->depth]);
			continue;
		}
		must(load->client, tma_wait(load->client, ticket[done++ % load->depth], &result));
		*ret_ns += (double)result.ns;
	}
	return done;
}

static bool is_below(void *arg, int sent)
{
	return sent < *(const int *)arg;
}

void load_repeat(struct load *load, int n)
{
	double ns;

	load_keep_busy(load, is_below, &n, &ns);
}

static bool is_before(void *arg, int sent)
{
	(void)sent;
	return now_us() < *(const double *)arg;
}

double load_rate(struct load *load, double seconds)
{
	const double start = now_us();
	double end = start + seconds * 1e6, ns;
	const int n = load_keep_busy(load, is_before, &end, &ns);

	return load->bytes * n / (now_us() - start) / 1e3;
}
