/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors and blocks of the host travel to a device, and back, in chunks that the CPU's engine packs: one
 * element after the other, in C order. */
#ifndef CLIENT_LOCAL_PACKING_H
#define CLIENT_LOCAL_PACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "session.h"

/* A tensor of the host. If it covers each byte from its first to its last, these travel as they are, whatever
 * its strides, and so the tensor has the same strides on the device. Otherwise its elements travel in C
 * order, those of a dimension with a stride of 0 once. */
struct local_packed {
	struct tensor_layout layout;     /* how it is packed, as bytes or as elements */
	uint64_t address;                /* of its element [0, ..., 0] on the host */
	uint64_t bytes;                  /* bytes of the copy on the device */
	uint64_t first;                  /* bytes from the copy's start to the tensor's element [0, ..., 0] */
	int64_t stride[TENSOR_MAX_RANK]; /* strides of the tensor on the device, in elements */
	bool is_gapless;                 /* Its bytes travel as they are. */
};

/* Describes a tensor, which has an element. Its element [0, ..., 0] lies at address. */
void local_packed_init(struct local_packed *ret, const struct tensor_layout *tensor, uint64_t address);

/* Blocks of the host are packed like this: those that the list names, in its order, and all of a layer before
 * those of the next one. */
struct local_packed_blocks {
	struct local_packed block; /* block 0 of layer 0 */
	struct engine_blocks_side side;
	uint32_t layers;
	const int64_t *list;
	uint64_t n;     /* entries; > 0 */
	uint64_t limit; /* blocks of a layer */
};

/* LOCAL_IN is the way from the host to the device, LOCAL_OUT the way back. */
enum local_way { LOCAL_IN, LOCAL_OUT };

/* These bring a packed tensor or packed blocks from the host to memory of the device at that address, or
 * back. They are part of the work of the program's stream (local_stream): what goes in is used by what
 * follows on it, and what comes out is there when the call returns. host_threads limits the threads of the
 * CPU's engine; 0 sets no limit. They return 0, NO_MEMORY or an error of the driver's. */
int local_bring(struct local_session *session, const struct local_packed *packed, uint64_t device,
                enum local_way way, uint64_t host_threads, struct error *err);
int local_bring_blocks(struct local_session *session, const struct local_packed_blocks *packed,
                       uint64_t device, enum local_way way, uint64_t host_threads, struct error *err);

#endif
