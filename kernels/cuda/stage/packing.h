/* SPDX-License-Identifier: Apache-2.0 */
/* A list of blocks with a side in host memory travels as planned here, without a kernel that waits for the
 * bus. Pure: knows no driver, so it is tested without one.
 *
 * Scattered blocks of the host are packed one after the other: threads copy them to pinned buffers, from
 * where the device's copy engine takes them in large copies; on the way out the other way round. Where the
 * blocks of the host lie in long stretches anyway, or evenly spaced, as the heads of one rank do in pages of
 * all heads, the copy engine takes them from there. Where they are
 * single runs and lie in long stretches on the device as well, it brings them to where they belong: there is
 * no kernel at all. Else it brings them to scratch memory, and one launch moves a whole stretch of the list
 * from there, or to there. Several stretches are under way at once, so that the bus always has some of them.
 *
 * A launch may have to wait for others on the device, for a millisecond or two where their process has its
 * turn. So stretches are small at first, when the bus has nothing to do yet, and double from one to the next;
 * they are as large as scratch memory allows once launches have waited.
 *
 *   list      | entries that name a block, in each layer: the items, in their order
 *   stretch   | items that one launch moves: some entries of a layer, or all of some layers
 *   packed    | the items of a stretch one after the other, a pitch apart
 *   chunk     | bytes of that which a pinned buffer holds
 *   piece     | bytes of that which lie one after the other in the tensor's memory, too
 *
 * The kernel that reads and writes host memory in place keeps jobs of few bytes, which it does not hold up
 * for long, and alone those of a single stretch, which would be no faster in two steps; blocks of the host
 * with gaps between their own elements; and lists of more than PACKING_MOST_ENTRIES. It also keeps what
 * threads would have to pack while nobody else is seen on the device (jobs.h), and blocks for them that are
 * shorter than run_bytes.
 */
#ifndef KERNELS_CUDA_STAGE_PACKING_H
#define KERNELS_CUDA_STAGE_PACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"

#define PACKING_MOST_ENTRIES 524288
#define PACKING_MOST_SLOTS   4
#define PACKING_PART_BYTES   (128u << 10) /* bytes that a thread takes at a time */

struct packing_limits {
	uint64_t least_bytes;   /* least bytes of a job on the host */
	uint64_t run_bytes;     /* least bytes of a block on the host that threads copy */
	uint64_t piece_bytes;   /* average size from which on the copy engine takes pieces as they are */
	uint64_t slot_bytes;    /* bytes of a pinned buffer; 0: there are none */
	uint64_t stretch_bytes; /* about the bytes of the first stretch, on either side */
	uint64_t scratch_bytes; /* scratch memory that the job can have */
	uint32_t slots;         /* Stretches under way at most, 1 to PACKING_MOST_SLOTS. */
	bool has_threads;       /* Threads may copy blocks of the host. */
	bool is_busy;           /* Launches have waited for others on the device. */
};

enum packing_way {
	PACKING_IN_PLACE,   /* the blocks lie on the device */
	PACKING_BY_THREADS, /* from or to the host, by way of pinned buffers */
	PACKING_BY_COPIES,  /* from or to the host, by the copy engine alone */
};

struct packing_side {
	enum packing_way way;
	const struct engine_blocks_side *blocks;
	int64_t low;    /* bytes from a block's element [0, ..., 0] to its lowest one */
	uint64_t bytes; /* bytes of a block, from there on */
	uint64_t pitch;
	uint64_t chunk_bytes;
	uint64_t room;         /* scratch bytes of a stretch; 0: it uses none */
	const uint32_t *block; /* the block of each entry that names one */
	bool is_dense;         /* The blocks are 0, 1, 2 and so on, without a gap. */
};

struct packing {
	const struct transform *transform;
	struct engine_blocks *blocks;
	struct packing_side dst, src;
	bool is_plain;     /* Blocks are runs, which need no kernel. */
	bool list_is_kept; /* Kernels read the list where it is, at list_at. */
	bool has_threads;
	bool is_busy;
	uint64_t run_bytes;
	uint64_t stretch_bytes;
	uint64_t most_items; /* items of a stretch at most */
	uint32_t slots;      /* stretches under way at most */
	uint64_t list_room;  /* scratch bytes of the list for kernels; 0: there are none */
	uint64_t scratch_bytes;
	uint64_t piece_bytes;

	/* packing_read or packing_take_all sets these. */
	uint32_t n;       /* number of entries that name a block */
	uint64_t list_at; /* address of the list for kernels, if it is kept */
};

/* These tell which parts of the job lie on the host, and whether its list stays in memory of the device. */
struct packing_places {
	bool dst_is_host, src_is_host;
	bool list_is_kept; /* packing_take_all is called instead of packing_read. */
};

/* Returns whether the job is to travel so. The job must outlive *ret. */
bool packing_init(struct packing *ret, const struct engine_job *job, const struct packing_places *places,
                  const struct packing_limits *limits);

/* Returns the bytes of the arrays of uint32_t that packing_read fills. */
uint64_t packing_list_bytes(const struct packing *packing);

/* Reads each entry of the list once, and counts those that are passed over in packing->blocks. list is the
 * first entry; it may be in a client's memory, and then the call needs a guard. */
void packing_read(struct packing *packing, const void *list, uint32_t *arrays);

/* Takes each entry of a list that is kept for one that names a block: the side on the host is not indexed, so
 * its blocks are where they are whatever the entries name. Kernels skip those that name none, and count them.
 * Fills an array of as many numbers as there are entries, which must outlive *packing; list_at is the list's
 * address on the device. */
void packing_take_all(struct packing *packing, uint64_t list_at, uint32_t *array);

/* Judges the list after that. Returns false if it is not to travel so after all; whoever moves it then counts
 * its entries anew. */
bool packing_judge(struct packing *packing, uint64_t slot_bytes);

/* ---- Stretches ----------------------------------------------------------------------------------------- */

struct packing_stretch {
	uint64_t first, n; /* among the entries that name a block */
	uint32_t layer, layers;
};

/* A cursor says where the next stretch begins. It is zeroed for the first one. */
struct packing_cursor {
	uint64_t stretches; /* number of stretches before it */
	uint64_t entry;
	uint32_t layer;
};

/* Returns whether there are no more stretches. */
bool packing_is_at_end(const struct packing *packing, const struct packing_cursor *at);

/* Sets *ret to the stretch at *at, and moves *at behind it. Launches have waited if is_busy. */
void packing_stretch_next(const struct packing *packing, struct packing_cursor *at, bool is_busy,
                          struct packing_stretch *ret);

/* These return the bytes of the packed stretch, how many chunks that is, and the i-th one. Chunks that the
 * copy engine takes from the host, or brings there, are of whole blocks. */
uint64_t packing_bytes(const struct packing_side *side, const struct packing_stretch *stretch);
uint64_t packing_chunks(const struct packing_side *side, const struct packing_stretch *stretch);
void packing_chunk(const struct packing_side *side, const struct packing_stretch *stretch, uint64_t i,
                   uint64_t *ret_from, uint64_t *ret_to);

struct packing_piece {
	uint64_t at;    /* offset in the packed stretch */
	int64_t place;  /* bytes from element [0, ..., 0] of block 0 of layer 0 */
	uint64_t bytes; /* 0: there are no more */
};

/* Returns the first piece at or after *at, and moves *at behind it. It ends at `end` at the latest, and with
 * its layer if each has a place of its own: what follows may be another allocation. */
struct packing_piece packing_next(const struct packing_side *side, const struct packing_stretch *stretch,
                                  uint64_t *at, uint64_t end);

/* n pieces of equal length that one command copies: a step apart in the tensor's memory, a pitch apart where
 * they are packed. */
struct packing_rows {
	struct packing_piece first; /* bytes 0: there are no more */
	uint64_t n;
	uint64_t step;
};

/* Does as packing_next for a side by PACKING_BY_COPIES whose other end is packed, and takes as many evenly
 * spaced blocks as follow. */
struct packing_rows packing_next_rows(const struct packing *packing, const struct packing_side *side,
                                      const struct packing_stretch *stretch, uint64_t *at, uint64_t end);

/* ---- The kernel's list ----------------------------------------------------------------------------------
 */

/* These are the parts of the list that kernels read, in the order in which they lie in scratch memory. */
enum packing_part { PACKING_INDEX, PACKING_DST_LAYERS, PACKING_SRC_LAYERS, PACKING_PARTS };

struct packing_upload {
	const void *bytes;
	uint64_t size; /* 0: there is no such part */
	uint64_t at;   /* offset from the start of the job's scratch memory */
};

/* Sets *ret to a part of the list, after packing_read. */
void packing_upload(const struct packing *packing, enum packing_part part, struct packing_upload *ret);

/* These are the arguments of the kernel that moves a stretch. Sides that are packed begin at their first
 * block. */
struct packing_launch {
	struct engine_blocks blocks; /* without its index, which the device has */
	uint64_t index;              /* addresses on the device */
	uint64_t dst_layers, src_layers;
	int64_t dst, src; /* bytes from where the sides are to their blocks 0: from the packed stretch's first
	                     byte, or from element [0, ..., 0] of block 0 of layer 0 */
};

/* Sets *ret to the launch of a stretch. scratch is the address of the job's, where its list is. */
void packing_launch(const struct packing *packing, const struct packing_stretch *stretch, uint64_t scratch,
                    struct packing_launch *ret);

/* These return where in the scratch memory of slot i a side of its stretch is packed: so that elements are at
 * multiples of 16 bytes if they can be. */
uint64_t packing_src_place(const struct packing *packing, uint64_t scratch, uint32_t i);
uint64_t packing_dst_place(const struct packing *packing, uint64_t scratch, uint32_t i);

#endif
