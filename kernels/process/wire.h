/* SPDX-License-Identifier: Apache-2.0 */
/* These structs cross between the front and the child. They hold no pointers: streams, jobs, memories and
 * layouts have numbers, which the front gives out.
 *
 * Jobs travel in the rings, in messages of any length, one after the other. What a message says holds for all
 * that follow: a layout (a transform and its places) is sent before the first job that uses it, and a number
 * may be reused once its owner has been freed.
 *
 * Memory is mapped and unmapped by calls on sockets (SOCK_SEQPACKET), one call at a time on each, because
 * these take long and carry descriptors.
 */
#ifndef KERNELS_PROCESS_WIRE_H
#define KERNELS_PROCESS_WIRE_H

#include "kernels/engine.h"

#define WIRE_NONE UINT32_MAX /* no number */

/* ---- In the rings ------------------------------------------------------------------------------------- */

enum wire_kind {
	/* To the child. */
	WIRE_LAYOUT,
	WIRE_FORGET_LAYOUT,
	WIRE_JOB,
	WIRE_CANCEL,
	WIRE_CANCEL_STREAM,
	WIRE_FREE_STREAM,
	/* To the front. */
	WIRE_DONE,
	WIRE_PINS_LOST,
};

#define WIRE_ALIGN 8

struct wire_head {
	uint32_t size; /* of all of the message, a multiple of WIRE_ALIGN */
	uint32_t kind;
};

struct wire_layout {
	struct wire_head head;
	uint32_t layout;
	struct plan_places places;
	struct transform transform;
};

_Static_assert(sizeof(struct wire_layout) % WIRE_ALIGN == 0, "a message ends where the next one begins");

/* Of messages about one thing that has a number. */
struct wire_number {
	struct wire_head head;
	uint32_t number; /* of the layout, the stream or the memory; to cancel: of the job */
	uint32_t cancel; /* to cancel: of the request */
};

struct wire_point {
	uint32_t memory; /* WIRE_NONE: there is no point */
	uint64_t offset;
	uint64_t value;
};

struct wire_operand {
	double number;
	uint32_t memory;
	uint64_t offset;
};

struct wire_result {
	uint32_t memory;
	uint64_t offset;
};

struct wire_move {
	uint32_t layout;
	uint32_t dst, src;
	uint64_t dst_offset, src_offset;
	struct wire_operand scale, bias;
	struct wire_result amax_scale, amax_inverse;
};

struct wire_side {
	uint64_t step;
	uint64_t layer_step;
	uint32_t n_layers; /* that follow, as int64_t */
	uint32_t n_table;  /* entries that follow, as struct wire_entry */
};

struct wire_entry {
	uint32_t memory;
	uint64_t offset; /* in the region */
};

struct wire_blocks {
	uint64_t n;
	uint32_t layers;
	bool scatter;
	uint8_t index_bytes;
	uint64_t limit;
	uint64_t index_size; /* bytes that follow; 0: the list is in a region */
	uint32_t index_memory;
	uint64_t index_offset;
	struct wire_side dst, src;
};

/* Then come, in this order: n_moves moves; layers and entries of dst; those of src; the list. */
struct wire_job {
	struct wire_head head;
	uint32_t job;
	uint32_t stream; /* new to the child with its first job */
	uint64_t owner;  /* of the stream; which other streams have, too */
	struct wire_point wait, signal;
	uint64_t wait_until_ns;
	enum job_priority priority;
	uint32_t multiprocessors;
	uint32_t host_threads;
	uint32_t n_moves;
	bool is_batch;
	bool has_blocks;
	struct wire_blocks blocks;
};

struct wire_move_done {
	uint64_t changed;
	int32_t status;
	enum family family;
};

/* Then come n_moves moves, of a batch. */
struct wire_done {
	struct wire_head head;
	uint32_t job;
	int32_t status;
	uint64_t ns;
	uint64_t changed; /* of the one move */
	uint64_t passed, beyond;
	enum family family; /* of the one move, or of what moved each block */
	bool begun;
	bool is_measured;
	uint32_t n_moves;
};

/* ---- On sockets --------------------------------------------------------------------------------------- */

/* The first message on the control socket, with the descriptors of the shared memory and the eventfd. */
struct wire_hello {
	uint32_t sizes[4]; /* wire_sizes */
	char engine[16];
	uint32_t threads;
	bool has_device;
	char device[64];
	uint64_t tensor_maps;
	uint64_t plans;
	bool tunes;
};

/* Of structs that would have another one in another program. */
static inline void wire_sizes(uint32_t ret[4])
{
	ret[0] = sizeof(struct wire_layout);
	ret[1] = sizeof(struct wire_job);
	ret[2] = sizeof(struct wire_done);
	ret[3] = sizeof(struct engine_explanation);
}

/* What the child answers once the engine is open, or not. */
struct wire_ready {
	struct error err; /* status 0: it is */
	char name[16];
	char device[128];
	char uuid[48];
	uint32_t multiprocessors;
	bool plans_by_phase;
	uint64_t plan_bytes; /* memory that each plan takes in the child */
	enum region_kind kind;
	bool watches_holes;
	char device_name[80];
	uint64_t memory_bytes;
};

/* On the control socket from then on, with a socket for calls; number: its place in shared->unwanted. A
 * control socket that ends says to close the engine and to end. */
struct wire_socket {
	uint32_t number;
};

enum wire_call_kind { WIRE_MAP, WIRE_MAKE, WIRE_SETTLE, WIRE_UNMAP_STEP, WIRE_LINK, WIRE_EXPLAIN };

/* A call carries a descriptor if has_fd. If n_parts > 0, messages of parts follow, each with its descriptors.
 * For WIRE_EXPLAIN a struct wire_layout follows, and a struct engine_explanation follows the answer. */
struct wire_call {
	enum wire_call_kind kind;
	uint32_t memory;
	enum region_kind region_kind;
	bool writable;
	bool has_fd;
	bool may_be_unwanted;
	bool is_peer;
	bool is_untrusted;
	uint32_t n_parts;
	uint64_t offset;
	uint64_t size;
	uint64_t allocation;
	uint32_t handle_len;
	uint8_t handle[ENGINE_HANDLE_BYTES]; /* WIRE_LINK: the UUID of the other device, a string */
};

#define WIRE_PARTS 128 /* in one message; fewer than the descriptors that fit */

struct wire_part {
	uint32_t memory; /* WIRE_NONE: it has a descriptor */
	uint64_t offset;
	uint64_t size;
};

/* What comes of it, with the descriptor that is to be handed out if has_fd. */
struct wire_answer {
	struct error err; /* status 0: done */
	bool is_last;     /* step of unmapping */
	bool has_fd;
	bool has_backing;
	bool is_loose;
	uint32_t handle_len;
	uint8_t handle[ENGINE_HANDLE_BYTES];
	uint64_t base;
	uint64_t address;
	uint64_t memory[2];
	struct engine_link link;
	uint32_t n_chunks; /* 0: no memory has parts of it */
	uint64_t chunk;    /* bytes of the first of them */
};

#endif
