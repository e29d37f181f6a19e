/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the model finds every mistake of a kernel, in whatever order blocks and threads run, and reports
 * which one it is. The same kernel without the mistake passes. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/broken.h"
#include "tests/softgpu/model.h"

enum { SEEDS = 12, GUARD = 64, WORDS = BROKEN_TILES * BROKEN_TILE_BYTES / 4 };

struct mistake_row {
	char name[40];
	char kernel[24];
	char report[128]; /* part of the report; alternatives are separated by | */
	enum mistake mistake;
};

static struct mistake_row rows[] = {
	{ .name = "none", .kernel = "broken_pipeline" },
	{ .name = "none", .kernel = "broken_once" },
	{ .name = "none", .kernel = "broken_cluster" },
	{ .name = "none", .kernel = "broken_grid" },
#define MISTAKE(id, function, text) \
	{ .name = #id, .kernel = #function, .report = text, .mistake = MISTAKE_##id },
#include "tests/softgpu/broken.def"
};

/* The memory of the device, which is a single array; addresses around it are invalid. */
static uint32_t memory[WORDS + 2 * GUARD] __attribute__((aligned(128)));

static bool is_memory(uint64_t address, uint64_t bytes, bool write)
{
	uint64_t start = (uintptr_t)(memory + GUARD);

	(void)write;
	return address >= start && address + bytes <= start + WORDS * sizeof(*memory);
}

static void encode(CUtensorMap *map, enum mistake mistake, bool store)
{
	struct tensor_map_layout layout = {
		.type = TENSOR_MAP_UINT32,
		.rank = 2,
		.dim = { mistake == MISTAKE_RAGGED_STORE && store ? BROKEN_TILE_X - 2 : BROKEN_TILE_X,
		         mistake == MISTAKE_LONG_DIM && !store ? UINT64_C(1) << 31
		                                               : (uint64_t)BROKEN_TILES * BROKEN_TILE_Y },
		.stride = { BROKEN_TILE_X * 4 },
		.box = { BROKEN_TILE_X, BROKEN_TILE_Y },
		.element_stride = { 1, 1 },
		.swizzle =
		    mistake == MISTAKE_TILE_OFF_SWIZZLE ? TENSOR_MAP_SWIZZLE_128B : TENSOR_MAP_SWIZZLE_NONE,
	};

	model_map_encode(map, &layout, (uintptr_t)(memory + GUARD));
	if (mistake == MISTAKE_NO_MAP)
		((unsigned char *)map)[20] ^= 1;
}

static bool run_once(const struct mistake_row *row, char *report, size_t size)
{
	struct broken_args args = { .in = (uintptr_t)(memory + GUARD), .mistake = row->mistake };
	void *params[] = { &args };
	uint32_t cluster = strcmp(row->kernel, "broken_cluster") ? 1 : 2;
	struct model_launch launch = {
		.grid = { cluster, 1, 1 },
		.block = { BROKEN_THREADS, 1, 1 },
		.cluster = cluster,
		.shared_bytes = BROKEN_SHARED,
		.params = params,
		.programmatic = !strcmp(row->kernel, "broken_grid"),
	};

	args.outside = args.in + WORDS * sizeof(*memory);
	encode(&args.load, row->mistake, false);
	encode(&args.store, row->mistake, true);
	for (uint32_t i = 0; i < WORDS + 2 * GUARD; i++)
		memory[i] = i;
	return model_run(model_find(row->kernel), &launch, report, size);
}

static bool says(const char *report, const char *text)
{
	for (const char *end; (end = strchr(text, '|')) != NULL; text = end + 1) {
		char first[96];

		snprintf(first, sizeof(first), "%.*s", (int)(end - text), text);
		if (strstr(report, first))
			return true;
	}
	return strstr(report, text);
}

ParameterizedTestParameters(broken, mistakes)
{
	return cr_make_param_array(struct mistake_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct mistake_row *row, broken, mistakes)
{
	model_memory_check = is_memory;
	for (int seed = 0; seed < SEEDS; seed++) {
		char report[512] = "";
		char text[16];
		bool passed;

		snprintf(text, sizeof(text), "%d", seed);
		setenv("SOFTGPU_SEED", text, 1);
		passed = run_once(row, report, sizeof(report));
		if (row->mistake == MISTAKE_NONE) {
			cr_assert(passed, "%s, seed %d: %s", row->name, seed, report);
			continue;
		}
		cr_assert(!passed, "%s, seed %d: it passed", row->name, seed);
		cr_assert(says(report, row->report), "%s, seed %d: it says: %s", row->name, seed, report);
		cr_assert(!strncmp(report, row->kernel, strlen(row->kernel)), "%s: %s", row->name, report);
	}
	if (row->mistake == MISTAKE_NONE && !strcmp(row->kernel, "broken_pipeline"))
		for (uint32_t i = 0; i < WORDS + 2 * GUARD; i++)
			cr_assert_eq(memory[i], i + (i >= GUARD && i < GUARD + WORDS ? 1 : 0),
			             "%s: word %u is %u", row->name, i, memory[i]);
}
