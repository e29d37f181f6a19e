/* SPDX-License-Identifier: Apache-2.0 */
/* Copies tensors and blocks between host memory and a device, in chunks that the CPU's engine packs. */
#ifndef CLIENT_LOCAL_PACKING_H
#define CLIENT_LOCAL_PACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "session.h"

/* How a tensor in host memory is packed. If it has no gaps between its first and its last byte, these bytes
 * are copied without change, whatever its strides, and the copy has the same strides. Otherwise its elements
 * are packed in C order, and a dimension with a stride of 0 is packed once. */
struct local_packed {
	struct tensor_layout layout;     /* what is packed: bytes or elements */
	uint64_t address;                /* host address of element [0, ..., 0] of `layout` */
	uint64_t bytes;                  /* bytes of the copy on the device */
	uint64_t first;                  /* offset of the tensor's element [0, ..., 0] in the copy, bytes */
	int64_t stride[TENSOR_MAX_RANK]; /* strides of the tensor in the copy, in elements */
	bool is_gapless;                 /* The bytes are copied without change. */
};

/* Describes how a tensor, which must have elements, is packed. address is the host address of its element [0,
 * ..., 0]. */
void local_packed_init(struct local_packed *ret, const struct tensor_layout *tensor, uint64_t address);

/* How blocks in host memory are packed: those that the list names, in the order of the list, and all of one
 * layer before those of the next. */
struct local_packed_blocks {
	struct local_packed block; /* block 0 of layer 0 */
	struct engine_blocks_side side;
	uint32_t layers;
	const int64_t *list;
	uint64_t n;     /* number of entries, at least 1 */
	uint64_t limit; /* number of blocks in a layer */
};

/* LOCAL_IN copies from the host to the device, LOCAL_OUT back. */
enum local_way { LOCAL_IN, LOCAL_OUT };

/* Copy a packed tensor or packed blocks between host memory and the address `device` of the device. They are
 * part of the work on the program's stream (local_stream): later work on it sees what was copied in, and what
 * is copied out has arrived when the call returns. host_threads limits the threads of the CPU's engine; 0
 * sets no limit. Return 0, NO_MEMORY or an error of the driver. */
int local_bring(struct local_session *session, const struct local_packed *packed, uint64_t device,
                enum local_way way, uint64_t host_threads, struct error *err);
int local_bring_blocks(struct local_session *session, const struct local_packed_blocks *packed,
                       uint64_t device, enum local_way way, uint64_t host_threads, struct error *err);

#endif
