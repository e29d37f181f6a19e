/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the transpose and the ways to carry it out. */
#include "transpose.h"

const int transpose_perm[2] = { 1, 0 };

void must(tma_client *client, int r)
{
	if (r < 0)
		rig_die("%s", tma_last_error(client));
}

void transpose_init(struct transpose *transpose, struct rig *rig, tma_client *client, int64_t n)
{
	struct transform_spec spec = { .n_perm = 2, .perm = { 1, 0 }, .n_before = -1, .n_after = -1 };
	const size_t size = (size_t)(n * n) * 4;
	const int64_t shape[2] = { n, n };
	struct error err;

	*transpose = (struct transpose){ .rig = rig, .client = client };
	if (tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err) < 0 ||
	    tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, shape, NULL, "dst", &err) < 0 ||
	    transform_init(&transpose->transform, &spec, &err) < 0)
		rig_die("%s", err.message);
	for (int i = 0; i < 2; i++) {
		CUdeviceptr *memory = &transpose->memory[i];

		*memory = rig_new(size);
		rig_call(cuMemsetD8Async, (*memory, 0xa5, size, rig->stream));
		must(client, tma_region_from_device_ptr(client, (const void *)*memory, size, 0,
		                                        &transpose->region[i]));
		transpose->tensor[i] = (struct tma_tensor){
			.region = transpose->region[i], .dtype = TMA_FLOAT32, .rank = 2, .shape = { n, n }
		};
	}
	rig_plan(rig, &transpose->transform, transpose->memory[0], transpose->memory[1], &transpose->plan);
	rig_wait(rig);
}

void transpose_deinit(struct transpose *transpose)
{
	tma_ring_close(transpose->ring);
	tma_plan_release(transpose->prepared);
	for (int i = 0; i < 2; i++) {
		tma_region_release(transpose->region[i]);
		rig_free(transpose->memory[i]);
	}
}

void transpose_open_ring(struct transpose *transpose, uint32_t spin_us)
{
	const struct tma_transform transform = { .dst = &transpose->tensor[0],
		                                 .src = &transpose->tensor[1],
		                                 .perm = transpose_perm };

	must(transpose->client, tma_plan_prepare(transpose->client, &transform, &transpose->prepared));
	must(transpose->client, tma_ring_open(transpose->client, 16, spin_us, &transpose->ring));
	transpose->spin_us = spin_us;
}

void transpose_launch(struct transpose *transpose)
{
	rig_launch(transpose->rig, &transpose->transform, &transpose->plan, transpose->memory[0],
	           transpose->memory[1], 0, 0);
}

void transpose_direct(void *arg)
{
	transpose_launch(arg);
	rig_wait(((struct transpose *)arg)->rig);
}

void transpose_served(void *arg)
{
	struct transpose *transpose = arg;

	must(transpose->client,
	     tma_transpose(transpose->client, &transpose->tensor[0], &transpose->tensor[1], transpose_perm));
}

void transpose_by_ring(void *arg)
{
	struct transpose *transpose = arg;
	const struct tma_place dst = { .region = transpose->region[0] },
			       src = { .region = transpose->region[1] };
	struct tma_ring_end end;

	must(transpose->client, tma_ring_push(transpose->ring, transpose->prepared, dst, src, 0));
	must(transpose->client, tma_ring_wait(transpose->ring, transpose->spin_us, &end));
	if (end.status < 0)
		rig_die("by the ring: %s", tma_status_name(end.status));
}

void transpose_ping(void *arg)
{
	struct transpose *transpose = arg;

	must(transpose->client, tma_ping(transpose->client));
}
