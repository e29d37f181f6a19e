/* SPDX-License-Identifier: Apache-2.0 */
/* Plans how a list of blocks with a side in host memory travels without a kernel that waits for the bus. This
 * is pure arithmetic: it calls no driver, so it is tested without one.
 *
 * Blocks that are scattered on the host are packed, one after the other: threads copy them into pinned
 * buffers, from which the device's copy engine takes them in large copies; on the way out, the copy engine
 * fills the buffers and threads unpack them. Where the blocks lie on the host in long runs anyway, or evenly
 * spaced (as the heads of one rank do in pages of all heads), the copy engine copies them directly. If each
 * block is a single run and the blocks also lie in long runs on the device, it copies them straight to their
 * final places and no kernel is needed. Otherwise it copies to or from scratch memory, and one launch moves a
 * whole stretch of the list between scratch memory and the blocks' places on the device. Several stretches
 * are under way at once, so that the bus is never idle.
 *
 * A launch may have to wait for other processes on the device, for a millisecond or two until the engine's
 * process has its turn. Stretches are therefore small at first, while the bus has nothing to do yet, and
 * double from one to the next; once launches have been seen to wait, they are as large as scratch memory
 * allows.
 *
 *   list      | the entries that name a block, in order
 *   item      | the block of one such entry in one layer; the items of each layer follow those of the layer
 *             | before
 *   stretch   | the items that one launch moves: some entries of a layer, or all entries of some layers
 *   packed    | the items of a stretch lie one after the other, `pitch` bytes apart
 *   chunk     | the packed bytes that pass through one pinned buffer, or that are copied in one go
 *   piece     | packed bytes that are also contiguous in the tensor's memory
 *
 * Some jobs are left to the kernel that reads and writes host memory in place:
 *
 *   - jobs of few bytes, for which it occupies the device only briefly
 *   - on an idle device, jobs of a single stretch, which would be no faster in two steps
 *   - jobs with gaps between the elements of a block on the host
 *   - lists of more than PACKING_MOST_ENTRIES
 *   - jobs for which threads would have to pack while no other process is seen on the device (jobs.h)
 *   - jobs for which threads would have to copy blocks that are shorter than run_bytes
 */
#ifndef KERNELS_CUDA_STAGE_PACKING_H
#define KERNELS_CUDA_STAGE_PACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"

#define PACKING_MOST_ENTRIES 524288
#define PACKING_MOST_SLOTS   4
#define PACKING_PART_BYTES   (128u << 10) /* bytes of a chunk that a thread copies at a time */

struct packing_limits {
	uint64_t least_bytes;   /* Jobs with fewer bytes on the host stay with a kernel. */
	uint64_t run_bytes;     /* Blocks of fewer bytes are not copied by threads. */
	uint64_t piece_bytes;   /* least average bytes of pieces that the copy engine copies directly */
	uint64_t slot_bytes;    /* bytes of a pinned buffer; 0: there are no pinned buffers */
	uint64_t stretch_bytes; /* approximate bytes of the first stretch, on either side */
	uint64_t scratch_bytes; /* bytes of scratch memory that the job may use */
	uint32_t slots;         /* maximum number of stretches under way, 1 to PACKING_MOST_SLOTS */
	bool has_threads;       /* Threads may copy blocks on the host. */
	bool is_busy;           /* Launches have been seen to wait for others on the device. */
};

enum packing_way {
	PACKING_IN_PLACE,   /* The blocks lie on the device. */
	PACKING_BY_THREADS, /* from or to the host, through pinned buffers that threads pack or unpack */
	PACKING_BY_COPIES,  /* from or to the host, directly by the copy engine */
};

struct packing_side {
	enum packing_way way;
	const struct engine_blocks_side *blocks;
	int64_t low;           /* bytes from a block's element [0, ..., 0] to its lowest element */
	uint64_t bytes;        /* bytes of a block, from its lowest element on */
	uint64_t pitch;        /* bytes from one packed item to the next */
	uint64_t chunk_bytes;  /* bytes of a chunk; the last one may have fewer */
	uint64_t room;         /* bytes of scratch memory for one stretch; 0: the side needs none */
	const uint32_t *block; /* array with the block of each entry that names one; packing_read sets it */
	bool is_dense;         /* The blocks are 0, 1, 2 and so on, and lie without gaps. */
};

struct packing {
	const struct transform *transform;
	struct engine_blocks *blocks;
	struct packing_side dst, src;
	bool is_plain;     /* Each block is one run of bytes on both sides, so that no kernel is needed. */
	bool list_is_kept; /* Kernels read the list where it lies on the device, at list_at. */
	bool has_threads;  /* This and the next three, and piece_bytes, are the limits of these names. */
	bool is_busy;
	uint64_t run_bytes;
	uint64_t stretch_bytes;
	uint64_t most_items; /* maximum number of items in a stretch */
	uint32_t slots;      /* maximum number of stretches under way */
	/* Bytes of scratch memory for the list that kernels read; 0: no kernel is needed. */
	uint64_t list_room;
	uint64_t scratch_bytes; /* bytes of scratch memory that the job needs */
	uint64_t piece_bytes;

	/* packing_read or packing_take_all sets the fields from here on. */
	uint32_t n;       /* number of entries that name a block */
	uint64_t list_at; /* device address of the list, if it is kept */
};

/* Says which sides of the job lie in host memory, and whether the list stays where it lies on the device. */
struct packing_places {
	bool dst_is_host, src_is_host;
	bool list_is_kept; /* packing_take_all is called instead of packing_read. */
};

/* Sets *ret, and returns whether the job is to travel packed as far as can be told before its list has been
 * read. The job must outlive *ret. */
bool packing_init(struct packing *ret, const struct engine_job *job, const struct packing_places *places,
                  const struct packing_limits *limits);

/* Returns the bytes that packing_read needs for its arrays of uint32_t. */
uint64_t packing_list_bytes(const struct packing *packing);

/* Reads each entry of the list exactly once into `arrays`, and counts in packing->blocks the entries that
 * name no block. list points to the first entry; if it lies in a client's memory, the caller holds a guard
 * (kernels/host/fault.h). */
void packing_read(struct packing *packing, const void *list, uint32_t *arrays);

/* For a list that stays on the device: assumes that every entry names a block. That is possible because the
 * side in host memory is not indexed, so that its blocks do not depend on the entries; kernels skip entries
 * that name no block, and count them. Fills `array`, which has room for as many numbers as the list has
 * entries and must outlive *packing. list_at is the list's address on the device. */
void packing_take_all(struct packing *packing, uint64_t list_at, uint32_t *array);

/* Decides again, after packing_read or packing_take_all. Returns false if the job is not to travel packed
 * after all; the caller then resets the counts of entries, which whatever moves the job sets again.
 * slot_bytes is the size of a pinned buffer. */
bool packing_judge(struct packing *packing, uint64_t slot_bytes);

/* ---- Stretches ----------------------------------------------------------------------------------------- */

struct packing_stretch {
	uint64_t first, n; /* range among the entries that name a block */
	uint32_t layer, layers;
};

/* A cursor marks where the next stretch begins. Zeroed, it marks the first one. */
struct packing_cursor {
	uint64_t stretches; /* number of stretches before the cursor */
	uint64_t entry;
	uint32_t layer;
};

/* Returns whether all stretches have been taken. */
bool packing_is_at_end(const struct packing *packing, const struct packing_cursor *at);

/* Sets *ret to the stretch at *at and moves *at behind it. is_busy: launches have been seen to wait, so the
 * stretch is as large as possible. */
void packing_stretch_next(const struct packing *packing, struct packing_cursor *at, bool is_busy,
                          struct packing_stretch *ret);

/* These return the packed size of a stretch in bytes, the number of its chunks, and chunk i as the range of
 * packed bytes [*ret_from, *ret_to). Chunks that the copy engine copies directly consist of whole blocks. */
uint64_t packing_bytes(const struct packing_side *side, const struct packing_stretch *stretch);
uint64_t packing_chunks(const struct packing_side *side, const struct packing_stretch *stretch);
void packing_chunk(const struct packing_side *side, const struct packing_stretch *stretch, uint64_t i,
                   uint64_t *ret_from, uint64_t *ret_to);

struct packing_piece {
	uint64_t at;    /* offset in the packed stretch */
	int64_t place;  /* bytes from element [0, ..., 0] of block 0 of layer 0 in the tensor's memory */
	uint64_t bytes; /* 0: there are no more pieces */
};

/* Returns the first piece at or after packed offset *at, and moves *at behind that piece. The piece does not
 * extend beyond packed offset `end`. If layers have separate addresses, it does not extend beyond its layer
 * either, because the next layer may be in another allocation. */
struct packing_piece packing_next(const struct packing_side *side, const struct packing_stretch *stretch,
                                  uint64_t *at, uint64_t end);

/* N pieces of equal length that one command copies. They are `step` bytes apart in the tensor's memory and
 * `pitch` bytes apart where they are packed. */
struct packing_rows {
	struct packing_piece first; /* first.bytes == 0: there are no more */
	uint64_t n;
	uint64_t step;
};

/* Like packing_next, but returns as many evenly spaced blocks at once as possible. The side's way must be
 * PACKING_BY_COPIES, and the copies must go from or to packed scratch memory. */
struct packing_rows packing_next_rows(const struct packing *packing, const struct packing_side *side,
                                      const struct packing_stretch *stretch, uint64_t *at, uint64_t end);

/* ---- The kernel's list ----------------------------------------------------------------------------------
 */

/* The parts of the list that kernels read, in the order in which they lie in scratch memory: the numbers of
 * the blocks, and the offsets of the layers on either side. */
enum packing_part { PACKING_INDEX, PACKING_DST_LAYERS, PACKING_SRC_LAYERS, PACKING_PARTS };

struct packing_upload {
	const void *bytes;
	uint64_t size; /* 0: the list has no such part */
	uint64_t at;   /* offset in bytes from the start of the job's scratch memory */
};

/* Describes one part of the list. Its bytes are set only after packing_read. */
void packing_upload(const struct packing *packing, enum packing_part part, struct packing_upload *ret);

/* Arguments of the kernel that moves one stretch. Offsets on a packed side are relative to the stretch's
 * first block. */
struct packing_launch {
	struct engine_blocks blocks; /* without its index, which is on the device already */
	uint64_t index;              /* device addresses; 0 for layers that are evenly spaced */
	uint64_t dst_layers, src_layers;
	/* Bytes from the start of a side to element [0, ..., 0] of its block 0. A packed side starts at the
	 * first byte of the packed stretch, the other one at element [0, ..., 0] of block 0 of layer 0. */
	int64_t dst, src;
};

/* Sets *ret to the launch of a stretch. scratch is the device address of the job's scratch memory, which
 * begins with its list. */
void packing_launch(const struct packing *packing, const struct packing_stretch *stretch, uint64_t scratch,
                    struct packing_launch *ret);

/* These return where a side of the stretch in slot i is packed in scratch memory. Elements lie at multiples
 * of 16 bytes there if they do in the blocks. */
uint64_t packing_src_place(const struct packing *packing, uint64_t scratch, uint32_t i);
uint64_t packing_dst_place(const struct packing *packing, uint64_t scratch, uint32_t i);

#endif
