/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels for more than one move: a move of many blocks, and moves of one kernel by a table. */
#ifndef KERNELS_CUDA_LAUNCH_LAUNCH_MANY_H
#define KERNELS_CUDA_LAUNCH_LAUNCH_MANY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/device/args.h"
#include "launch.h"

/* The move once for each entry of the list in each of so many layers: one launch, and one more for a border
 * that the first does not take in. list is filled but for by_slots; dst and src are addresses of elements
 * [0, ..., 0] of block 0 of layer 0; the plan is block_plan_init's for these blocks. operands: as
 * launch_transform. Where enclosed_entry_bytes says so, the list's index is 0: it goes with the launch, and
 * is counted. */
int launch_blocks(struct launcher *launcher, CUstream stream, const struct transform *transform,
                  const struct plan *plan, uint64_t dst, uint64_t src,
                  const struct convert_operands *operands, struct engine_blocks *blocks,
                  const struct block_list *list, struct error *err);

/* One move, by the kernel that would move it among others. dst and src: where the plan starts, addresses. */
int launch_one(struct launcher *launcher, CUstream stream, const struct transform *transform,
               const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err);

/* ---- By a table ------------------------------------------------------------------------------------ */

/* Returns the kernel that moves the plan's transform among others of a launch. The plan's strategy must
 * spread. */
uint32_t many_kernel(const struct transform *transform, const struct tma_route_plan *tma);

/* Most bytes of an entry of the table, and how many this one takes. */
#define MANY_ENTRY_BYTES sizeof(struct many_move)
size_t many_entry_bytes(const struct plan *plan);

/* Writes the entry; returns how many blocks of threads it takes. */
uint32_t many_entry_write(void *entry, const struct launcher *launcher, const struct transform *transform,
                          const struct plan *plan, uint64_t dst, uint64_t src);

/* n entries of one kernel in one launch. which: uint32_t, bytes from `entries` to each one's; first: its
 * first block of threads, and the end. All of them addresses that the device reads. blocks: in all. */
int launch_many(struct launcher *launcher, CUstream stream, uint32_t kernel, uint32_t n, uint64_t entries,
                uint64_t which, uint64_t first, uint64_t blocks, struct error *err);

/* Fills in the rest of n entries that have dst, src and bytes, none of 0. Returns how many parts they are. */
uint64_t runs_lay(struct run_entry *entries, uint32_t n);

/* entries: the address by which the device reads those that were laid. */
int launch_runs(struct launcher *launcher, CUstream stream, uint64_t entries, uint32_t n, uint64_t parts,
                struct error *err);

#endif
