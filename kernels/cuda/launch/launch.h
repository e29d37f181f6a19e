/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a plan and two addresses into what the device runs: kernel arguments, tensor maps and launches.
 *
 * Only one thread at a time may use a launcher. Several launchers share a device and its cache of tensor
 * maps. Nothing here allocates memory after map_cache_init: the driver copies the arguments at the launch.
 */
#ifndef KERNELS_CUDA_LAUNCH_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_LAUNCH_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/device/args.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/strategy/plan.h"
#include "kernels/engine.h"
#include "kernels/transform/transform.h"
#include "proto/status.h"

struct convert_operands;
struct device;
struct engine_blocks;
struct engine_move;
struct tile_copy_args;

/* ---- Tensor maps --------------------------------------------------------------------------------------- */

/* A cache of encoded tensor maps, keyed by layout. map_cache_get patches the address into a copy of the map.
 *
 * map_cache_init allocates all entries, so that neither a hit nor a miss allocates. A miss in a full cache
 * replaces the least recently used map, but only after the new map has been encoded. Any thread may use a
 * cache. It locks the cache while it looks a map up or encodes one.
 */

struct map_entry {
	CUtensorMap map; /* the layout's map at `address` */
	uint64_t address;
	struct tensor_map_layout layout;
	uint64_t hash;
	TAILQ_ENTRY(map_entry) used; /* most recently used first */
	LIST_ENTRY(map_entry) bucket;
};

struct map_cache {
	/* Guards everything. The counters may be read without it, but only its holder changes them. */
	pthread_mutex_t lock;
	struct map_entry *entries; /* array of `capacity` entries, of which the first n_entries are in use */
	uint64_t capacity;
	TAILQ_HEAD(map_list, map_entry) used;
	LIST_HEAD(map_bucket, map_entry) * buckets;
	uint64_t n_buckets; /* a power of two */
	uint64_t seed;
	_Atomic uint64_t hits;
	_Atomic uint64_t misses;
	_Atomic uint64_t evictions;
	_Atomic uint64_t n_entries;
};

/* Initializes a cache for up to `capacity` maps, which may be 0. The seed is random, so that clients cannot
 * provoke collisions. Returns 0 or NO_MEMORY, in which case nothing remains allocated. */
int map_cache_init(struct map_cache *cache, uint64_t capacity, uint64_t seed, struct error *err);

/* Frees a cache. The cache may be zeroed instead of initialized. */
void map_cache_deinit(struct map_cache *cache);

/* Sets *ret to the layout's tensor map at the address. Returns 0, INVALID_ARGUMENT with every rule that the
 * layout and the address break, or the driver's error. On failure *ret and the cached maps stay unchanged. A
 * CUDA context must be current. */
int map_cache_get(struct map_cache *cache, const struct tensor_map_layout *layout, uint64_t address,
                  CUtensorMap *ret, struct error *err);

/* Sets *ret to the cache's counters. Any thread may call this; it takes no lock. */
void map_cache_stats(const struct map_cache *cache, struct engine_cache_stats *ret);

/* ---- Launches ------------------------------------------------------------------------------------------ */

struct launcher {
	const struct device *device;
	struct map_cache *maps; /* not owned */

	/* Set for each job by launcher_set_job and, where a job is moved in rounds, for each round. */
	uint32_t multiprocessors; /* maximum multiprocessors that a launch occupies; 0: all */
	/* Memory that each launch accesses only once. It should not displace other data in the L2. */
	struct {
		uint64_t start;
		uint64_t bytes; /* 0: there is no such memory */
	} passing;
};

/* Prepares for the launches of one job, which may occupy this many multiprocessors, or all if that is 0.
 * Afterwards no memory is marked as passing. */
static inline void launcher_set_job(struct launcher *launcher, uint32_t multiprocessors)
{
	launcher->multiprocessors = multiprocessors;
	launcher->passing.bytes = 0;
}

/* The kernel of a launch and the resources that it takes. */
struct shape {
	uint32_t kernel; /* enum kernel_id */
	uint64_t blocks; /* number of thread blocks that the work suffices for; a launch may have fewer */
	uint32_t threads;
	uint32_t shared;
	uint32_t a_multiprocessor; /* maximum resident thread blocks of a multiprocessor; 0: no limit */
};

/* Returns the kernel for elements of `element` bytes (1, 2, 4, 8 or 16). `first` is the first of consecutive
 * kernels for ascending sizes. */
static inline uint32_t by_element(enum kernel_id first, uint32_t element)
{
	return (uint32_t)first + (uint32_t)__builtin_ctz(element);
}

/* Launches a kernel. The driver copies the arguments, so args need not outlive the call. Returns 0 or an
 * error. */
int shape_launch(const struct shape *shape, const struct launcher *launcher, CUstream stream, void *args,
                 struct error *err);

/* Puts the whole transform on the stream: one launch, and a second one for a border that the first does not
 * write. dst and src are the device's addresses of elements [0, ..., 0]; they must have the phases that the
 * plan was made for. operands may be NULL unless the transform converts. Returns 0 or an error. */
int launch_transform(struct launcher *launcher, CUstream stream, const struct transform *transform,
                     const struct plan *plan, uint64_t dst, uint64_t src,
                     const struct convert_operands *operands, struct error *err);

/* Returns whether launches may occupy only a part of the device. */
bool launcher_is_bounded(const struct launcher *launcher);

/* ---- Conversions --------------------------------------------------------------------------------------- */

/* The inputs and outputs of a conversion besides its source and destination. */
struct convert_operands {
	struct {
		double number;
		/* Device address of the tensor's element [0, ..., 0]. 0: `number` is the operand. */
		uint64_t address;
	} scale, bias;
	/* Device addresses to which a conversion that computes scales (amax) writes the scales and their
	 * inverses; 0: it does not write them. */
	uint64_t amax_scale, amax_inverse;
	uint64_t changed;    /* device address of the uint64_t counter of an exact cast; 0 for other casts */
	uint64_t magnitudes; /* device address of launch_magnitudes(plan) values of uint32_t */
};

/* Fills in the operands of a move, whose memories the device must be able to use. changed and magnitudes are
 * copied to the fields of the same names. */
void convert_operands_init(struct convert_operands *ret, const struct engine_move *move, uint64_t changed,
                           uint64_t magnitudes);

/* Returns how many magnitudes a launch of the plan keeps between two passes; 0 if it has one pass. */
uint64_t launch_magnitudes(const struct plan *plan);

/* Launches the window of a plan by `convert`. dst, src and operands are as in launch_transform, and blocks
 * and list as in launch_blocks, or NULL if there is no list. Returns 0 or an error. */
int launch_convert(struct launcher *launcher, CUstream stream, const struct transform *transform,
                   const struct plan *plan, uint64_t dst, uint64_t src,
                   const struct convert_operands *operands, const struct engine_blocks *blocks,
                   const struct block_list *list, struct error *err);

/* ---- Many moves ---------------------------------------------------------------------------------------- */

/* Moves one block for each entry of the list in each layer: by one launch, and a second one for a border that
 * the first does not write. The caller has filled in list except for by_slots. dst and src are the addresses
 * of elements [0, ..., 0] of block 0 of layer 0. The plan must be the one that cuda_plan_of_list made for
 * these blocks; operands is as in launch_transform. If list->index is 0, the list is enclosed in the launch's
 * arguments, which enclosed_entry_bytes must allow. The function then adds the numbers of entries that name
 * no block to the counts in *blocks. Returns 0 or an error. */
int launch_blocks(struct launcher *launcher, CUstream stream, const struct transform *transform,
                  const struct plan *plan, uint64_t dst, uint64_t src,
                  const struct convert_operands *operands, struct engine_blocks *blocks,
                  const struct block_list *list, struct error *err);

/* Returns the kernel that moves the plan's transform among other moves of a launch. The plan's strategy must
 * be one that spreads. */
uint32_t many_kernel(const struct transform *transform, const struct tma_route_plan *tma);

/* Returns the bytes of the plan's entry in the table for launch_many. */
size_t many_entry_bytes(const struct plan *plan);

/* Writes the plan's entry for launch_many, of many_entry_bytes(plan) bytes, and returns the number of thread
 * blocks that it takes. */
uint32_t many_entry_write(void *entry, const struct launcher *launcher, const struct transform *transform,
                          const struct plan *plan, uint64_t dst, uint64_t src);

/* Launches n moves of one kernel at once. The arguments entries, which and first are device addresses. which
 * is an array of n uint32_t: the offset in bytes of each move's entry from `entries`. first is an array of
 * n + 1 uint32_t: the number of each move's first thread block, and the total at the end. blocks is the same
 * total. Returns 0 or an error. */
int launch_many(struct launcher *launcher, CUstream stream, uint32_t kernel, uint32_t n, uint64_t entries,
                uint64_t which, uint64_t first, uint64_t blocks, struct error *err);

/* Sets `first` in n entries whose dst, src and bytes the caller has set; bytes must not be 0. Returns the
 * total number of parts. */
uint64_t runs_lay(struct run_entry *entries, uint32_t n);

/* Launches the copy of n runs. `entries` is the device address of the entries that runs_lay completed, and
 * `parts` is what it returned. Returns 0 or an error. */
int launch_runs(struct launcher *launcher, CUstream stream, uint64_t entries, uint32_t n, uint64_t parts,
                struct error *err);

/* ---- Enclosed lists ------------------------------------------------------------------------------------ */

/* An index list may be part of a launch's arguments ("enclosed"), so that it needs no memory on the device.
 * Returns the bytes of an entry in the arguments, 2 or 4. Returns 0 if the list cannot be enclosed: it is in
 * a region or too long, its entries are pairs, the plan has no kernel specific to lists, or offsets of layers
 * have to be sent to device memory anyway. */
uint32_t enclosed_entry_bytes(const struct plan *plan, const struct engine_blocks *blocks);

/* Returns whether the list fits the kernel with the smaller arguments. */
bool enclosed_is_short(const struct engine_blocks *blocks, uint32_t entry_bytes);

/* Writes the entries to `to`, padded to a multiple of 32, and adds the numbers of entries that name no block
 * to the counts in *blocks (passed and beyond). Such an entry is written with all bits set. */
void enclosed_write(struct engine_blocks *blocks, uint32_t entry_bytes, void *to);

/* ---- For strategies: dst and src are addresses at which the window begins ---------------------------- */

/* Launches the strategy's kernel for a single move without a tensor map. Returns 0 or an error. */
int launch_strided(struct launcher *launcher, CUstream stream, const struct transform *transform,
                   const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err);

/* Sets *ret to the arguments of tile_copy, tensor maps included, for a plan by `copy`. Returns 0 or an
 * error. */
int tile_copy_args_init(struct tile_copy_args *ret, struct launcher *launcher,
                        const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err);

/* Launches one move with the kernel for many moves. Returns 0 or an error. */
int launch_one(struct launcher *launcher, CUstream stream, const struct transform *transform,
               const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err);

#endif
