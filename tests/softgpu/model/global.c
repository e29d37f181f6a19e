/* SPDX-License-Identifier: Apache-2.0 */
/* Global memory is the host's own memory. The driver decides whether an address is device memory; it is asked
 * about whole lines first, and its answer is remembered for the launch. In a programmatic launch a thread may
 * access global memory only after it has waited for the previous grids. */
#include "machine.h"

#include <string.h>

enum { LINE_BYTES = 256, LINES = 1024 };

bool (*model_memory_check)(uint64_t address, uint64_t bytes, bool write);

static uint64_t good_lines[2][LINES]; /* [0] read, [1] write: the line's number + 1 */

void global_forget(void)
{
	memset(good_lines, 0, sizeof(good_lines));
}

void model_grid_wait(void)
{
	machine.self->waited = true;
}

void global_begin(const char *what)
{
	if (machine.launch->programmatic && !machine.self->waited)
		model_fail("%s of global memory before grid_wait: grids before this one may still run", what);
}

static bool check_line(uint64_t address, uint64_t bytes, bool write)
{
	uint64_t line = address / LINE_BYTES, *good = &good_lines[write][line % LINES];

	if (*good == line + 1)
		return true;
	if (model_memory_check(line * LINE_BYTES, LINE_BYTES, write)) {
		*good = line + 1;
		return true;
	}
	return model_memory_check(address, bytes, write);
}

bool global_check(uint64_t address, uint64_t bytes, bool write)
{
	if (!model_memory_check)
		return true;
	while (bytes) {
		uint64_t in_line = LINE_BYTES - address % LINE_BYTES, n = bytes < in_line ? bytes : in_line;

		if (!check_line(address, n, write))
			return false;
		address += n;
		bytes -= n;
	}
	return true;
}

static void access_global(const void *p, uint32_t size, enum softgpu_instruction kind, uint32_t line)
{
	const bool write = kind != SOFTGPU_GLOBAL_READ;
	const char *what = write ? "write" : "read";

	global_begin(what);
	if ((uintptr_t)p % size)
		model_fail("%s of %u bytes at global address %p, which is not a multiple of their size", what,
		           size, p);
	if (!global_check((uintptr_t)p, size, write))
		model_fail("%s of %u bytes at global address %p, which is no memory that may be so accessed",
		           what, size, p);
	if (model_is_counting)
		count_instruction(kind, (uintptr_t)p, size, line);
}

void model_global_read(const void *p, uint32_t size, uint32_t line)
{
	access_global(p, size, SOFTGPU_GLOBAL_READ, line);
}

void model_global_write(void *p, uint32_t size, uint32_t line)
{
	access_global(p, size, SOFTGPU_GLOBAL_WRITE, line);
}

void model_global_combine(void *p, uint32_t size, uint32_t line)
{
	access_global(p, size, SOFTGPU_GLOBAL_ADD, line);
}
