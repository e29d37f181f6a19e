/* SPDX-License-Identifier: Apache-2.0 */
/* A memory of the front, and what is kept of it to map it anew. */
#ifndef KERNELS_PROCESS_FRONT_MEMORY_H
#define KERNELS_PROCESS_FRONT_MEMORY_H

#include "front.h"

/* An allocation that memories share, with the descriptor that it came with. */
struct front_chunk {
	atomic_uint refs;
	int fd;
	uint64_t size;
};

struct front_memory {
	struct engine_memory base;
	struct front *front;
	TAILQ_ENTRY(front_memory) entry;
	uint32_t number;
	atomic_uint_fast64_t life; /* of the child that has it; 0: none */
	bool is_leaving;           /* somebody unmaps it */
	struct engine_memory *host;
	uint64_t of_child[2]; /* identity, as the child has it */

	/* To map it anew; the descriptor is its own. */
	bool comes_back;
	bool is_lent; /* but for this one, which is the host mapping's or the allocation's */
	struct engine_handle handle;
	uint8_t bytes[ENGINE_HANDLE_BYTES]; /* of the handle */
	struct memory_chunks chunks;        /* n: 0: no other memory has any of it */
	struct front_chunk **list;          /* the same */
};

static struct front_memory *front_memory_of(struct engine_memory *memory)
{
	return (struct front_memory *)memory;
}

/* Keeps what it takes, of a memory that its host mapping has been made for. */
int front_memory_keep(struct front_memory *memory, const struct engine_handle *handle, struct error *err);

/* What the owner is to see of it. */
int front_memory_describe(struct front *front, struct front_memory *memory,
                          const struct engine_handle *handle, const struct wire_answer *result,
                          struct error *err);

/* Gives the memory a backing, by which its failure is noticed, if the child has found that it may fail. */
int front_memory_give_backing(struct front_memory *memory, bool has_backing, struct error *err);

/* Frees all but the struct. */
void front_memory_let_go(struct front_memory *memory);

#endif
