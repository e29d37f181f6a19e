/* SPDX-License-Identifier: Apache-2.0 */
/* Counts a program's allocations where another process can read them. It is loaded before libc (LD_PRELOAD)
 * and writes three 64-bit counts to the file named by ALLOCATIONS: allocations (malloc and related calls; a
 * realloc counts as one), frees, and bytes currently allocated. An exec resets them to 0. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct counts {
	atomic_uint_fast64_t taken;
	atomic_uint_fast64_t given_back;
	atomic_uint_fast64_t bytes;
};

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *data, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *data);

static struct counts unshared;
static struct counts *counts = &unshared;

__attribute__((constructor)) static void open_counts(void)
{
	const char *path = getenv("ALLOCATIONS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *shared;

	if (fd < 0 || ftruncate(fd, sizeof *counts) < 0)
		_exit(125);
	shared = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		_exit(125);
	close(fd);
	counts = shared;
	atomic_store(&counts->taken, 0);
	atomic_store(&counts->given_back, 0);
	atomic_store(&counts->bytes, 0);
}

static void *counted(void *data)
{
	atomic_fetch_add(&counts->taken, 1);
	/* malloc_usable_size returns 0 for NULL. */
	atomic_fetch_add(&counts->bytes, malloc_usable_size(data));
	return data;
}

EXPORT void *malloc(size_t size)
{
	return counted(__libc_malloc(size));
}

EXPORT void *calloc(size_t n, size_t size)
{
	return counted(__libc_calloc(n, size));
}

EXPORT void *realloc(void *data, size_t size)
{
	size_t before = malloc_usable_size(data);
	void *moved = __libc_realloc(data, size);

	if (moved || size == 0) /* Otherwise data is still allocated as before. */
		atomic_fetch_sub(&counts->bytes, before);
	return counted(moved);
}

EXPORT void *memalign(size_t align, size_t size)
{
	return counted(__libc_memalign(align, size));
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

EXPORT int posix_memalign(void **ret, size_t align, size_t size)
{
	void *data = memalign(align, size);

	if (!data)
		return ENOMEM;
	*ret = data;
	return 0;
}

EXPORT void free(void *data)
{
	if (data)
		atomic_fetch_add(&counts->given_back, 1);
	atomic_fetch_sub(&counts->bytes, malloc_usable_size(data));
	__libc_free(data);
}
