/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates slabs, which are regions that small arrays share, so that an array needs neither a descriptor nor
 * a region of its own.
 *
 * A slab consists of blocks that follow each other without a gap. A block is free, or it is the memory of one
 * Region object and is freed with that object. Blocks are described in memory of this process alone, because
 * the service writes into the slab itself. A slab is released as soon as all of it is free.
 *
 * A free block is given out again only if nothing can still use it as what it was before. A request that is
 * under way keeps its tensors, and with them its blocks, until the service has answered it. Three uses escape
 * that rule, and a slab that may have met one of them is retired: it gives out no more blocks.
 * - The service may still run a request whose connection is lost. A slab therefore serves one connection.
 * - A child of fork() sees the arrays that its parent had. A slab therefore serves until the next fork.
 * - Another client may have registered an array of the slab, and that client's requests are not known here.
 *
 * One lock protects the slabs of all clients. It is held for a short time and never while Python or the
 * library is called, so that a destructor can take it at any time. */
#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"

/* The first slab that a client has for a device and a grain has LEAST bytes. Each further one is as large as
 * those before it together, but has at most MOST bytes. Block sizes and offsets are multiples of the grain:
 * FINE bytes, or COARSE for arrays of COARSE bytes and more. Arrays of SMALL bytes and more have a region of
 * their own. */
enum {
	SMALL = 1 << 20,
	LEAST = 1 << 16,
	MOST = 8 << 20,
	FINE = 64,
	COARSE = 4096,
	BINS = 72,       /* more than bin_of() returns for MOST bytes with FINE grains */
	MOST_SEEN = 8,   /* maximum number of blocks, maybe too small, that find_free looks at in a bin */
	QUIET = 1 << 16, /* bytes; zeroing more takes so long that the GIL is released meanwhile */
};

/* A block of a slab. before and after are its neighbours in the slab; NULL: none. While the block is free,
 * next_free and link_free tie it to its bin. */
struct block {
	struct slab *slab;
	struct block *before, *after;
	struct block *next_free;
	struct block **link_free;
	uint64_t offset, size;
	bool is_free;
};

/* Memory from offset `touched` on has never been given out, and is zero. connection and n_forks are what the
 * client's connection and the count of forks were when the slab was made. bins has a bit for each bin in
 * `free` that is not empty. n_used is the number of blocks that are not free. device is "" if the memory is
 * mapped for no device. */
struct slab {
	struct slab *next;
	struct slab **link;
	struct py_client *client;
	tma_region *region;
	char *address;
	uint64_t size;
	uint64_t touched;
	uint64_t grain;
	uint32_t connection;
	uint64_t n_forks;
	bool is_retired;
	size_t n_used;
	uint64_t bins[2];
	struct block *free[BINS];
	char device[64];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs; /* slabs of all clients, the one that was used last first */
static uint64_t n_forks;

/* ---- Forks ----------------------------------------------------------------------------------------- */

/* The child shares all slabs that have been made so far. The count tells them from later ones. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
	n_forks++;
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

int slabs_init(void)
{
	static bool is_done;

	if (!is_done && pthread_atfork(before_fork, after_fork, after_fork) != 0)
		return -1;
	is_done = true;
	return 0;
}

/* ---- Blocks, with the lock ------------------------------------------------------------------------- */

/* Returns the number of the bin for free blocks of this size. Each bin has the blocks of a range of sizes,
 * which ends where that of the next bin begins. From 4 grains on, there are four bins between a number of
 * grains that is a power of two and the next such number. */
static unsigned bin_of(const struct slab *slab, uint64_t size)
{
	const uint64_t grains = size / slab->grain;
	unsigned log;

	if (grains < 4)
		return (unsigned)grains;
	log = 63 - (unsigned)__builtin_clzll(grains);
	return (log - 1) * 4 + ((grains >> (log - 2)) & 3);
}

static void add_free(struct block *block)
{
	struct slab *slab = block->slab;
	const unsigned bin = bin_of(slab, block->size);

	block->is_free = true;
	block->next_free = slab->free[bin];
	block->link_free = &slab->free[bin];
	if (block->next_free)
		block->next_free->link_free = &block->next_free;
	slab->free[bin] = block;
	slab->bins[bin / 64] |= 1ULL << bin % 64;
}

static void remove_free(struct block *block)
{
	struct slab *slab = block->slab;
	const unsigned bin = bin_of(slab, block->size);

	block->is_free = false;
	*block->link_free = block->next_free;
	if (block->next_free)
		block->next_free->link_free = block->link_free;
	if (!slab->free[bin])
		slab->bins[bin / 64] &= ~(1ULL << bin % 64);
}

/* Returns a free block of at least size bytes, or NULL if it has found none. */
static struct block *find_free(const struct slab *slab, uint64_t size)
{
	const unsigned bin = bin_of(slab, size);
	struct block *block = slab->free[bin];

	for (int i = 0; block && i < MOST_SEEN; i++, block = block->next_free)
		if (block->size >= size)
			return block;
	for (unsigned word = (bin + 1) / 64; word < 2; word++) {
		uint64_t bits = slab->bins[word];

		if (word == (bin + 1) / 64)
			bits &= ~0ULL << (bin + 1) % 64;
		if (bits)
			return slab->free[word * 64 + (unsigned)__builtin_ctzll(bits)];
	}
	return NULL;
}

/* Splits off the bytes of a used block beyond `size` as a free block. If memory is exhausted, the block keeps
 * them. */
static void split(struct block *block, uint64_t size)
{
	struct block *rest = block->size > size ? malloc(sizeof *rest) : NULL;

	if (!rest)
		return;
	*rest = (struct block){ .slab = block->slab,
		                .before = block,
		                .after = block->after,
		                .offset = block->offset + size,
		                .size = block->size - size };
	if (rest->after)
		rest->after->before = rest;
	block->after = rest;
	block->size = size;
	add_free(rest);
}

/* Adds the memory of the block's neighbour after it to the block, and frees the neighbour's description. */
static void merge(struct block *block)
{
	struct block *after = block->after;

	block->size += after->size;
	block->after = after->after;
	if (block->after)
		block->after->before = block;
	free(after);
}

/* ---- Slabs, with the lock -------------------------------------------------------------------------- */

static void add_slab(struct slab *slab)
{
	slab->next = slabs;
	slab->link = &slabs;
	if (slabs)
		slabs->link = &slab->next;
	slabs = slab;
}

static void remove_slab(struct slab *slab)
{
	*slab->link = slab->next;
	if (slab->next)
		slab->next->link = slab->link;
}

/* Returns whether the slab has blocks for the client, the device and the grain. Retires it if its connection
 * is gone or the process has forked since it was made. The caller has locked the client. */
static bool is_for(struct slab *slab, const struct py_client *c, const char *device, uint64_t grain)
{
	if (slab->client != c || slab->grain != grain || slab->is_retired || strcmp(slab->device, device))
		return false;
	if (slab->n_forks != n_forks || slab->connection != c->client->connection || c->client->sock < 0)
		slab->is_retired = true;
	return !slab->is_retired;
}

/* Takes a block from a slab. Returns NULL if the slab is full. Bytes of the block from *ret_dirty on, if
 * there are any, are zero. */
static struct block *take(struct slab *slab, uint64_t size, uint64_t *ret_dirty)
{
	struct block *block = find_free(slab, size);
	uint64_t end;

	if (!block)
		return NULL;
	remove_free(block);
	split(block, size);
	slab->n_used++;
	end = block->offset + block->size;
	*ret_dirty = slab->touched > block->offset ? slab->touched - block->offset : 0;
	if (slab->touched < end)
		slab->touched = end;
	return block;
}

/* ---- Allocating ------------------------------------------------------------------------------------ */

/* Takes a block from a slab that exists. If all are full, returns NULL and sets *ret_size to the bytes that
 * they have together. The caller has locked the client. */
static struct block *find(const struct py_client *c, const char *device, uint64_t grain, uint64_t size,
                          uint64_t *ret_dirty, uint64_t *ret_size)
{
	struct block *block = NULL;
	struct slab *slab;

	*ret_size = 0;
	pthread_mutex_lock(&lock);
	for (slab = slabs; slab && !block; slab = slab->next) {
		if (!is_for(slab, c, device, grain))
			continue;
		*ret_size += slab->size;
		block = take(slab, size, ret_dirty);
		if (block && slab != slabs) {
			remove_slab(slab);
			add_slab(slab);
		}
	}
	pthread_mutex_unlock(&lock);
	return block;
}

/* Makes the region of a slab with `wanted` bytes or, if the quota or memory does not suffice, with `size`
 * bytes for one array alone. */
static int make_region(struct py_client *c, const char *device, uint64_t wanted, uint64_t size,
                       tma_region **ret)
{
	int rc = tma_region_create_on(c->client, device, TMA_REGION_MEMFD, wanted, ret);

	if (wanted > size && (rc == TMA_QUOTA || rc == TMA_NO_MEMORY))
		rc = tma_region_create_on(c->client, device, TMA_REGION_MEMFD, size, ret);
	return rc;
}

/* Takes a block from a new slab. If the slab cannot be made, returns NULL and sets *ret_status to the reason.
 * The caller has locked the client, whose slabs for the device and the grain are all full and have `existing`
 * bytes. `bytes` is the array's size, and `size` is that rounded up to grains. */
static struct block *grow(struct py_client *c, const char *device, uint64_t grain, uint64_t size,
                          uint64_t bytes, uint64_t existing, int *ret_status)
{
	uint64_t wanted = existing < LEAST ? LEAST : existing > MOST ? MOST : existing, dirty;
	struct slab *slab = calloc(1, sizeof *slab);
	struct block *block = malloc(sizeof *block);
	tma_region *region = NULL;

	*ret_status = TMA_NO_MEMORY;
	if (!slab || !block) {
		PyErr_NoMemory();
		goto err;
	}
	if (wanted < size)
		wanted = size;
	CLIENT_CALL(c, *ret_status = make_region(c, *device ? device : NULL, wanted, bytes, &region));
	if (*ret_status < 0)
		goto err;
	*slab = (struct slab){ .client = c,
		               .region = region,
		               .address = region->data,
		               .size = region->size >= size ? region->size : size,
		               .grain = grain,
		               .connection = c->client->connection };
	/* The slab takes over the mapping, because arrays outlive the client. */
	region->data = NULL;
	strcpy(slab->device, device);
	*block = (struct block){ .slab = slab, .size = slab->size };
	pthread_mutex_lock(&lock);
	slab->n_forks = n_forks;
	add_free(block);
	add_slab(slab);
	block = take(slab, size, &dirty);
	pthread_mutex_unlock(&lock);
	return block;

err:
	free(slab);
	free(block);
	return NULL;
}

static void zero(char *start, uint64_t size)
{
	if (size <= QUIET) {
		memset(start, 0, size);
		return;
	}
	Py_BEGIN_ALLOW_THREADS memset(start, 0, size);
	Py_END_ALLOW_THREADS
}

/* Client.allocate(size, device=None, zeroed=True) gives memory as create() does, but lets small arrays share
 * regions. zeroed=False is for memory that will be overwritten as a whole: if it were zeroed first, the
 * service's cores would have to fetch its lines from this core's cache. */
PyObject *py_client_allocate(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	const char *device = NULL;
	uint64_t size, grain, bytes, dirty = 0, existing;
	struct block *block;
	struct py_region *r;
	int zeroed = 1, rc = 0;

	if (!PyArg_ParseTuple(args, "O&|zp:allocate", parse_u64, &bytes, &device, &zeroed))
		return NULL;
	if (bytes == 0 || bytes >= SMALL || (device && strlen(device) >= sizeof((struct slab *)0)->device))
		return py_region_create(c, bytes, device, false);
	device = device ? device : "";
	grain = bytes < COARSE ? FINE : COARSE;
	size = (bytes + grain - 1) / grain * grain;
	r = py_region_alloc(c);
	if (!r)
		return NULL;
	if (!py_client_enter(c)) {
		Py_DECREF(r);
		return NULL;
	}
	block = find(c, device, grain, size, &dirty, &existing);
	if (!block)
		block = grow(c, device, grain, size, bytes, existing, &rc);
	if (block) {
		r->block = block;
		r->region = block->slab->region;
		r->address = block->slab->address + block->offset;
		r->is_mapped = true;
		r->kind = tma_region_kind(r->region);
		r->size = bytes;
	}
	rc = py_client_check(c, rc);
	py_client_unlock(c);
	if (rc < 0) {
		Py_DECREF(r);
		return NULL;
	}
	if (zeroed)
		zero(r->address, dirty < bytes ? dirty : bytes);
	return (PyObject *)r;
}

/* ---- Freeing --------------------------------------------------------------------------------------- */

void block_free(struct block *block)
{
	struct slab *slab = block->slab;
	bool is_empty;

	pthread_mutex_lock(&lock);
	if (block->after && block->after->is_free) {
		remove_free(block->after);
		merge(block);
	}
	if (block->before && block->before->is_free) {
		block = block->before;
		remove_free(block);
		merge(block);
	}
	is_empty = --slab->n_used == 0;
	if (is_empty)
		remove_slab(slab);
	else
		add_free(block);
	pthread_mutex_unlock(&lock);
	if (!is_empty)
		return;
	py_region_leave(slab->client, slab->region, slab->address, slab->size);
	free(block);
	free(slab);
}

void slabs_retire(const char *start, uint64_t size)
{
	pthread_mutex_lock(&lock);
	for (struct slab *slab = slabs; slab; slab = slab->next)
		if (start < slab->address + slab->size && slab->address < start + size)
			slab->is_retired = true;
	pthread_mutex_unlock(&lock);
}

void slabs_retire_of(const struct py_client *c)
{
	pthread_mutex_lock(&lock);
	for (struct slab *slab = slabs; slab; slab = slab->next)
		if (slab->client == c)
			slab->is_retired = true;
	pthread_mutex_unlock(&lock);
}
