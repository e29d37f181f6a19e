/* SPDX-License-Identifier: Apache-2.0 */
/* Code for several moves in one launch, and for moves of a list of blocks. It finds the move that a thread
 * block works on and the place of the list block that a slot belongs to.
 *
 * A kernel that moves slots takes its arguments as strided_args for a single tensor, or as many_move, whose
 * slots continue from block to block of a list. For the former, the code here compiles to nothing.
 */
#ifndef KERNELS_CUDA_DEVICE_MANY_CUH
#define KERNELS_CUDA_DEVICE_MANY_CUH

#include "args.h"
#include "kernels/nest/divisor.h"
#include "kernels/cuda/strategy/tuning.h"
#include "tma.cuh"
#include "turns.cuh"

/* The number of this thread block among the `of` thread blocks that share the slots. */
struct share {
	uint32_t number;
	uint32_t of;
};

DEVICE share whole_grid()
{
	return { blockIdx.x, gridDim.x };
}

/* The addresses of elements [0, ..., 0] of a list block. Only memory of its source in [low, high) may be
 * read. */
struct list_place {
	uint64_t dst;
	uint64_t src;
	uint64_t low;
	uint64_t high;
	/* Rotation of the fill pattern: the bytes by which dst lies past the first block's, modulo 16. */
	uint32_t rotation;
	bool there; /* false if the entry names no block; there is nothing to do then */
};

DEVICE const strided_args &args_of(const strided_args &move)
{
	return move;
}

DEVICE const strided_args &args_of(const many_move &move)
{
	return move.move;
}

DEVICE uint64_t layer_offset(uint64_t layers, uint64_t step, uint64_t layer)
{
	return layers ? (uint64_t)global_read((const int64_t *)layers + layer) : layer * step;
}

/* The numbers of a block on both sides and of its layer. */
struct list_item {
	uint64_t dst;
	uint64_t src;
	uint64_t layer;
	bool there; /* false if the entry names no block; there is nothing to do then */
};

/* A list in device memory. `at` returns number i of the list, by a single read. */
struct entries_in_memory {
	DEVICE_MEMBER int64_t at(const block_list &list, uint64_t i) const
	{
		return list.number_bytes == 8 ? global_read_once((const int64_t *)list.index + i)
		                              : global_read_once((const int32_t *)list.index + i);
	}

	DEVICE_MEMBER bool are_pairs(const block_list &list) const
	{
		return list.pairs;
	}
};

/* A list that is enclosed in the kernel's arguments. */
struct entries_enclosed {
	const unsigned char *bytes;

	DEVICE_MEMBER int64_t at(const block_list &list, uint64_t i) const
	{
		return list.number_bytes == 2 ? ((const uint16_t *)bytes)[i] : ((const uint32_t *)bytes)[i];
	}

	DEVICE_MEMBER bool are_pairs(const block_list &) const
	{
		return false;
	}
};

/* Returns the block that slot `number` belongs to, and makes number the slot's number within the block. It
 * reads the list's entry once. If the entry names no block, a thread with `counts` set adds it to the list's
 * counters; it does so for the block's first slot in the first layer only. */
template <typename ENTRIES>
DEVICE list_item find_item(const block_list &list, const ENTRIES &entries, uint64_t &number, bool counts)
{
	const uint64_t item = divide_by(number, &list.by_slots), layer = divide_by(item, &list.by_n);
	const uint64_t i = item - layer * list.by_n.n;
	const bool pairs = entries.are_pairs(list);
	const int64_t entry = entries.at(list, pairs ? 2 * i : i);
	const int64_t other = pairs ? entries.at(list, 2 * i + 1) : (int64_t)i;

	number -= item * list.by_slots.n;
	const bool there = entry >= 0 && (uint64_t)entry < list.limit &&
	                   (!pairs || (other >= 0 && (uint64_t)other < list.dst_limit));

	if (!there && counts && list.counts && number == 0 && layer == 0)
		global_add((uint64_t *)list.counts + (entry != -1 && other != -1), 1);
	return { (uint64_t)(list.scatter ? entry : other), (uint64_t)(list.scatter ? other : entry), layer,
		 there };
}

template <typename ENTRIES>
DEVICE void find_listed(const block_list &list, const ENTRIES &entries, uint64_t &number, bool counts,
                        list_place &place)
{
	const list_item item = find_item(list, entries, number, counts);

	place.there = item.there;
	if (!item.there)
		return;
	const uint64_t to =
	    item.dst * list.dst_step + layer_offset(list.dst_layers, list.dst_layer_step, item.layer);
	const uint64_t from =
	    item.src * list.src_step + layer_offset(list.src_layers, list.src_layer_step, item.layer);

	place.dst += to;
	place.src += from;
	place.low += from;
	place.high += from;
	place.rotation = (uint32_t)to & 15;
}

DEVICE list_place find_block(const strided_args &move, uint64_t &, bool)
{
	return { move.dst, move.src, move.low, move.high, 0, true };
}

DEVICE list_place find_block(const many_move &move, uint64_t &number, bool counts)
{
	list_place place = { move.move.dst, move.move.src, move.move.low, move.move.high, 0, true };

	if (move.list.by_slots.n > 0)
		find_listed(move.list, entries_in_memory(), number, counts, place);
	return place;
}

DEVICE run_entry read_run(const runs_args &args, uint64_t i)
{
	const run_entry *run = (const run_entry *)args.runs + i;

	return { global_read(&run->dst), global_read(&run->src), global_read(&run->bytes),
		 global_read(&run->first) };
}

/* Returns the run that a part belongs to. It first tries the run that would have the part if all runs had
 * equally many parts, and searches for it otherwise. */
DEVICE run_entry find_run(const runs_args &args, uint64_t part)
{
	const run_entry *runs = (const run_entry *)args.runs;
	const uint64_t guess = (part * args.scale) >> 32;
	uint32_t low = 0, high = args.n;

	if (guess < args.n) {
		const run_entry run = read_run(args, guess);

		if (part >= run.first && (part - run.first) * ROW_BYTES < run.bytes)
			return run;
	}
	while (high - low > 1) {
		const uint32_t middle = (low + high) / 2;

		if (global_read(&runs[middle].first) <= part)
			low = middle;
		else
			high = middle;
	}
	return read_run(args, low);
}

DEVICE void copy_words(void *to, const void *from, uint32_t bytes)
{
	for (uint32_t w = threadIdx.x; w < bytes / 4; w += blockDim.x)
		((uint32_t *)to)[w] = ((const uint32_t *)from)[w];
}

/* Copies the move that this thread block works on to the start of shared memory, and returns the thread
 * block's share of that move. `own` is its share of all moves. */
DEVICE share take_move(const many_args &args, share own, unsigned char *shared)
{
	const many_move *from = &args.own;
	many_move *to = (many_move *)shared;
	const uint32_t number = own.number;

	if (args.moves) {
		const uint32_t *first = (const uint32_t *)args.first;
		uint32_t low = 0, high = args.n;

		while (high - low > 1) {
			const uint32_t middle = (low + high) / 2;

			if (global_read(&first[middle]) <= number)
				low = middle;
			else
				high = middle;
		}
		from = (const many_move *)(args.moves + global_read((const uint32_t *)args.which + low));
		const uint32_t start = global_read(&first[low]);

		own.number = number - start;
		own.of = global_read(&first[low + 1]) - start;
	}
	const uint32_t rank = from->move.rank;

	copy_words(to, from, offsetof(many_move, move.dim));
	copy_words(to->move.dim, from->move.dim, rank * sizeof(strided_dim));
	copy_words(to->move.by, from->move.dim + rank, rank * sizeof(divisor));
	__syncthreads();
	return own;
}

/* Calls work(own, turn) for each turn of this thread block (take_turns), where `own` is its share of a move.
 * The move lies at the start of shared memory meanwhile. */
template <typename WORK>
DEVICE void take_moves(const many_args &args, unsigned char *shared, const WORK &work)
{
	take_turns(args.blocks, [&](const turn &turn) {
		work(take_move(args, share{ turn.number, args.blocks }, shared), turn);
	});
}

#endif
