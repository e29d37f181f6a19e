/* SPDX-License-Identifier: Apache-2.0 */
/* The service's process, the front, shares this with a child that runs an engine for it: a ring in each
 * direction, words by which each side sees the other's state, and the structs that are sent.
 *
 * Both run the same program, so a struct has one layout; that is checked when the child starts (wire_sizes).
 * A side that sleeps is woken by a futex (the child) or an eventfd (the front, whose thread also waits for
 * the child's end).
 *
 * The structs hold no pointers: streams, jobs, memories and layouts have numbers, which the front gives out.
 * Jobs travel in the rings, in messages of any length, one after the other. What a message says holds for all
 * that follow: a layout (a transform and its places) is sent before the first job that uses it, and a number
 * may be reused once its owner has been freed. Memory is mapped and unmapped by calls on sockets
 * (SOCK_SEQPACKET), one call at a time on each, because these take long and carry descriptors.
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

/* A child is known by its name (argv[0]), and the descriptor of its control socket. */
#define START_NAME "tmad-engine"
#define START_FD   3

/* ---- Rings --------------------------------------------------------------------------------------------- */

#define RING_ROOM ((size_t)1 << 20)

/* This lies in the shared memory, zeroed at first. Positions count bytes and only grow. */
struct ring_positions {
	_Alignas(64) atomic_uint_fast64_t read;
	_Alignas(64) atomic_uint_fast64_t written;
	_Alignas(64) atomic_bool is_waited_for; /* the writer wants to be woken once there is room */
};

/* This is how one process sees a ring. */
struct ring {
	struct ring_positions *positions;
	char *data;
};

/* Maps the RING_ROOM of the file from offset on, a multiple of the page. Returns false when out of memory. */
bool ring_map(struct ring *ring, struct ring_positions *positions, int fd, uint64_t offset);
void ring_unmap(struct ring *ring); /* does nothing with a zeroed one */

/* Writes as many bytes as there is room for, and returns how many. The writer calls this. */
size_t ring_write(struct ring *ring, const void *data, size_t size);

/* Announces that the writer waits, after a write that had no room for all. Returns false if there is room
 * again. */
bool ring_wait_for_room(struct ring *ring);

/* Returns the bytes that have been written and not dropped. The pointer is valid until they are dropped. The
 * reader calls this. */
const char *ring_peek(const struct ring *ring, size_t *ret_size);

/* Drops size bytes. Returns true if the writer waits for room. The reader calls this. */
bool ring_drop(struct ring *ring, size_t size);

static inline bool ring_is_empty(const struct ring *ring)
{
	return atomic_load(&ring->positions->written) ==
	       atomic_load_explicit(&ring->positions->read, memory_order_relaxed);
}

/* ---- Words --------------------------------------------------------------------------------------------- */

/* At most so many calls map or unmap memory at once, each on a socket of its own. */
#define SHARED_CALLS 64

/* A request to cancel a job is in one of these states. It stands in the bits below those of its number. */
enum shared_cancel {
	CANCEL_ASKED,
	CANCEL_TAKEN,     /* the child is asking the engine */
	CANCEL_WITHDRAWN, /* the front has not waited: nothing was asked of the engine */
	CANCEL_DONE,      /* the job had not started, and ends as CANCELED */
	CANCEL_REFUSED,
};
#define SHARED_CANCEL_BITS 3

/* These are the counts of tensor maps or plans (struct engine_cache_stats). */
struct shared_stats {
	atomic_uint_fast64_t hits, misses, evictions, entries;
};

struct shared {
	struct ring_positions to_child, to_front;

	/* The child sleeps on the word, which changes when there is something for it. */
	_Alignas(64) atomic_uint bell;
	atomic_bool child_sleeps;

	_Alignas(64)
	    atomic_bool front_sleeps; /* it wants the eventfd to be written when something has come back */

	/* This is a request to cancel: its number, and its state (enum shared_cancel). The front waits for a
	 * change. */
	_Alignas(64) atomic_uint cancel;

	/* Probes have numbers: `asked` is the last one, and `answered` the last that the child has answered,
	 * with this status and text. */
	_Alignas(64) atomic_uint asked;
	atomic_uint answered;
	int probe_status;
	char probe_text[256];

	atomic_bool is_lost; /* the child says that its engine is lost, and why, and ends */
	char lost_why[256];

	struct shared_stats maps, plans; /* updated from time to time */
	atomic_uint_fast64_t keep_plans; /* how many plans the child keeps */
	atomic_bool tunes;               /* the child tries alternatives to plans */

	atomic_bool unwanted[SHARED_CALLS]; /* nobody wants what the call maps any more */
};

/* The words and the rings lie here in the file. */
#define SHARED_TO_CHILD_AT ((uint64_t)1 << 16)
#define SHARED_TO_FRONT_AT (SHARED_TO_CHILD_AT + RING_ROOM)
#define SHARED_FILE_BYTES  (SHARED_TO_FRONT_AT + RING_ROOM)

_Static_assert(sizeof(struct shared) <= SHARED_TO_CHILD_AT, "the words lie before the rings");

static inline void shared_wake(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Sleeps until the word has another value, or is woken, or ns have passed (0: there is no limit). */
static inline void shared_sleep(atomic_uint *word, unsigned value, uint64_t ns)
{
	const struct timespec limit = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	syscall(SYS_futex, word, FUTEX_WAIT, value, ns ? &limit : NULL, NULL, 0);
}

/* Tells the child that there is something for it. Any thread of either process may call this. */
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

#define WIRE_NONE UINT32_MAX /* stands for no number */

/* ---- In the rings ------------------------------------------------------------------------------------- */

enum wire_kind {
	/* These go to the child. */
	WIRE_LAYOUT,
	WIRE_FORGET_LAYOUT,
	WIRE_JOB,
	WIRE_CANCEL,
	WIRE_CANCEL_STREAM,
	WIRE_FREE_STREAM,
	/* These go to the front. */
	WIRE_DONE,
	WIRE_PINS_LOST,
};

#define WIRE_ALIGN 8

struct wire_head {
	uint32_t size; /* bytes of the whole message, a multiple of WIRE_ALIGN */
	uint32_t kind;
};

struct wire_layout {
	struct wire_head head;
	uint32_t layout;
	struct plan_places places;
	struct transform transform;
};

_Static_assert(sizeof(struct wire_layout) % WIRE_ALIGN == 0, "a message ends where the next one begins");

/* A message about one thing that has a number is one of these. */
struct wire_number {
	struct wire_head head;
	uint32_t number; /* of the layout, the stream or the memory; WIRE_CANCEL: of the job */
	uint32_t cancel; /* WIRE_CANCEL: number of the request */
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
	uint32_t n_layers; /* layers that follow, as int64_t */
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
	bool pairs;
	uint8_t index_bytes;
	uint64_t limit;
	uint64_t dst_limit;
	uint64_t index_size; /* bytes that follow; 0: the list is in a region */
	uint32_t index_memory;
	uint64_t index_offset;
	struct wire_side dst, src;
};

/* After a job there come, in this order: n_moves moves; layers and entries of dst; those of src; the list. */
struct wire_job {
	struct wire_head head;
	uint32_t job;
	uint32_t stream; /* number that the child learns with the stream's first job */
	uint64_t owner;  /* owner of the stream; other streams may have it, too */
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

/* After this there come n_moves moves, of a batch. */
struct wire_done {
	struct wire_head head;
	uint32_t job;
	int32_t status;
	uint64_t ns;
	uint64_t changed; /* elements that the one move has changed */
	uint64_t passed, beyond;
	enum family family; /* family of the one move, or of what moved each block */
	bool begun;
	bool is_measured;
	uint32_t n_moves;
};

/* ---- On sockets --------------------------------------------------------------------------------------- */

/* This is the first message on the control socket. It carries the descriptors of the shared memory and the
 * eventfd. */
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

/* Sets the sizes of some structs, which would differ in another program. */
static inline void wire_sizes(uint32_t ret[4])
{
	ret[0] = sizeof(struct wire_layout);
	ret[1] = sizeof(struct wire_job);
	ret[2] = sizeof(struct wire_done);
	ret[3] = sizeof(struct engine_explanation);
}

/* The child answers this once the engine is open, or has failed to open. */
struct wire_ready {
	struct error err; /* status 0: the engine is open */
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

/* After that, these are sent on the control socket, each with a socket for calls. number is the socket's
 * place in shared->unwanted. The end of the control socket tells the child to close the engine and to end. */
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

#define WIRE_PARTS 128 /* most parts in one message; fewer than the descriptors that fit */

struct wire_part {
	uint32_t memory; /* WIRE_NONE: it has a descriptor */
	uint64_t offset;
	uint64_t size;
};

/* A call is answered with this, and with the descriptor that is to be handed out if has_fd. */
struct wire_answer {
	struct error err; /* status 0: done */
	bool is_last;     /* it was the last step of unmapping */
	bool has_fd;
	bool has_backing;
	bool is_loose;
	uint32_t handle_len;
	uint8_t handle[ENGINE_HANDLE_BYTES];
	uint64_t base;
	uint64_t address;
	uint64_t memory[2];
	struct engine_link link;
	uint32_t n_chunks; /* 0: no other memory has parts of it */
	uint64_t chunk;    /* bytes of the first chunk */
};

#endif
