/* SPDX-License-Identifier: Apache-2.0 */
/* Tests launches of the model: which kernels exist, and what is refused. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/args.h"
#include "tests/softgpu/model.h"

Test(run, every_kernel_is_there)
{
#define KERNEL(name, args)                         \
	cr_assert(model_find(#name), "%s", #name); \
	cr_assert_eq(model_args_size(model_find(#name)), sizeof(struct args), #name);
#include "kernels/cuda/launch/kernels.def"
	cr_assert(!model_find("no_such_kernel"));
	cr_assert(!model_find(""));
}

/* ---- Refused --------------------------------------------------------------------------------------- */

struct refusal_row {
	char name[32];
	uint32_t grid[3], block[3], cluster, shared_bytes;
	char report[80];
};

static struct refusal_row refusals[] = {
	{ "no block", { 1, 0, 1 }, { 32, 1, 1 }, 1, 0, "a grid of 1 x 0 x 1 blocks of 32 threads" },
	{ "no thread", { 1, 1, 1 }, { 32, 0, 1 }, 1, 0, "a grid of 1 x 1 x 1 blocks of 0 threads" },
	{ "too many threads", { 1, 1, 1 }, { 32, 33, 1 }, 1, 0, "1056 threads a block" },
	{ "past the launch bound",
	  { 1, 1, 1 },
	  { 512, 1, 1 },
	  1,
	  0,
	  "512 threads a block; its launch bound is" },
	{ "too much shared memory", { 1, 1, 1 }, { 32, 1, 1 }, 1, 232449, "232449 bytes of shared memory" },
	{ "half a cluster", { 3, 1, 1 }, { 32, 1, 1 }, 2, 0, "a grid 3 blocks wide in clusters of 2" },
	{ "too large a cluster", { 32, 1, 1 }, { 32, 1, 1 }, 32, 0, "in clusters of 32" },
};

ParameterizedTestParameters(run, refused)
{
	return cr_make_param_array(struct refusal_row, refusals, sizeof refusals / sizeof refusals[0]);
}

ParameterizedTest(struct refusal_row *row, run, refused)
{
	static struct strided_args args;
	void *params[] = { &args };
	struct model_launch launch = { .cluster = row->cluster,
		                       .shared_bytes = row->shared_bytes,
		                       .params = params };
	char report[512] = "";

	memcpy(launch.grid, row->grid, sizeof(launch.grid));
	memcpy(launch.block, row->block, sizeof(launch.block));
	cr_assert(!model_run(model_find("strided_rows_4"), &launch, report, sizeof(report)), "%s", row->name);
	cr_assert(strstr(report, row->report), "%s: %s", row->name, report);
}
