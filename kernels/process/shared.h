/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the front (the process of an engine's owner) and the child (the process that runs the engine)
 * share: a ring in each direction, words that show each side the other's state, and the structs that they
 * send.
 *
 * Both run the same program, so structs have the same layout on both sides; this is checked when the child
 * starts (wire_sizes). A sleeping child is woken by a futex, a sleeping front by an eventfd.
 *
 * The structs contain no pointers. Streams, jobs, memories and layouts have numbers, which the front assigns.
 * Jobs travel in the rings, in messages of any length, one after the other. A message takes effect before all
 * that follow it: a layout (a transform and its places) is sent before the first job that uses it, and a
 * number may be reused once its previous use has ended. Memory is mapped and unmapped by calls on sockets
 * (SOCK_SEQPACKET), one call at a time on each, because such calls take long and carry descriptors.
 */
#ifndef KERNELS_PROCESS_SHARED_H
#define KERNELS_PROCESS_SHARED_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/engine.h"

/* A child is recognised by its argv[0]. It inherits its control socket as descriptor START_FD. */
#define START_NAME "tmad-engine"
#define START_FD   3

/* ---- Rings --------------------------------------------------------------------------------------------- */

#define RING_ROOM ((size_t)1 << 20)

/* Positions of a ring in the shared memory, zeroed at first. They count bytes from the start and only
 * grow. */
struct ring_positions {
	_Alignas(64) atomic_uint_fast64_t read;
	_Alignas(64) atomic_uint_fast64_t written;
	_Alignas(64) atomic_bool is_waited_for; /* The writer wants to be woken once there is room. */
};

/* One process's view of a ring. The data is mapped twice in a row, so that a message is contiguous even where
 * it wraps. */
struct ring {
	struct ring_positions *positions;
	char *data;
};

/* Maps RING_ROOM bytes of the file at `offset`, which must be a multiple of the page size. Returns false if
 * there is no memory. */
bool ring_map(struct ring *ring, struct ring_positions *positions, int fd, uint64_t offset);
void ring_unmap(struct ring *ring); /* does nothing if the ring is zeroed */

/* Writes as many bytes as there is room for, and returns how many. For the writer. */
size_t ring_write(struct ring *ring, const void *data, size_t size);

/* Announces that the writer waits for room, after a write that could not write everything. Returns false if
 * there is room by now. For the writer. */
bool ring_wait_for_room(struct ring *ring);

/* Returns the bytes that have been written and not dropped, and sets *ret_size to their number. They stay
 * valid until they are dropped. For the reader. */
const char *ring_peek(const struct ring *ring, size_t *ret_size);

/* Drops `size` bytes. Returns whether the writer waits for room and must be woken. For the reader. */
bool ring_drop(struct ring *ring, size_t size);

static inline bool ring_is_empty(const struct ring *ring)
{
	return atomic_load(&ring->positions->written) ==
	       atomic_load_explicit(&ring->positions->read, memory_order_relaxed);
}

/* ---- Words --------------------------------------------------------------------------------------------- */

/* Maximum number of calls that may be under way at once, each on a socket of its own. */
#define SHARED_CALLS 64

/* State of a request to cancel a job. It is in the low SHARED_CANCEL_BITS bits of the word shared->cancel;
 * the number of the request is in the bits above. */
enum shared_cancel {
	CANCEL_ASKED,
	CANCEL_TAKEN, /* The child is asking the engine. */
	/* The front has stopped waiting before the child took the request, so the engine is not asked. */
	CANCEL_WITHDRAWN,
	CANCEL_DONE, /* The job had not started, and ends as CANCELED. */
	CANCEL_REFUSED,
};
#define SHARED_CANCEL_BITS 3

/* Counts of a cache of tensor maps or of plans (struct engine_cache_stats). */
struct shared_stats {
	atomic_uint_fast64_t hits, misses, evictions, entries;
};

struct shared {
	struct ring_positions to_child, to_front;

	/* The child sleeps on this word, which changes when there is something for it to do. */
	_Alignas(64) atomic_uint bell;
	atomic_bool child_sleeps; /* The child wants to be woken when the bell changes. */

	/* If true, the child writes to the eventfd when something has come back. */
	_Alignas(64) atomic_bool front_sleeps;

	/* The request to cancel: its number and its state (enum shared_cancel). The front waits for the word
	 * to change. */
	_Alignas(64) atomic_uint cancel;

	/* Probes are numbered: `asked` is the last one that the front has sent, `answered` the last one that
	 * the child has answered, with the status and text below. */
	_Alignas(64) atomic_uint asked;
	atomic_uint answered;
	int probe_status;
	char probe_text[256];

	/* The child sets this, with the reason in lost_why, when its engine is lost or it runs out of memory;
	 * then it ends. */
	atomic_bool is_lost;
	char lost_why[256];

	struct shared_stats maps, plans; /* The child updates these from time to time. */
	atomic_uint_fast64_t keep_plans; /* number of plans that the front wants the child to keep */
	atomic_bool tunes;               /* if true, the front wants the child to try alternatives to plans */

	/* Indexed by the socket of a call: the front no longer wants what that call maps. */
	atomic_bool unwanted[SHARED_CALLS];
};

/* Offsets of the two rings in the shared file, after struct shared. */
#define SHARED_TO_CHILD_AT ((uint64_t)1 << 16)
#define SHARED_TO_FRONT_AT (SHARED_TO_CHILD_AT + RING_ROOM)
#define SHARED_FILE_BYTES  (SHARED_TO_FRONT_AT + RING_ROOM)

_Static_assert(sizeof(struct shared) <= SHARED_TO_CHILD_AT, "the words lie before the rings");

static inline void shared_wake(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Sleeps until the word differs from `value`, the thread is woken, or ns nanoseconds have passed (0: no
 * limit). */
static inline void shared_sleep(atomic_uint *word, unsigned value, uint64_t ns)
{
	const struct timespec limit = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	syscall(SYS_futex, word, FUTEX_WAIT, value, ns ? &limit : NULL, NULL, 0);
}

/* Tells the child that there is something for it to do. May be called from any thread of either process. */
static inline void shared_ring(struct shared *shared)
{
	atomic_fetch_add(&shared->bell, 1);
	if (atomic_load(&shared->child_sleeps) && atomic_exchange(&shared->child_sleeps, false))
		shared_wake(&shared->bell);
}

static inline void shared_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#define WIRE_NONE UINT32_MAX /* stands for the absence of a number */

/* ---- In the rings ------------------------------------------------------------------------------------- */

enum wire_kind {
	/* From the front to the child. */
	WIRE_LAYOUT,
	WIRE_FORGET_LAYOUT,
	WIRE_JOB,
	WIRE_CANCEL,
	WIRE_CANCEL_STREAM,
	WIRE_FREE_STREAM,
	/* From the child to the front. */
	WIRE_DONE,
	WIRE_PINS_LOST,
};

#define WIRE_ALIGN 8

struct wire_head {
	uint32_t size; /* bytes of the whole message, including this head; a multiple of WIRE_ALIGN */
	uint32_t kind;
};

struct wire_layout {
	struct wire_head head;
	uint32_t layout;
	struct plan_places places;
	struct transform transform;
};

_Static_assert(sizeof(struct wire_layout) % WIRE_ALIGN == 0, "a message ends where the next one begins");

/* Message of any kind that only names one numbered thing. */
struct wire_number {
	struct wire_head head;
	uint32_t number; /* number of the layout, stream or memory; for WIRE_CANCEL that of the job */
	uint32_t cancel; /* for WIRE_CANCEL: word that identifies the request in shared->cancel */
};

struct wire_point {
	uint32_t memory; /* WIRE_NONE: no point */
	uint64_t offset;
	uint64_t value;
};

struct wire_operand {
	double number;
	uint32_t memory;
	uint64_t offset;
};

struct wire_move {
	uint32_t layout;
	uint32_t dst, src;
	uint64_t dst_offset, src_offset;
	struct wire_operand operand[ROLE_COUNT];
};

struct wire_side {
	uint64_t step;
	uint64_t layer_step;
	uint32_t n_layers; /* number of int64_t offsets of layers that follow the message */
	uint32_t n_table;  /* number of struct wire_entry that follow */
};

struct wire_entry {
	uint32_t memory;
	uint64_t offset; /* bytes from the start of the region */
};

struct wire_blocks {
	uint64_t n;
	uint32_t layers;
	bool scatter;
	bool pairs;
	uint8_t index_bytes;
	uint64_t limit;
	uint64_t dst_limit;
	uint64_t index_size; /* bytes of the list that follows the message; 0: the list is in a region */
	uint32_t index_memory;
	uint64_t index_offset;
	struct wire_side dst, src;
};

/* A job. It is followed by n_moves moves, then the layers and entries of dst, those of src, and the list of
 * blocks. */
struct wire_job {
	struct wire_head head;
	uint32_t job;
	uint32_t stream; /* The child creates a stream when it first sees its number. */
	uint64_t owner;  /* identifies the owner of the stream; several streams may have the same */
	struct wire_point wait, signal;
	uint64_t wait_until_ns;
	struct engine_share share;
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

/* A job that has ended. For a batch, n_moves struct wire_move_done follow; otherwise n_moves is 0. */
struct wire_done {
	struct wire_head head;
	uint32_t job;
	int32_t status;
	uint64_t ns;
	uint64_t changed; /* elements that a single move has changed */
	uint64_t passed, beyond;
	enum family family; /* kernel family of a single move, or of what moved each block of a list */
	bool begun;
	bool is_measured;
	uint32_t n_moves;
};

/* ---- On sockets --------------------------------------------------------------------------------------- */

/* First message on the control socket. It carries the descriptors of the shared memory and of the eventfd. */
struct wire_hello {
	uint32_t sizes[4]; /* sizes of some of the front's structs (wire_sizes) */
	char engine[16];
	uint32_t threads;
	bool has_device;
	char device[64];
	uint64_t tensor_maps;
	uint64_t plans;
	bool tunes;
};

/* Sets ret to the sizes of some structs, which are likely to differ in a program of another version. */
static inline void wire_sizes(uint32_t ret[4])
{
	ret[0] = sizeof(struct wire_layout);
	ret[1] = sizeof(struct wire_job);
	ret[2] = sizeof(struct wire_done);
	ret[3] = sizeof(struct engine_explanation);
}

/* The child's answer to the hello, once the engine is open or could not be opened. */
struct wire_ready {
	struct error err; /* status 0: the engine is open */
	char name[16];
	char device[128];
	char uuid[48];
	uint32_t multiprocessors;
	bool plans_by_phase;
	uint64_t plan_bytes; /* memory that each plan takes in the child, in bytes */
	enum region_kind kind;
	bool watches_holes;
	char device_name[80];
	uint64_t memory_bytes;
};

/* Each later message on the control socket carries a socket for calls; number is that socket's index in
 * shared->unwanted. When the front closes the control socket, the child closes the engine and ends. */
struct wire_socket {
	uint32_t number;
};

enum wire_call_kind { WIRE_MAP, WIRE_MAKE, WIRE_SETTLE, WIRE_UNMAP_STEP, WIRE_LINK, WIRE_EXPLAIN };

/* A call. It carries a descriptor if has_fd. If n_parts > 0, messages of parts follow, with their
 * descriptors. For WIRE_EXPLAIN, a struct wire_layout follows the call, and a struct engine_explanation
 * follows the answer. */
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
	uint8_t handle[ENGINE_HANDLE_BYTES]; /* for WIRE_LINK: UUID of the other device, as a string */
};

#define WIRE_PARTS 128 /* maximum number of parts in one message; their descriptors must fit into it */

struct wire_part {
	uint32_t memory; /* WIRE_NONE: the part has a descriptor */
	uint64_t offset;
	uint64_t size;
};

/* The answer to a call. It carries the descriptor of new memory if has_fd. */
struct wire_answer {
	struct error err; /* status 0: the call has succeeded */
	bool is_last;     /* for WIRE_UNMAP_STEP: this was the last step */
	bool has_fd;
	bool has_backing;
	bool is_loose;
	uint32_t handle_len;
	uint8_t handle[ENGINE_HANDLE_BYTES];
	uint64_t base;
	uint64_t address;
	uint64_t memory[2];
	struct engine_link link;
	uint32_t n_chunks; /* number of allocations; 0: other memories cannot share parts of it */
	uint64_t chunk;    /* bytes of the first allocation */
};

#endif
