/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memory that the CUDA engine makes: it is zeroed and comes with what a client needs to map it. Also
 * tests the message if it cannot be made. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"

#define SIZE 20000

struct create_row {
	char name[32];
	enum region_kind kind;
	uint64_t size;
	char variable[64];
	int status;
};

ParameterizedTestParameters(cuda_memory, create)
{
	static struct create_row rows[] = {
		{ "memfd", REGION_KIND_MEMFD, SIZE, "", 0 },
		{ "ipc", REGION_KIND_CUDA_IPC, SIZE, "", 0 },
		{ "fd", REGION_KIND_CUDA_FD, SIZE, "", 0 },
		{ "memfd: nothing", REGION_KIND_MEMFD, 0, "", STATUS_INVALID_ARGUMENT },
		{ "ipc: nothing", REGION_KIND_CUDA_IPC, 0, "", STATUS_INVALID_ARGUMENT },
		{ "fd: nothing", REGION_KIND_CUDA_FD, 0, "", STATUS_INVALID_ARGUMENT },
		{ "memfd: too much", REGION_KIND_MEMFD, UINT64_C(1) << 60, "", STATUS_NO_MEMORY },
		{ "ipc: too much", REGION_KIND_CUDA_IPC, UINT64_C(1) << 60, "", STATUS_NO_MEMORY },
		{ "fd: too much", REGION_KIND_CUDA_FD, UINT64_C(1) << 60, "", STATUS_NO_MEMORY },
		{ "ipc: all bits", REGION_KIND_CUDA_IPC, UINT64_MAX, "", STATUS_NO_MEMORY },
		{ "fd: all bits", REGION_KIND_CUDA_FD, UINT64_MAX, "", STATUS_NO_MEMORY },
		{ "ipc: in use", REGION_KIND_CUDA_IPC, UINT64_C(1) << 30, "SOFTGPU_FAIL_CALL=cuMemAlloc",
		  STATUS_NO_MEMORY },
		{ "ipc: not zeroed", REGION_KIND_CUDA_IPC, SIZE, "SOFTGPU_FAIL_CALL=cuMemsetD8Async",
		  STATUS_NO_MEMORY },
		{ "ipc: no handle", REGION_KIND_CUDA_IPC, SIZE, "SOFTGPU_FAIL_CALL=cuIpcGetMemHandle",
		  STATUS_NO_MEMORY },
		{ "fd: in use", REGION_KIND_CUDA_FD, SIZE, "SOFTGPU_FAIL_CALL=cuMemCreate",
		  STATUS_NO_MEMORY },
		{ "fd: no export", REGION_KIND_CUDA_FD, SIZE,
		  "SOFTGPU_FAIL_CALL=cuMemExportToShareableHandle", STATUS_NO_MEMORY },
		{ "memfd: not pinned", REGION_KIND_MEMFD, SIZE, "SOFTGPU_FAIL_CALL=cuMemHostRegister",
		  STATUS_NO_MEMORY },
	};
	return cr_make_param_array(struct create_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct create_row *row, cuda_memory, create)
{
	struct engine_export made = { .fd = -1 };
	struct engine_memory *memory = NULL;
	struct error err = { 0 };
	if (*row->variable)
		putenv(row->variable);
	open_engine(NULL);
	int before = dup(0);
	close(before);
	int r = engine_create(engine, row->kind, row->size, &memory, &made, &err);
	cr_assert_eq(r, row->status, "%s: %d %s", row->name, r, err.message);
	if (r < 0) {
		cr_assert_eq(err.status, r, "%s", row->name);
		cr_assert_null(memory, "%s", row->name);
		int after = dup(0);
		cr_assert_eq(after, before, "%s: an fd was left open", row->name);
		close(after);
	} else {
		cr_assert_eq(made.fd >= 0, row->kind != REGION_KIND_CUDA_IPC, "%s", row->name);
		cr_assert(memory->writable, "%s", row->name);
		cr_assert_eq(memory->size, row->size, "%s", row->name);
		cr_assert_eq(memory->kind, row->kind, "%s", row->name);
		for (uint64_t i = 0; i < row->size; i++)
			cr_assert_eq(data(memory)[i], 0, "%s: byte %d", row->name, (int)i);
		if (made.fd >= 0) {
			cr_assert_eq(fcntl(made.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC, "%s", row->name);
			close(made.fd);
		}
		engine_unmap(engine, memory);
	}
	close_engine();
}
