/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of moves that convert: the kernel by the plan, the operands and where changed elements are
 * counted. */
#ifndef KERNELS_CUDA_LAUNCH_CONVERT_H
#define KERNELS_CUDA_LAUNCH_CONVERT_H

#include <stdint.h>

#include "kernels/cuda/device/args.h"
#include "launch.h"

struct engine_blocks;
struct engine_move;

/* What a conversion takes beside its source. */
struct convert_operands {
	struct {
		double number;
		uint64_t address; /* of a tensor's element [0, ..., 0], for the device; 0: it is the number */
	} scale, bias;
	uint64_t amax_scale, amax_inverse; /* where those of a move with amax are written; 0: nowhere */
	uint64_t changed;                  /* a uint64_t on the device, of an exact cast; else 0 */
	uint64_t magnitudes;               /* as many uint32_t on the device as launch_magnitudes says */
};

/* Finds the operands of a move whose memories the device can use; changed and magnitudes are as above. */
void convert_operands_init(struct convert_operands *ret, const struct engine_move *move, uint64_t changed,
                           uint64_t magnitudes);

/* What a launch of the plan needs in between two passes; 0: it has one. */
uint64_t launch_magnitudes(const struct plan *plan);

/* Launches the window of a plan by `convert`. dst and src are as launch_transform takes them, blocks and list
 * as launch_blocks takes them, or NULL without a list. Returns 0 or an error. */
int launch_convert(struct launcher *launcher, CUstream stream, const struct transform *transform,
                   const struct plan *plan, uint64_t dst, uint64_t src,
                   const struct convert_operands *operands, const struct engine_blocks *blocks,
                   const struct block_list *list, struct error *err);

#endif
