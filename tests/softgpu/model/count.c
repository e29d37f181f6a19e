/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what kernels execute and move, while a test asks for it.
 *
 * Fibers run the lanes of a warp one after the other, so the lanes of one instruction have to be matched: by
 * the source line that executes it, and by the iteration of every enclosing loop, counted from the entry of
 * that loop. Lanes that diverge at a branch thus reconverge behind it, as on a GPU. Where a lane executes a
 * line several times in one iteration, its nth execution matches the nth of the other lanes; that is wrong if
 * some lanes skip one of several calls of a function.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#define BANKS      32
#define BANK_BYTES 4
#define BUCKETS    (1u << 14)

/* An instruction of a warp that some of its lanes have not reached yet. */
struct instruction {
	uint64_t key; /* hash of line, iterations, kind and size */
	uint32_t next;
	uint32_t warp;
	uint32_t lanes; /* mask of the lanes that have reached it */
	enum softgpu_instruction kind;
	uint32_t size; /* bytes that a lane accesses */
	uint32_t n;
	/* For global memory: n sector numbers; for shared memory: each lane's offset. */
	uint64_t at[MODEL_WARP];
};

struct softgpu_counts *model_counts;
bool model_is_counting;

/* Pending instructions of the running cluster, and unused entries. References to entries are index + 1; 0:
 * none. */
static struct {
	struct instruction *all;
	uint32_t n;
	uint32_t room;
	uint32_t free;
	uint32_t buckets[BUCKETS];
} pending;

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ b * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);

	x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return x ^ x >> 32;
}

/* ---- Iterations
 * ----------------------------------------------------------------------------------------- */

void model_iteration_begin(uint32_t loop)
{
	struct model_thread *self = machine.self;
	struct model_iteration *outer = &self->iterations[self->depth];

	if (self->depth == MODEL_MAX_LOOPS)
		model_fail("a loop in %u others, more than the model follows when it counts",
		           MODEL_MAX_LOOPS);
	if (outer->loop != loop)
		outer->n = 0;
	outer->loop = loop;
	self->iterations[++self->depth] =
	    (struct model_iteration){ .path = mix(outer->path, (uint64_t)loop << 32 | ++outer->n) };
}

void model_iteration_end(void)
{
	machine.self->depth--;
}

/* ---- Instructions ---------------------------------------------------------------------------------- */

static bool is_shared(enum softgpu_instruction kind)
{
	return kind == SOFTGPU_SHARED_READ || kind == SOFTGPU_SHARED_WRITE;
}

static bool is_global(enum softgpu_instruction kind)
{
	return kind == SOFTGPU_GLOBAL_READ || kind == SOFTGPU_GLOBAL_WRITE || kind == SOFTGPU_GLOBAL_ADD;
}

/* Returns the number of distinct words in the most used bank for lanes [first, end). */
static uint32_t wavefronts_of(const struct instruction *instruction, uint32_t first, uint32_t end)
{
	const uint32_t words = (instruction->size + BANK_BYTES - 1) / BANK_BYTES;
	uint64_t words_of[BANKS][MODEL_WARP];
	uint32_t n[BANKS] = { 0 }, most = 0;

	for (uint32_t lane = first; lane < end; lane++) {
		if (!(instruction->lanes >> lane & 1))
			continue;
		for (uint32_t w = 0; w < words; w++) {
			const uint64_t word = instruction->at[lane] / BANK_BYTES + w;
			const uint32_t bank = word % BANKS;
			uint32_t i = 0;

			while (i < n[bank] && words_of[bank][i] != word)
				i++;
			if (i < n[bank])
				continue;
			words_of[bank][n[bank]++] = word;
			if (n[bank] > most)
				most = n[bank];
		}
	}
	return most;
}

static void add_wavefronts(const struct instruction *instruction)
{
	const uint32_t parts = instruction->size <= 4 ? 1 : instruction->size / 4, lanes = MODEL_WARP / parts;

	for (uint32_t first = 0; first < MODEL_WARP; first += lanes) {
		const uint32_t n = wavefronts_of(instruction, first, first + lanes);

		model_counts->wavefronts += n;
		model_counts->ideal_wavefronts += n > 0;
	}
}

static void finish(const struct instruction *instruction)
{
	model_counts->instructions[instruction->kind]++;
	if (is_shared(instruction->kind))
		add_wavefronts(instruction);
	else if (instruction->kind == SOFTGPU_GLOBAL_READ)
		model_counts->read.warps += instruction->n;
	else if (is_global(instruction->kind))
		model_counts->written.warps += instruction->n;
}

/* Returns the mask of the warp's lanes that exist: the block may end within the warp. */
static uint32_t lanes_of(uint32_t warp_in_block)
{
	const uint32_t left = machine.block_threads - warp_in_block * MODEL_WARP;

	return left >= MODEL_WARP ? UINT32_MAX : (UINT32_C(1) << left) - 1;
}

static uint32_t number_new(void)
{
	uint32_t number = pending.free;

	if (number) {
		pending.free = pending.all[number - 1].next;
		return number;
	}
	if (pending.n == pending.room) {
		const uint32_t room = pending.room ? 2 * pending.room : 1024;
		struct instruction *all = realloc(pending.all, room * sizeof(*all));

		if (!all)
			model_fail("no memory for %u instructions to be counted", room);
		pending.all = all;
		pending.room = room;
	}
	return ++pending.n;
}

/* Returns the link to the first instruction with that key that the lane has not reached; the link holds 0 if
 * there is none. */
static uint32_t *find(uint64_t key, uint32_t warp, uint32_t lane)
{
	uint32_t *link = &pending.buckets[(key ^ warp) % BUCKETS];

	while (*link) {
		struct instruction *other = &pending.all[*link - 1];

		if (other->key == key && other->warp == warp && !(other->lanes >> lane & 1))
			break;
		link = &other->next;
	}
	return link;
}

void count_instruction(enum softgpu_instruction kind, uint64_t at, uint32_t size, uint32_t line)
{
	const struct model_thread *self = machine.self;
	const uint32_t in_block = self->number % machine.block_threads, lane = in_block % MODEL_WARP;
	const uint32_t warp = self->block->rank * MODEL_MAX_THREADS + in_block / MODEL_WARP;
	const uint64_t key =
	    mix(self->iterations[self->depth].path, (uint64_t)line << 16 | (uint64_t)kind << 8 | size);
	uint32_t *link = find(key, warp, lane), number = *link;
	struct instruction *instruction;

	if (!number) {
		number = number_new();
		/* The array may have been reallocated, and a link may point into it. */
		link = find(key, warp, lane);
		*link = number;
		pending.all[number - 1] =
		    (struct instruction){ .key = key, .warp = warp, .kind = kind, .size = size };
	}
	instruction = &pending.all[number - 1];
	instruction->lanes |= UINT32_C(1) << lane;
	if (is_shared(kind)) {
		instruction->at[lane] = at;
	} else if (is_global(kind)) {
		uint32_t i = instruction->n;

		while (i > 0 && instruction->at[i - 1] != at / SOFTGPU_SECTOR)
			i--;
		if (i == 0)
			instruction->at[instruction->n++] = at / SOFTGPU_SECTOR;
	}
	if (instruction->lanes != lanes_of(in_block / MODEL_WARP))
		return;
	finish(instruction);
	*link = instruction->next;
	*instruction = (struct instruction){ .next = pending.free };
	pending.free = number;
}

void count_cluster_begins(void)
{
	model_is_counting = model_counts != NULL;
	if (!model_is_counting)
		return;
	model_counts->blocks += machine.n_blocks;
	memset(pending.buckets, 0, sizeof(pending.buckets));
	pending.n = pending.free = 0;
}

void count_cluster_ends(void)
{
	for (uint32_t i = 0; model_is_counting && i < pending.n; i++)
		if (pending.all[i].lanes)
			finish(&pending.all[i]);
}

void count_free(void)
{
	free(pending.all);
	pending.all = NULL;
	pending.room = 0;
}

void count_meeting(enum softgpu_instruction kind, uint32_t first, uint32_t n)
{
	uint32_t warps = 0, last = UINT32_MAX;

	if (!model_is_counting)
		return;
	for (uint32_t t = first; t < first + n; t++) {
		const uint32_t warp =
		    t / machine.block_threads * MODEL_MAX_THREADS + t % machine.block_threads / MODEL_WARP;

		if (machine.threads[t].state == THREAD_DONE || warp == last)
			continue;
		last = warp;
		warps++;
	}
	model_counts->instructions[kind] += warps;
}

/* ---- The unit -------------------------------------------------------------------------------------- */

static void add_row(uint64_t *sectors, uint64_t *last, const struct tile_piece *piece)
{
	const uint64_t sector = (piece->global + piece->first) / SOFTGPU_SECTOR;

	if (piece->first == piece->last || sector == *last)
		return;
	*last = sector;
	++*sectors;
}

/* Adds the sectors that the tile touches to *sectors. Returns the tile's bytes. */
static uint64_t add_tile(uint64_t *sectors, const struct unit_op *op)
{
	struct tile_walk walk;
	struct tile_piece piece;
	uint64_t last = UINT64_MAX, bytes = 0;

	tile_begin(&walk, &op->layout, op->address, op->c, 0);
	while (tile_next(&walk, &piece)) {
		add_row(sectors, &last, &piece);
		bytes += piece.last - piece.first;
		if (walk.in_row == 0)
			last = UINT64_MAX;
	}
	return bytes;
}

uint64_t model_sectors(uint64_t address, uint64_t bytes)
{
	return bytes ? (address + bytes - 1) / SOFTGPU_SECTOR - address / SOFTGPU_SECTOR + 1 : 0;
}

uint64_t count_op(const struct unit_op *op)
{
	const bool store = op->state == STORE_ISSUED;
	uint64_t *sectors;

	if (!model_is_counting)
		return 0;
	if (op->is_copy) {
		model_counts->instructions[SOFTGPU_BULK_COPY]++;
		model_counts->copied += op->bytes;
		return 0;
	}
	sectors = store ? &model_counts->written.unit : &model_counts->read.unit;
	if (op->is_tile) {
		model_counts->instructions[store ? SOFTGPU_TILE_STORE : SOFTGPU_TILE_LOAD]++;
		return add_tile(sectors, op);
	}
	model_counts->instructions[store ? SOFTGPU_BULK_STORE : SOFTGPU_BULK_LOAD]++;
	*sectors += model_sectors(op->address, op->bytes);
	return op->bytes;
}

void count_in_flight(struct model_block *block, int64_t bytes)
{
	block->in_flight += (uint64_t)bytes;
	if (!model_is_counting || block->in_flight <= model_counts->in_flight)
		return;
	model_counts->in_flight = block->in_flight;
	model_counts->threads = machine.block_threads;
	model_counts->shared_bytes = machine.launch->shared_bytes;
}
