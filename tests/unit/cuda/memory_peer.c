/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memory of another process, which comes by handle or by fd, goes through the engine, and is written
 * back. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "holder.h"
#include "rig.h"

#define N     37
#define BYTES (N * N * 4)

static void fill(unsigned char *const *bytes)
{
	for (uint32_t i = 0; i < N * N; i++)
		((uint32_t *)bytes[1])[i] = i;
}

static int is_transposed(unsigned char *const *bytes)
{
	for (uint32_t i = 0; i < N * N; i++)
		if (((uint32_t *)bytes[0])[i] != i % N * N + i / N)
			return 1;
	return 0;
}

struct peer_row {
	char name[16];
	enum region_kind kind;
};

static void map_all(const struct peer_row *row, const struct holder *holder, struct engine_memory **ret)
{
	struct error err;
	for (int i = 0; i < 3; i++) { /* the third handle is for a part of the second memory */
		const struct engine_export *from = &holder->made[i > 0];
		struct engine_handle handle = { .kind = row->kind,
			                        .fd = from->fd,
			                        .offset = i == 2 ? 100 : 0,
			                        .size = i == 2 ? 16 : BYTES,
			                        .writable = i == 0,
			                        .handle = { (char *)from->handle, ENGINE_HANDLE_BYTES } };
		cr_assert_eq(engine_map(engine, &handle, &ret[i], &err), 0, "%s: %s", row->name, err.message);
	}
}

ParameterizedTestParameters(cuda_memory, of_another_process)
{
	static struct peer_row rows[] = { { "ipc", REGION_KIND_CUDA_IPC }, { "fd", REGION_KIND_CUDA_FD } };
	return cr_make_param_array(struct peer_row, rows, sizeof rows / sizeof *rows);
}

/* Each handle is opened once however often it is mapped, because the driver would refuse the third time. */
ParameterizedTest(struct peer_row *row, cuda_memory, of_another_process)
{
	static struct work work;
	struct engine_memory *memory[3];
	struct holder holder;
	holder_start(&holder, row->kind, BYTES, fill, is_transposed);
	setenv("SOFTGPU_FAIL_CALL", "cuIpcOpenMemHandle:3", 1);
	open_engine(NULL);
	map_all(row, &holder, memory);
	cr_assert(memory[0]->memory[0] != memory[1]->memory[0] ||
	              memory[0]->memory[1] != memory[1]->memory[1],
	          "%s", row->name);
	if (row->kind == REGION_KIND_CUDA_IPC) {
		cr_assert_arr_eq(memory[1]->memory, memory[2]->memory, sizeof memory[1]->memory);
		cr_assert_eq(memory[2]->base - memory[1]->base, 100);
	}
	cr_assert_arr_eq(data(memory[1]) + 100, data(memory[2]), 16);

	struct engine_stream *stream = engine_stream_new(engine, &owner);
	work_init(&work, N, true, memory[0], memory[1]);
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, 0, "%s", row->name);
	engine_stream_free(engine, stream);
	engine_unmap(engine, memory[1]);
	cr_assert_eq(*(uint32_t *)data(memory[2]), 25, "%s: closed with one of its two", row->name);
	engine_unmap(engine, memory[0]);
	engine_unmap(engine, memory[2]);
	cr_assert_eq(holder_stop(&holder), 0, "%s: the other process saw something else", row->name);
	close_engine();
}
