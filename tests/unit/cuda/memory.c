/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what can be mapped on the CUDA engine, the message for what cannot, and memory that the engine
 * makes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "holder.h"
#include "kernels/cuda/driver/driver.h"
#include "rig.h"

#define SIZE       20000
#define ALLOCATION (UINT64_C(2) << 20) /* device memory that SIZE bytes take up */

enum source {
	HELD,    /* memory of the row's kind that another process holds */
	GARBAGE, /* bytes that are no handle */
	FOREIGN, /* a memfd that the driver did not make */
	OTHER_DEVICE,
	PLAIN_FILE,
	PIPE,
	SOCKET,
	DIRECTORY,
	NULL_DEVICE,
	PATH_ONLY,
	CLOSED,
	READ_ONLY,
	READ_ONLY_SEALED
};

struct map_row {
	char name[32];
	enum region_kind kind;
	enum source source;
	uint64_t offset, size;
	uint32_t handle_len; /* 0: ENGINE_HANDLE_BYTES */
	bool read_only;
	char variable[48]; /* for the stand-in driver, NAME=VALUE */
	int status;
	char says[48]; /* part of the message */
};

static int reopen(int fd, int flags)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int other = open(path, flags);
	cr_assert_geq(other, 0);
	close(fd);
	return other;
}

static int new_memfd(void)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	cr_assert_eq(ftruncate(fd, SIZE), 0);
	cr_assert_eq(posix_fallocate(fd, 0, SIZE), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static int new_file(void)
{
	FILE *file = tmpfile();
	int fd = dup(fileno(file));
	fclose(file);
	cr_assert_eq(ftruncate(fd, SIZE), 0);
	return fd;
}

static int other_device_fd(void)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 },
	};
	CUmemGenericAllocationHandle handle;
	int fd;
	cr_assert_eq(driver.cuMemCreate(&handle, ALLOCATION, &properties, 0), CUDA_SUCCESS);
	cr_assert_eq(
	    driver.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
	    CUDA_SUCCESS);
	cr_assert_eq(driver.cuMemRelease(handle), CUDA_SUCCESS);
	return fd;
}

static int open_source(enum source source)
{
	int fds[2];
	switch (source) {
	case FOREIGN:
		return new_memfd();
	case OTHER_DEVICE:
		return other_device_fd();
	case PLAIN_FILE:
		return new_file();
	case PIPE:
		cr_assert_eq(pipe(fds), 0);
		return fds[0];
	case SOCKET:
		cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		return fds[0];
	case DIRECTORY:
		return open("/", O_RDONLY | O_DIRECTORY);
	case NULL_DEVICE:
		return open("/dev/null", O_RDWR);
	case PATH_ONLY:
		return reopen(new_memfd(), O_PATH);
	case READ_ONLY_SEALED:
		fds[0] = new_memfd();
		cr_assert_eq(fcntl(fds[0], F_ADD_SEALS, F_SEAL_WRITE), 0);
		return reopen(fds[0], O_RDONLY);
	case READ_ONLY:
		return reopen(new_memfd(), O_RDONLY);
	default:
		return 1000;
	}
}

#define FAILS(status_, says_) .status = STATUS_##status_, .says = says_

ParameterizedTestParameters(cuda_memory, map)
{
	static struct map_row rows[] = {
		{ .name = "ipc: whole", .kind = REGION_KIND_CUDA_IPC, .size = ALLOCATION },
		{ .name = "ipc: odd offset", .kind = REGION_KIND_CUDA_IPC, .offset = 4097, .size = 3 },
		{ .name = "ipc: last byte",
		  .kind = REGION_KIND_CUDA_IPC,
		  .offset = ALLOCATION - 1,
		  .size = 1 },
		{ .name = "ipc: read-only", .kind = REGION_KIND_CUDA_IPC, .size = SIZE, .read_only = true },
		{ .name = "ipc: nothing", .kind = REGION_KIND_CUDA_IPC, FAILS(INVALID_ARGUMENT, "not 0") },
		{ .name = "ipc: too long",
		  .kind = REGION_KIND_CUDA_IPC,
		  .size = ALLOCATION + 1,
		  FAILS(OUT_OF_RANGE, "which has 2097152 bytes") },
		{ .name = "ipc: past the end",
		  .kind = REGION_KIND_CUDA_IPC,
		  .offset = ALLOCATION,
		  .size = 1,
		  FAILS(OUT_OF_RANGE, "offset 2097152 + size 1") },
		{ .name = "ipc: overflow",
		  .kind = REGION_KIND_CUDA_IPC,
		  .offset = UINT64_MAX,
		  .size = 2,
		  FAILS(OUT_OF_RANGE, "exceeds the allocation") },
		{ .name = "ipc: short handle",
		  .kind = REGION_KIND_CUDA_IPC,
		  .size = SIZE,
		  .handle_len = 63,
		  FAILS(INVALID_ARGUMENT, "64 bytes, not 63") },
		{ .name = "ipc: long handle",
		  .kind = REGION_KIND_CUDA_IPC,
		  .size = SIZE,
		  .handle_len = 65,
		  FAILS(INVALID_ARGUMENT, "64 bytes, not 65") },
		{ .name = "ipc: no handle",
		  .kind = REGION_KIND_CUDA_IPC,
		  .source = GARBAGE,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "handle: the driver cannot open it") },
		{ .name = "ipc: no memory",
		  .kind = REGION_KIND_CUDA_IPC,
		  .source = GARBAGE,
		  .size = SIZE,
		  .variable = "SOFTGPU_FAIL_CALL=cuIpcOpenMemHandle",
		  FAILS(NO_MEMORY, "cuIpcOpenMemHandle") },

		{ .name = "fd: whole", .kind = REGION_KIND_CUDA_FD, .size = ALLOCATION },
		{ .name = "fd: odd offset", .kind = REGION_KIND_CUDA_FD, .offset = 4097, .size = 3 },
		{ .name = "fd: last byte", .kind = REGION_KIND_CUDA_FD, .offset = ALLOCATION - 1, .size = 1 },
		{ .name = "fd: read-only", .kind = REGION_KIND_CUDA_FD, .size = SIZE, .read_only = true },
		{ .name = "fd: nothing", .kind = REGION_KIND_CUDA_FD, FAILS(INVALID_ARGUMENT, "not 0") },
		{ .name = "fd: too long",
		  .kind = REGION_KIND_CUDA_FD,
		  .size = ALLOCATION + 1,
		  FAILS(OUT_OF_RANGE, "does not have 4194304 bytes") },
		{ .name = "fd: past the end",
		  .kind = REGION_KIND_CUDA_FD,
		  .offset = ALLOCATION,
		  .size = 1,
		  FAILS(OUT_OF_RANGE, "does not have 4194304 bytes") },
		{ .name = "fd: overflow",
		  .kind = REGION_KIND_CUDA_FD,
		  .offset = UINT64_MAX,
		  .size = 2,
		  FAILS(OUT_OF_RANGE, "overflows 64 bits") },
		{ .name = "fd: more than the device",
		  .kind = REGION_KIND_CUDA_FD,
		  .size = UINT64_C(1) << 62,
		  FAILS(OUT_OF_RANGE, "that the device has") },
		{ .name = "fd: another device",
		  .kind = REGION_KIND_CUDA_FD,
		  .source = OTHER_DEVICE,
		  .size = SIZE,
		  .variable = "SOFTGPU_DEVICES=2",
		  FAILS(INVALID_ARGUMENT, "device 1, but this service uses device 0") },
		{ .name = "fd: another memfd",
		  .kind = REGION_KIND_CUDA_FD,
		  .source = FOREIGN,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "fd: the driver cannot import it") },
		{ .name = "fd: plain file",
		  .kind = REGION_KIND_CUDA_FD,
		  .source = PLAIN_FILE,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "does not come from the NVIDIA driver") },
		{ .name = "fd: pipe",
		  .kind = REGION_KIND_CUDA_FD,
		  .source = PIPE,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "does not come from the NVIDIA driver") },
		{ .name = "fd: socket",
		  .kind = REGION_KIND_CUDA_FD,
		  .source = SOCKET,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "does not come from the NVIDIA driver") },
		{ .name = "fd: directory",
		  .kind = REGION_KIND_CUDA_FD,
		  .source = DIRECTORY,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "does not come from the NVIDIA driver") },
		{ .name = "fd: another driver's",
		  .kind = REGION_KIND_CUDA_FD,
		  .source = NULL_DEVICE,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "does not come from the NVIDIA driver") },
		{ .name = "fd: path only",
		  .kind = REGION_KIND_CUDA_FD,
		  .source = PATH_ONLY,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "O_PATH") },
		{ .name = "fd: closed",
		  .kind = REGION_KIND_CUDA_FD,
		  .source = CLOSED,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "fd: ") },
		{ .name = "fd: no access",
		  .kind = REGION_KIND_CUDA_FD,
		  .size = SIZE,
		  .variable = "SOFTGPU_FAIL_CALL=cuMemSetAccess",
		  FAILS(NO_MEMORY, "cuMemSetAccess") },
		{ .name = "fd: no address",
		  .kind = REGION_KIND_CUDA_FD,
		  .size = SIZE,
		  .variable = "SOFTGPU_FAIL_CALL=cuMemAddressReserve",
		  FAILS(NO_MEMORY, "cuMemAddressReserve") },

		{ .name = "memfd: odd offset", .kind = REGION_KIND_MEMFD, .offset = 4097, .size = 3 },
		{ .name = "memfd: read-only fd",
		  .kind = REGION_KIND_MEMFD,
		  .source = READ_ONLY_SEALED,
		  .size = SIZE,
		  .read_only = true },
		{ .name = "memfd: read-only fd, unsealed",
		  .kind = REGION_KIND_MEMFD,
		  .source = READ_ONLY,
		  .size = SIZE,
		  .read_only = true,
		  FAILS(PERMISSION, "F_SEAL_FUTURE_WRITE") },
		{ .name = "memfd: read-only fd, to write",
		  .kind = REGION_KIND_MEMFD,
		  .source = READ_ONLY,
		  .size = SIZE,
		  FAILS(PERMISSION, "writable false") },
		{ .name = "memfd: plain file",
		  .kind = REGION_KIND_MEMFD,
		  .source = PLAIN_FILE,
		  .size = SIZE,
		  FAILS(INVALID_ARGUMENT, "not a memfd") },
		{ .name = "memfd: too long",
		  .kind = REGION_KIND_MEMFD,
		  .size = SIZE + 1,
		  FAILS(OUT_OF_RANGE, "exceeds the file") },
		{ .name = "memfd: not to be pinned",
		  .kind = REGION_KIND_MEMFD,
		  .source = FOREIGN,
		  .size = SIZE,
		  .variable = "SOFTGPU_FAIL_CALL=cuMemHostRegister",
		  FAILS(NO_MEMORY, "size: 20000 bytes cannot be pinned") },
		{ .name = "memfd: no device address",
		  .kind = REGION_KIND_MEMFD,
		  .source = FOREIGN,
		  .size = SIZE,
		  .variable = "SOFTGPU_FAIL_CALL=cuMemHostGetDevicePointer",
		  FAILS(NO_MEMORY, "size: 20000 bytes cannot be pinned") },
	};
	return cr_make_param_array(struct map_row, rows, sizeof rows / sizeof *rows);
}

static void poison(unsigned char *const *bytes)
{
	memset(bytes[0], 0x3b, SIZE);
}

ParameterizedTest(struct map_row *row, cuda_memory, map)
{
	bool held = row->source == HELD;
	struct holder holder = { .made = { { .fd = -1 } } };
	char handle_bytes[ENGINE_HANDLE_BYTES + 1] = "garbage";
	struct engine_memory *memory = NULL;
	struct error err = { 0 };
	if (held)
		holder_start(&holder, row->kind, SIZE, poison, NULL);
	if (*row->variable)
		putenv(row->variable);
	open_engine(NULL);
	if (held)
		memcpy(handle_bytes, holder.made[0].handle, sizeof holder.made[0].handle);
	int fd = held || row->source == GARBAGE ? holder.made[0].fd : open_source(row->source);
	struct engine_handle handle = {
		.kind = row->kind,
		.fd = fd,
		.offset = row->offset,
		.size = row->size,
		.writable = !row->read_only,
		.handle = { handle_bytes, row->handle_len ? row->handle_len : ENGINE_HANDLE_BYTES },
	};
	int r = engine_map(engine, &handle, &memory, &err);
	cr_assert_eq(r, row->status, "%s: %d %s", row->name, r, err.message);
	if (r < 0) {
		cr_assert_eq(err.status, r, "%s", row->name);
		cr_assert_not_null(strstr(err.message, row->says), "%s: '%s'", row->name, err.message);
		cr_assert_null(memory, "%s", row->name);
	} else {
		cr_assert_eq(memory->kind, row->kind, "%s", row->name);
		cr_assert_eq(memory->size, row->size, "%s", row->name);
		cr_assert_eq(memory->base, row->offset, "%s", row->name);
		cr_assert_eq(memory->writable, !row->read_only, "%s", row->name);
		if (held)
			cr_assert_eq(data(memory)[0], row->offset < SIZE ? 0x3b : 0, "%s", row->name);
		engine_unmap(engine, memory);
	}
	if (held)
		cr_assert_eq(holder_stop(&holder), 0, "%s", row->name);
	else
		close(fd);
	close_engine();
}

struct refusal_row {
	char name[40];
	enum region_kind kind;
	enum source source;
	char call[64]; /* the call that returns CUDA_ERROR_UNKNOWN */
	char alone[24];
	int status;
};

ParameterizedTestParameters(cuda_memory, refusal)
{
	static struct refusal_row rows[] = {
		{ "a handle, and the device is well", REGION_KIND_CUDA_IPC, GARBAGE,
		  "SOFTGPU_FAIL_CALL=cuIpcOpenMemHandle", "SOFTGPU_FAIL_ALONE=1", STATUS_INVALID_ARGUMENT },
		{ "a handle, and the device is lost", REGION_KIND_CUDA_IPC, GARBAGE,
		  "SOFTGPU_FAIL_CALL=cuIpcOpenMemHandle", "SOFTGPU_FAIL_ALONE=0", STATUS_DEVICE_LOST },
		{ "an fd, and the device is well", REGION_KIND_CUDA_FD, FOREIGN,
		  "SOFTGPU_FAIL_CALL=cuMemImportFromShareableHandle", "SOFTGPU_FAIL_ALONE=1",
		  STATUS_INVALID_ARGUMENT },
		{ "an fd, and the device is lost", REGION_KIND_CUDA_FD, FOREIGN,
		  "SOFTGPU_FAIL_CALL=cuMemImportFromShareableHandle", "SOFTGPU_FAIL_ALONE=0",
		  STATUS_DEVICE_LOST },
	};
	return cr_make_param_array(struct refusal_row, rows, sizeof rows / sizeof *rows);
}

/* An engine does not take an error that a client's handle causes for a lost device. */
ParameterizedTest(struct refusal_row *row, cuda_memory, refusal)
{
	char bytes[ENGINE_HANDLE_BYTES] = "garbage";
	struct engine_memory *memory = NULL;
	struct error err = { 0 };
	setenv("SOFTGPU_FAIL_WITH", "999", 1);
	putenv(row->call);
	putenv(row->alone);
	open_engine(NULL);
	struct engine_handle handle = {
		.kind = row->kind,
		.fd = row->source == GARBAGE ? -1 : open_source(row->source),
		.size = 100,
		.writable = true,
		.handle = { bytes, sizeof bytes },
	};
	int r = engine_map(engine, &handle, &memory, &err);
	cr_assert_eq(r, row->status, "%s: %d %s", row->name, r, err.message);
	cr_assert_not_null(strstr(err.message, "CUDA_ERROR_UNKNOWN"), "%s: %s", row->name, err.message);
	cr_assert_null(memory, "%s", row->name);
	close(handle.fd);
	if (r == STATUS_DEVICE_LOST)
		return;
	engine_unmap(engine, new_memory(row->kind, SIZE));
	engine_reap(engine);
	cr_assert_not(engine->lost, "%s", row->name);
	close_engine();
}

/* ---- One memory -------------------------------------------------------------------------------------------
 */

/* A process cannot open a handle that it has made itself, so the engine's own memory is used only by its
 * region. */
Test(cuda_memory, a_handle_of_its_own)
{
	struct engine_memory *made, *mapped;
	struct engine_export export;
	struct error err;
	open_engine(NULL);
	cr_assert_eq(engine_create(engine, REGION_KIND_CUDA_IPC, SIZE, &made, &export, &err), 0);
	cr_assert_eq(export.handle_len, ENGINE_HANDLE_BYTES);
	cr_assert_eq(export.fd, -1);
	struct engine_handle handle = { .kind = REGION_KIND_CUDA_IPC,
		                        .fd = -1,
		                        .size = 100,
		                        .handle = { (char *)export.handle, ENGINE_HANDLE_BYTES } };
	cr_assert_eq(engine_map(engine, &handle, &mapped, &err), STATUS_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(err.message, "cannot open it"), "%s", err.message);
	engine_unmap(engine, made);
	close_engine();
}

Test(cuda_memory, two_allocations_are_two_memories)
{
	struct engine_memory *memory[6];
	open_engine(NULL);
	for (int i = 0; i < 6; i++)
		memory[i] = new_memory((enum region_kind)(i / 2), SIZE);
	for (int i = 0; i < 6; i++)
		for (int j = 0; j < i; j++)
			cr_assert(memory[i]->memory[0] != memory[j]->memory[0] ||
			          memory[i]->memory[1] != memory[j]->memory[1]);
	for (int i = 0; i < 6; i++)
		engine_unmap(engine, memory[i]);
	close_engine();
}
