/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what an engine reports of itself, and which memories it counts. */
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"

TestSuite(what, .timeout = 60);

ParameterizedTestParameters(what, it_says)
{
	return RIG_ROWS(1, NULL);
}

ParameterizedTest(struct row *row, what, it_says)
{
	const bool is_cuda = rig_is_cuda(row->engine);
	struct error err;

	rig_open(row->engine, "");
	cr_expect_str_eq(engine->name, is_cuda ? "cuda" : "cpu", "%s: %s", rig_text, engine->name);
	cr_expect(strstr(engine->device, is_cuda ? "softgpu, sm_90, driver 13.0" : ", 2 threads"), "%s: %s",
	          rig_text, engine->device);
	cr_expect_eq(strncmp(engine->uuid, is_cuda ? "GPU-" : "", 4), 0, "%s: %s", rig_text, engine->uuid);
	cr_expect_eq(engine->kind, is_cuda ? REGION_KIND_CUDA_FD : REGION_KIND_MEMFD, "%s", rig_text);
	cr_expect_eq(engine->multiprocessors > 0, is_cuda, "%s", rig_text);
	cr_expect_eq(engine->memory_bytes > 0, is_cuda, "%s", rig_text);
	cr_expect_eq(engine->returns, rig_is_process(row->engine), "%s", rig_text);
	cr_expect_not(engine->lost, "%s", rig_text);
	cr_expect_eq(engine_probe(engine, &err), 0, "%s: %s", rig_text, err.message);
	rig_close();
}

ParameterizedTestParameters(what, memories)
{
	return RIG_ROWS(1, NULL);
}

/* Memory that is made or mapped counts until it is freed; memory that is refused does not count. Memory that
 * has been made holds zeros. */
ParameterizedTest(struct row *row, what, memories)
{
	const atomic_bool unwanted = true;
	const struct engine_handle wanted = {
		.kind = REGION_KIND_MEMFD, .fd = -1, .size = 1 << 20, .unwanted = &unwanted
	};
	struct memory made, mapped;
	struct engine_memory *memory;
	struct engine_export export;
	struct error err;

	rig_open(row->engine, "");
	made = memory_new(memory_kind(), 100000);
	mapped = memory_of_file(4096);
	cr_expect_eq(atomic_load(&engine->memories), 2, "%s", rig_text);
	cr_expect(made.bytes[0] == 0 && memcmp(made.bytes, made.bytes + 1, 99999) == 0, "%s", rig_text);
	cr_expect_eq(engine_make(engine, &wanted, &memory, &export, &err), STATUS_CANCELED, "%s: %s",
	             rig_text, err.message);
	cr_expect_eq(atomic_load(&engine->memories), 2, "%s", rig_text);
	memory_free(&made);
	cr_expect_eq(atomic_load(&engine->memories), 1, "%s", rig_text);
	memory_free(&mapped);
	rig_close();
}
