/* SPDX-License-Identifier: Apache-2.0 */
/* A plan and two addresses become what the device runs: kernel arguments, tensor maps, launches.
 *
 * A launcher is used by one thread at a time; several of them share a device and its cache of maps. Nothing
 * here allocates: arguments are copied by the driver at the launch.
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

/* Encoded tensor maps are kept by layout, and the address is patched into a copy.
 *
 * Room for every entry is taken at the start, so that neither a hit nor a miss allocates. The least recently
 * used map goes first, and only once the map that takes its place has been encoded. Any thread may use a
 * cache; it is locked for as long as it takes to look a map up or to encode one. */

struct map_entry {
	CUtensorMap map; /* of the layout at the address */
	uint64_t address;
	struct tensor_map_layout layout;
	uint64_t hash;
	TAILQ_ENTRY(map_entry) used; /* most recent first */
	LIST_ENTRY(map_entry) bucket;
};

struct map_cache {
	pthread_mutex_t lock;      /* It guards everything but the counters, which only its holder changes. */
	struct map_entry *entries; /* the first n_entries are in use */
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

/* Keeps up to `capacity` maps, which may be 0. The seed is random, so that collisions cannot be chosen.
 * Returns 0, or NO_MEMORY, and then nothing is left. */
int map_cache_init(struct map_cache *cache, uint64_t capacity, uint64_t seed, struct error *err);

/* Frees a cache, which may be zeroed. */
void map_cache_deinit(struct map_cache *cache);

/* Sets *ret to the map of the layout at the address. Returns 0, INVALID_ARGUMENT with every rule that the two
 * break, or the driver's error. On failure *ret and what is kept stay as they were. The context must be
 * current. */
int map_cache_get(struct map_cache *cache, const struct tensor_map_layout *layout, uint64_t address,
                  CUtensorMap *ret, struct error *err);

/* Any thread may call this; it takes no lock. */
void map_cache_stats(const struct map_cache *cache, struct engine_cache_stats *ret);

/* ---- Launches ------------------------------------------------------------------------------------------ */

struct launcher {
	const struct device *device;
	struct map_cache *maps; /* The launcher does not own it. */

	/* These are set for each job (launcher_set_job) and round. */
	uint32_t multiprocessors; /* multiprocessors that a launch occupies at most; 0: all */
	struct {
		uint64_t start;
		uint64_t bytes; /* 0: none */
	} passing;              /* memory that each launch reads or writes once, to keep out of the L2 */
};

/* Prepares for the launches of one job, which occupy so many multiprocessors, or all if that is 0. Nothing is
 * passing. */
static inline void launcher_set_job(struct launcher *launcher, uint32_t multiprocessors)
{
	launcher->multiprocessors = multiprocessors;
	launcher->passing.bytes = 0;
}

/* The shape of a launch says which kernel it is of, and how many threads and bytes of shared memory it takes.
 */
struct shape {
	uint32_t kernel; /* enum kernel_id */
	uint64_t blocks; /* blocks at most; persistent kernels take what the device can run at once */
	uint32_t threads;
	uint32_t shared;
	uint32_t a_multiprocessor; /* blocks of a multiprocessor at most; 0: no limit */
};

/* Returns the kernel for elements of so many bytes, of kernels for 1, 2, 4, 8 and 16. */
static inline uint32_t by_element(enum kernel_id first, uint32_t element)
{
	return (uint32_t)first + (uint32_t)__builtin_ctz(element);
}

/* Launches a kernel. The driver copies what args point to. */
int shape_launch(const struct shape *shape, const struct launcher *launcher, CUstream stream, void *args,
                 struct error *err);

/* Puts the whole transform on the stream: one launch, and one more for a border that tiles do not take in.
 * dst and src are addresses of elements [0, ..., 0] that the device can use; their phases are those that the
 * plan was made for. operands is NULL unless it converts. */
int launch_transform(struct launcher *launcher, CUstream stream, const struct transform *transform,
                     const struct plan *plan, uint64_t dst, uint64_t src,
                     const struct convert_operands *operands, struct error *err);

/* Returns whether launches may not occupy all of the device. */
bool launcher_is_bounded(const struct launcher *launcher);

/* ---- Conversions --------------------------------------------------------------------------------------- */

/* A conversion takes these beside its source. */
struct convert_operands {
	struct {
		double number;
		/* Device address of the tensor's element [0, ..., 0]; 0: it is the number. */
		uint64_t address;
	} scale, bias;
	/* Addresses to which a move with amax writes them; 0: nowhere. */
	uint64_t amax_scale, amax_inverse;
	uint64_t changed;    /* device address of an exact cast's uint64_t counter; else 0 */
	uint64_t magnitudes; /* device address of as many uint32_t as launch_magnitudes says */
};

/* Finds the operands of a move whose memories the device can use; changed and magnitudes are as above. */
void convert_operands_init(struct convert_operands *ret, const struct engine_move *move, uint64_t changed,
                           uint64_t magnitudes);

/* Returns how many magnitudes a launch of the plan needs between two passes; 0: it has one pass. */
uint64_t launch_magnitudes(const struct plan *plan);

/* Launches the window of a plan by `convert`. dst and src are as launch_transform takes them, blocks and list
 * as launch_blocks takes them, or NULL without a list. Returns 0 or an error. */
int launch_convert(struct launcher *launcher, CUstream stream, const struct transform *transform,
                   const struct plan *plan, uint64_t dst, uint64_t src,
                   const struct convert_operands *operands, const struct engine_blocks *blocks,
                   const struct block_list *list, struct error *err);

/* ---- Many moves ---------------------------------------------------------------------------------------- */

/* Moves blocks once for each entry of the list in each of so many layers: in one launch, and one more for a
 * border that the first does not take in. list is filled but for by_slots; dst and src are addresses of
 * elements [0, ..., 0] of block 0 of layer 0; the plan is cuda_plan_of_list's for these blocks, and operands
 * are as launch_transform takes them. Where enclosed_entry_bytes says so, the list's index is 0: it goes with
 * the launch, and is counted. */
int launch_blocks(struct launcher *launcher, CUstream stream, const struct transform *transform,
                  const struct plan *plan, uint64_t dst, uint64_t src,
                  const struct convert_operands *operands, struct engine_blocks *blocks,
                  const struct block_list *list, struct error *err);

/* Returns the kernel that moves the plan's transform among others of a launch. The plan's strategy must
 * spread. */
uint32_t many_kernel(const struct transform *transform, const struct tma_route_plan *tma);

/* Returns how many bytes an entry of the table takes. */
size_t many_entry_bytes(const struct plan *plan);

/* Writes the entry, and returns how many blocks of threads it takes. */
uint32_t many_entry_write(void *entry, const struct launcher *launcher, const struct transform *transform,
                          const struct plan *plan, uint64_t dst, uint64_t src);

/* Launches n entries of one kernel at once. `which` has a uint32_t for each, the bytes from `entries` to it,
 * and `first` its first block of threads, and the end. All of them are addresses that the device reads.
 * blocks is their number in all. */
int launch_many(struct launcher *launcher, CUstream stream, uint32_t kernel, uint32_t n, uint64_t entries,
                uint64_t which, uint64_t first, uint64_t blocks, struct error *err);

/* Fills in the rest of n entries that have dst, src and bytes, none of 0. Returns how many parts they are. */
uint64_t runs_lay(struct run_entry *entries, uint32_t n);

/* Launches the runs, which the device reads at that address as they were laid. */
int launch_runs(struct launcher *launcher, CUstream stream, uint64_t entries, uint32_t n, uint64_t parts,
                struct error *err);

/* ---- Enclosed lists ------------------------------------------------------------------------------------ */

/* Index lists may travel in a launch's arguments, and then need no memory on the device. Returns the bytes of
 * an entry as it travels, 2 or 4; 0: the list does not, since it is in a region, or too long, or the plan's
 * kernel is not one for lists alone, or offsets of layers have to be sent to memory anyway. */
uint32_t enclosed_entry_bytes(const struct plan *plan, const struct engine_blocks *blocks);

/* Returns whether it is one for the kernel with the smaller arguments. */
bool enclosed_is_short(const struct engine_blocks *blocks, uint32_t entry_bytes);

/* Writes the entries, in whole groups of 32, and counts what is passed over. An entry that is passed over is
 * written as all ones. */
void enclosed_write(struct engine_blocks *blocks, uint32_t entry_bytes, void *to);

/* ---- For strategies: dst and src are addresses at which the window begins ---------------------------- */

/* Launches the strategy's kernel for a single move, without a map. Returns 0 or an error. */
int launch_strided(struct launcher *launcher, CUstream stream, const struct transform *transform,
                   const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err);

/* Fills in the arguments of tile_copy, maps included, for a plan by `copy`. Returns 0 or an error. */
int tile_copy_args_init(struct tile_copy_args *ret, struct launcher *launcher,
                        const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err);

/* Launches one move by the kernel that would move it among others. */
int launch_one(struct launcher *launcher, CUstream stream, const struct transform *transform,
               const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err);

#endif
