/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the extension tmaclient._core share: its types, its state, how a client is locked and how
 * a status becomes an exception.
 *
 * _core is libtmaclient for Python and no more: tensors as views of other objects' memory, requests between
 * them, and ways to run a request. What NumPy's conventions ask for is in the Python files of the package.
 *
 * A client has one lock, which every use of its tma_client takes. A thread that has the GIL takes the lock
 * only if it is free, and otherwise waits for it without the GIL: so a thread that has the lock may ask for
 * the GIL. A destructor cannot wait, as it may run at any allocation; what it cannot release now is released
 * by whoever unlocks the client.
 */
#ifndef TMACLIENT_PYTHON_CORE_H
#define TMACLIENT_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/tmaclient.h"

/* ---- Module ---------------------------------------------------------------------------------------- */

struct core_state {
	PyTypeObject *tensor_type;
	PyTypeObject *client_type;
	PyTypeObject *region_type;
	PyTypeObject *request_type;
	PyTypeObject *ticket_type;
	PyTypeObject *plan_type;
	PyTypeObject *array_type; /* It is numpy.ndarray once a plan has met one, else NULL. */
	PyObject *make_error;     /* of tmaclient._errors: an exception of a status and a message */
};

/* The state of the only module: the extension refuses to be loaded into a second interpreter. */
extern struct core_state core;

/* Sets the exception of a status, unless one is set already. Returns -1. */
int raise_status(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An exception that is set is put aside for code of others: a deleter, the release of a buffer, a capsule's
 * destructor. It would run as if it had raised that exception itself. What it does raise is reported, and the
 * exception put back. */
struct set_aside {
	PyObject *type, *value, *trace;
};
void exception_set_aside(struct set_aside *ret);
void exception_put_back(struct set_aside *aside);

/* ---- Tensors --------------------------------------------------------------------------------------- */

/* Device types of DLPack. */
enum device_type {
	DEVICE_CPU = 1,
	DEVICE_CUDA = 2,
	DEVICE_CUDA_HOST = 3,
	DEVICE_CUDA_MANAGED = 13,
};

/* A view of another object's memory. It does not change, and keeps the memory. */
struct py_tensor {
	PyObject ob_base;
	PyObject *owner;   /* the object, or the tensor that this one is a part of */
	Py_buffer *buffer; /* of the object; or NULL */
	void *managed;     /* a DLManagedTensor or a DLManagedTensorVersioned to be deleted; or NULL */
	bool is_versioned; /* managed */
	bool is_readonly;
	char *data; /* element [0, ..., 0] */
	enum tma_dtype dtype;
	int rank;
	int64_t shape[TMA_MAX_RANK];
	int64_t strides[TMA_MAX_RANK]; /* in elements */
	int device_type;
	int device_id;
	intptr_t stream; /* on which the object says it was produced; -1: it does not say */
};

/* The bytes from the lowest element to the end of the highest one. */
struct extent {
	char *start;
	uint64_t size; /* 0: there is no element */
};

extern PyType_Spec py_tensor_spec;
struct py_tensor *py_tensor_alloc(void);
struct extent py_tensor_extent(const struct py_tensor *t);
int64_t py_tensor_count(const struct py_tensor *t); /* elements */

/* For whoever makes a tensor, whose sizes may be anybody's: that no extent is negative and that elements,
 * bytes and addresses can be counted; 0 or -1 with an exception. The sizes alone are those of a tensor
 * without memory. */
int py_tensor_check_sizes(const struct py_tensor *t);
int py_tensor_check(const struct py_tensor *t);
void py_tensor_set_dense(struct py_tensor *t); /* strides of C order */
bool py_tensor_is_host(const struct py_tensor *t);
bool py_tensor_is_contiguous(const struct py_tensor *t); /* C order */

/* A sequence of at most TMA_MAX_RANK numbers; -1 with an exception. */
int parse_sizes(PyObject *object, const char *name, int64_t *ret, int *ret_n);

/* Sets *ret to a permutation of rank dimensions; negative axes count from the end. Returns false, without an
 * exception, unless axes is a tuple or list of ints that is one. */
bool parse_axes(PyObject *axes, int rank, int *ret);

/* Converters of "O&" that let no number wrap: to uint64_t, and to uint32_t. */
int parse_u64(PyObject *object, void *ret);
int parse_u32(PyObject *object, void *ret);

/* New references, NULL with an exception. py_tensor_get borrows a tensor as it is, and makes one of a buffer.
 */
struct py_tensor *py_tensor_get(PyObject *object);
struct py_tensor *py_tensor_of_buffer(PyObject *object, int dtype);

/* The element type that a buffer's format and item size mean; -1: tmad has none. */
int py_dtype_of_format(const char *format, Py_ssize_t size);

struct py_tensor *py_tensor_of_dlpack(PyObject *object, PyObject *stream);

/* Sets the type, sizes and place of a tensor to those of a DLTensor, whose memory stays the producer's.
 * Returns 0, or -1 with an exception. */
typedef struct DLTensor DLTensor;
int dlpack_take(struct py_tensor *t, const DLTensor *dl);
struct py_tensor *py_tensor_of_interface(PyObject *object);

/* What the type is made of, in other files. */
PyObject *py_tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
void py_tensor_dealloc(PyObject *self);
PyObject *py_tensor_at(PyObject *type, PyObject *args);
PyObject *py_tensor_part(PyObject *self, PyObject *args);
PyObject *py_tensor_viewed(PyObject *self, PyObject *args);
PyObject *py_tensor_copy_from(PyObject *self, PyObject *arg);
PyObject *py_tensor_copy_blocks(PyObject *self, PyObject *args);
PyObject *py_tensor_exchanged(PyObject *type, PyObject *object);
PyObject *py_tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *py_tensor_dlpack_device(PyObject *self, PyObject *unused);

/* ---- Copies within this process -------------------------------------------------------------------- */

/* Copies src to dst, of one shape and element size. Needs no GIL. */
void copy_tensor(const struct py_tensor *dst, const struct py_tensor *src);

/* These are the numbers of blocks of a whole list of int64, or of one column of pairs. */
struct block_numbers {
	const char *first;
	int64_t step; /* bytes from one to the next */
};

static inline int64_t block_number(const struct block_numbers *numbers, int64_t i)
{
	return *(const int64_t *)(const void *)(numbers->first + i * numbers->step);
}

/* Blocks along the axis, each to where the list says or from there: see Tensor.copy_blocks. Needs no GIL. */
void copy_blocks(const struct py_tensor *dst, const struct py_tensor *src, int axis,
                 const struct block_numbers *index, int64_t count, bool is_scatter);

/* The module has these functions. */
PyObject *check_apart(PyObject *self, PyObject *args);
PyObject *check_index(PyObject *self, PyObject *args);
PyObject *check_pool(PyObject *self, PyObject *args);

/* ---- Clients --------------------------------------------------------------------------------------- */

struct pending;

struct deferred {
	struct deferred *next;
	void (*release)(void *object);
	void *object;
};

struct launched;
struct streams;
struct segment;
struct block;

struct py_client {
	PyObject ob_base;
	pthread_mutex_t streams_lock; /* taken before the other one: who has it queues work in streams */
	pthread_mutex_t lock;         /* of all that follows; both check for errors */
	tma_client *client;           /* NULL: closed */
	bool is_local;                /* it has no service; never changes */
	pid_t pid;                    /* of the process that made it: a child may not use it */
	bool is_interrupted;          /* a signal's handler has raised an exception since it was locked */
	int failed;                   /* the status that py_client_unlock raises; 0: none */
	char failure[1024];           /* its message */

	pthread_mutex_t deferred_lock;
	struct deferred *deferred;
	bool is_deferring; /* until release_deferred() is called: releases wait for replies, and a loop may
	                      not */

	uint64_t n_pending;
	struct pending *flying; /* all that are pending */
	struct pending *ended;  /* with a request; taken by Client.completed */
	struct pending **ended_tail;
	bool has_placed_host; /* py_region_place has found host memory since this was cleared */
	bool has_forgotten;   /* some of those that ended are forgotten */
	int wake_fd;          /* an eventfd of the event loop, written when some ended; or -1 */

	tma_region *nothing;       /* where tensors without elements are; NULL until one is used */
	struct segment *segments;  /* of device memory that is registered */
	struct streams *streams;   /* NULL until one is used */
	struct launched *launched; /* NULL until a client without a service launches something */
};

extern PyType_Spec py_client_spec;

/* The lock; false with an exception, also if the client is closed or another process's. */
bool py_client_lock(struct py_client *c);

/* The same for a call of the service: if a call that was given up (NO_REPLY) has closed the connection, there
 * is a new one. */
bool py_client_enter(struct py_client *c);
void py_client_unlock(struct py_client *c);

/* The lock of streams: a call that queues work may wait until the device has done some, for which the thread
 * of streams may need the other lock. */
bool py_client_lock_streams(struct py_client *c);

/* The lock, and both locks. They return 1, 0 without a lock if the client is closed, or -1 with an exception.
 */
int py_client_lock_if_open(struct py_client *c);
int py_client_lock_to_close(struct py_client *c);

/* For a destructor: releases now or when the client is unlocked next, without the GIL; also if it is closed.
 */
void py_client_release(struct py_client *c, void (*release)(void *object), void *object);

/* The same when the client is unlocked next; needs no GIL. */
bool py_client_defer(struct py_client *c, void (*release)(void *object), void *object);

/* Whether something waits to be released; its release, unless an event loop has to find the time for it; and
 * its release, which waits for replies. */
bool py_client_has_deferred(struct py_client *c);
void py_client_release_now(struct py_client *c);
void py_client_release_all(struct py_client *c);

/* Clears the exception that is set, and has the main thread raise it as soon as it can. */
void py_tell_later(void);

/* For tma_set_interrupt, with the client. */
int py_client_on_interrupt(void *arg);

/* With the lock, after a call: its status if that is not negative and no signal's handler has raised an
 * exception; otherwise -1, and py_client_unlock sets the exception. A call may succeed although it was
 * interrupted. */
int py_client_check(struct py_client *c, int status);

/* Smaller arrays are moved with the GIL held, since to get it back would take as long as the move. */
#define KEEP_GIL_BYTES (64 * 1024)

/* With the lock: runs `call` without the GIL. */
#define CLIENT_CALL(c, call)                 \
	do {                                 \
		Py_BEGIN_ALLOW_THREADS call; \
		Py_END_ALLOW_THREADS         \
	} while (0)

/* With the lock: a request is under way. */
void py_client_add_pending(struct py_client *c, struct pending *pending);

/* Takes the requests that ended and were forgotten, as a list for pending_free_all. The caller has the lock.
 */
struct pending *py_client_take_forgotten(struct py_client *c);

/* With the lock, without the GIL, of a closed client: what is under way ends, for those who ask. */
void py_client_end_pending(struct py_client *c);

/* With the lock and without the GIL: takes the tickets that have ended. */
void py_client_take_ended(struct py_client *c);
void py_client_take_completed(struct py_client *c, const struct tma_completed *completed);

/* Methods that are in other files. */
PyObject *py_client_create(PyObject *self, PyObject *args);
PyObject *py_client_allocate(PyObject *self, PyObject *args);
PyObject *py_client_register(PyObject *self, PyObject *args);
PyObject *py_client_is_shared(PyObject *self, PyObject *args);
PyObject *py_client_run(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *py_client_submit(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *py_client_wait(PyObject *self, PyObject *args);
PyObject *py_client_settle(PyObject *self, PyObject *request);
PyObject *py_client_forget(PyObject *self, PyObject *args);
PyObject *py_client_cancel(PyObject *self, PyObject *args);
PyObject *py_client_completed(PyObject *self, PyObject *unused);
PyObject *py_client_poll_fds(PyObject *self, PyObject *unused);
PyObject *py_client_enqueue(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *py_client_permuted(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *py_client_synchronize(PyObject *self, PyObject *args);
PyObject *py_client_explain(PyObject *self, PyObject *args);
PyObject *py_client_picture(PyObject *self, PyObject *args);
PyObject *py_client_stream_point(PyObject *self, PyObject *args);

/* ---- Regions --------------------------------------------------------------------------------------- */

struct remains;

/* Memory that is shared with the service. It is released with the object. */
struct py_region {
	PyObject ob_base;
	struct py_client *client;
	struct remains *remains; /* The release needs it. It is NULL once that has begun. */
	tma_region *region;
	char *address; /* in this process; NULL: device memory */
	uint64_t size;
	bool is_mapped; /* by this object, and for it */
	bool is_readonly;
	enum tma_region_kind kind;
	struct py_tensor *tensor; /* of a registered one: keeps the memory until the release; else NULL */
	Py_buffer
	    *mapping; /* It is that of the mmap that has the memory of a registered one, if that is known. */
	uint64_t device_address; /* of the same memory, once a stream has used it; or 0 */
	struct block *block;     /* the memory is this block of a slab; NULL: it is the region's own */
};

extern PyType_Spec py_region_spec;

/* Makes an object without memory; NULL with an exception. */
struct py_region *py_region_alloc(struct py_client *c);

/* Makes a region of zeroed host memory, which is mapped for the device first, unless that is NULL. is_shared:
 * a driver may pin it, or other processes write to it, so that the library does not seal it. */
PyObject *py_region_create(struct py_client *c, uint64_t size, const char *device, bool is_shared);

/* A destructor has the region released as soon as that is possible, and its memory unmapped after that,
 * unless address is NULL. */
void py_region_leave(struct py_client *c, tma_region *region, char *address, uint64_t size);

/* With the lock: where a tensor is; -1 with an exception. A tensor of device memory is registered if need be.
 */
int py_region_place(struct py_client *c, const struct py_tensor *t, bool writable, struct tma_place *ret);

/* ---- Slabs ----------------------------------------------------------------------------------------- */

/* It is called when the module is loaded, and returns -1 without an exception if there is no memory. */
int slabs_init(void);

/* Returns a Region object's memory to its slab. */
void block_free(struct block *block);

/* Has slabs that overlap with the memory give out no more blocks. */
void slabs_retire(const char *start, uint64_t size);

/* Retires all slabs of the client, because the service may go on writing to blocks that nobody keeps. Needs
 * no GIL. */
void slabs_retire_of(const struct py_client *c);

/* ---- Requests -------------------------------------------------------------------------------------- */

enum py_request_kind { REQUEST_TRANSFORM, REQUEST_PLAN, REQUEST_BLOCKS, REQUEST_ITEMS, REQUEST_RESHARD };

struct py_plan;

/* A conversion's scale or bias: a number, a tensor, or neither. */
struct py_operand {
	bool is_number;
	struct tma_number number;
	struct py_tensor *tensor;
};

/* Where scales and their inverses are written; NULL: they are not. */
struct py_results {
	struct py_tensor *scale, *inverse;
};

/* Scales that are computed on the way. */
struct py_amax {
	bool is;
	int64_t block[TMA_MAX_RANK];
	bool power_of_two;
	double least;
};

struct py_request {
	PyObject ob_base;
	enum py_request_kind kind;
	struct py_tensor *dst, *src; /* NULL for items and slices */

	/* A transform, also that of blocks. */
	bool has_perm, has_pads;
	int perm[TMA_MAX_RANK];
	int64_t before[TMA_MAX_RANK], after[TMA_MAX_RANK];
	enum tma_pad_mode mode;
	struct tma_number value;
	bool is_conversion;
	enum tma_cast cast;
	struct py_operand scale, bias; /* also the tensors of a plan's run */
	struct py_amax amax;
	struct py_results results; /* its own; also those of a plan's run */

	struct py_plan *plan;

	/* Blocks: dst and src are those at the lowest addresses, all_dst and all_src what they are blocks of.
	 */
	bool is_scatter;
	struct py_tensor *all_dst, *all_src;
	struct py_tensor *index; /* of host memory, and sent; or shared, and read by the service. With two
	                            dimensions it has pairs of a block of src and one of dst. */
	bool is_index_shared;
	int64_t dst_limit, src_limit; /* how many blocks each side has */
	int64_t dst_step, src_step;   /* bytes */

	/* Layers of blocks. A side is a tuple of tensors, of which all_dst or all_src is the first, or lies
	 * in all_dst or all_src with bytes from layer to layer. */
	uint32_t layers;                   /* 0: there are none */
	PyObject *dst_layers, *src_layers; /* NULL: steps */
	int64_t dst_layer_step, src_layer_step;

	PyObject *further; /* a tuple of tensors, the transform's further destinations; NULL: none */

	PyObject *items; /* a tuple of requests of the first two kinds; of a reshard, of tensors, destinations
	                    first */
	size_t n_destinations;
	int64_t *start; /* of these tensors, the numbers of each after those of the one before; owned */
	int64_t shape[TMA_MAX_RANK]; /* of the global tensor */
	bool has_shape;
};

extern PyType_Spec py_request_spec;
struct py_request *py_request_alloc(enum py_request_kind kind);
PyObject *py_request_again(PyObject *self, PyObject *args);

/* A request with the places of its tensors, ready for the library. */
struct resolved {
	struct tma_tensor dst, src, scale, bias, amax_scale, amax_inverse;
	struct tma_amax amax;
	struct tma_conversion conversion;
	struct tma_tensor *further; /* destinations; owned */
	struct tma_transform transform;
	struct tma_blocks blocks;
	struct tma_place dst_place, src_place;
	struct tma_place *dst_places, *src_places; /* of blocks.layers; owned */
	struct tma_operands operands;              /* their places */
	struct tma_item *items; /* owned; also the only one of a plan that has operands or results */
	struct resolved *each;  /* of the items; owned */
	size_t n_items;
	struct tma_reshard reshard;
	struct tma_slice *slices; /* owned */
	size_t n_slices;
};

/* With the lock. */
int py_request_resolve(struct py_client *c, struct py_request *request, struct resolved *ret);
void resolved_deinit(struct resolved *r);

/* With the lock, without the GIL: runs, or submits, what was resolved. */
int resolved_run(struct py_client *c, const struct py_request *request, struct resolved *r,
                 const struct tma_order *order);
int resolved_submit(struct py_client *c, const struct py_request *request, struct resolved *r,
                    const struct tma_order *order, tma_ticket *ret);

/* With the lock, without the GIL: launches it into a stream of the program's, for a client without a service.
 */
int resolved_enqueue(struct py_client *c, const struct py_request *request, struct resolved *r,
                     const struct tma_order *order, void *stream);

/* A request without a reply yet. Its ticket's `user` points to it. */
struct pending {
	struct pending *next; /* of those that ended, in their order */
	struct pending *next_flying;
	struct pending **link_flying; /* to this one */
	PyObject *request; /* keeps its memory; NULL: nobody asks for its end, or a stream's request uses none
	                      of the host */
	const void *of;    /* the request, to be compared only */
	PyObject *token;   /* is the caller's; NULL: nobody asks for the end of a stream's request */
	tma_ticket ticket;
	struct tma_result result;
	struct resolved items; /* of which the library still uses the items */
	char *message;         /* of a failure; or NULL */
	bool is_forgotten;     /* nobody will ask for its end, and it has ended */
	struct stream *stream; /* that waits for it; or NULL */
	uint64_t value;        /* its number in the stream */
};

void pending_free(struct pending *pending);
void pending_free_all(struct pending *first);

/* The ticket of a request that Client.wait waits for. A request whose ticket is gone is forgotten. */
extern PyType_Spec py_ticket_spec;

/* The keywords of an order in a stream, which has its own points. */
int order_parse_enqueued(const struct py_client *c, PyObject *kwargs, struct tma_order *ret);

/* A number, of an argument of that name; -1 with an exception. */
int number_parse(PyObject *object, const char *name, struct tma_number *ret);

/* ---- Plans ----------------------------------------------------------------------------------------- */

struct py_plan {
	PyObject ob_base;
	struct py_client *client;
	tma_plan *plan;
	struct py_tensor *dst, *src;    /* of which only shapes, strides and dtypes count */
	struct py_tensor *scale, *bias; /* likewise; NULL: numbers, or none */
	struct py_results results;      /* likewise */
};

extern PyType_Spec py_plan_spec;

/* Tells whether an object is an array of NumPy's, and of no subclass. Needs no NumPy. */
bool py_is_ndarray(PyObject *object);

/* Whether a tensor is laid out as the plan's; -1 with an exception that calls it name. */
int py_plan_check(const struct py_tensor *expected, const struct py_tensor *t, const char *name);

/* ---- Here ------------------------------------------------------------------------------------------ */

/* It is called when the module is loaded, and returns an error number. */
int here_init(void);

/* The module has this function. */
PyObject *here_transposed(PyObject *self, PyObject *args);

/* ---- DLPack's table of functions --------------------------------------------------------------------- */

/* It is called when the module is loaded, and returns -1 with an exception if there is no memory. */
int exchange_init(void);

/* The module has these functions. */
PyObject *has_exchange(PyObject *self, PyObject *object);
PyObject *exchange_stream(PyObject *self, PyObject *args);

/* ---- CUDA ------------------------------------------------------------------------------------------ */

/* With the lock: has the service know the device memory of an extent; -1 with an exception. The place is
 * valid until the lock is given back. */
int segments_find(struct py_client *c, const struct py_tensor *t, struct extent extent,
                  struct tma_place *ret);

/* With the lock, before the client connects again: a region of memory that was freed could not be registered.
 * Those that a request has places in are kept; NULL: there is none. */
void segments_release_stale(struct py_client *c, const struct resolved *kept);

/* Of a closed client, with whose regions they end. */
void segments_free(struct py_client *c);

/* A stream of the program's. Each context has default streams, with the same handles. */
struct cuda_stream {
	void *handle;
	void *context; /* NULL: the thread's */
};
#define LAST_DEFAULT_STREAM 2 /* the legacy one is 0 or 1, the thread's own is 2 */

/* Reads a stream: a handle, or a tuple of a handle and its device. Returns 0, or -1 with an exception. */
int cuda_stream_parse(PyObject *object, struct cuda_stream *ret);

/* Makes the context of the device of a pointer current if the thread has none; -1 with an exception. */
int cuda_enter(uint64_t pointer);

/* The ordinal of the device that has the memory; -1: it is not known. */
int cuda_device_of(uint64_t pointer);

/* The primary context of a device; NULL: there is none. */
void *cuda_context_of(int device);

/* Makes a context the thread's (NULL: leaves it what it is), and gives the one that it had, if that was
 * another: to be given to it again. */
void *cuda_switch(void *context);

/* Without the GIL: waits for all of the current context's work. Returns false on any error. */
bool cuda_synchronize(void);

/* The device's address of host memory, which is registered with the driver; 0 with an exception. */
uint64_t cuda_host_address(void *start, size_t size);

/* Without the GIL: waits for all of the context's work, in whose streams points of the memory may still be.
 */
void cuda_host_retire(void *start);

/* With the lock, without the GIL: ends what streams need of a client that is being closed. */
void streams_free(struct py_client *c);

/* With the lock, without the GIL: a stream's request has ended. */
void streams_end(struct py_client *c, struct pending *pending);

/* With the lock: whether some of their requests have not ended. */
bool streams_are_pending(const struct py_client *c);

/* With the lock: raises what failed on a stream since the last time; 0 or -1. */
int streams_check(struct py_client *c);

/* ---- Launches ---------------------------------------------------------------------------------------- */

/* Launches a transform of a client without a service into a stream. Returns 0, or -1 without an exception. */
int stream_launch(struct py_client *c, const struct cuda_stream *stream,
                  const struct tma_transform *transform);

/* Launches a request of a client without a service into a stream. Returns 0, or -1 with an exception. */
int launch(struct py_client *c, const struct cuda_stream *stream, struct py_request *q,
           const struct tma_order *order);

/* Runs one to its end, once all that is on the stream has ended, in the stream's context: some of its memory
 * lies on the host, where the client's "local:" reaches it only in calls that wait. Returns 0, or -1 with an
 * exception. */
int launch_and_wait(struct py_client *c, const struct cuda_stream *stream, struct py_request *q,
                    const struct tma_order *order);

/* Waits for the stream or, if it is NULL, for all contexts in which the client has launched anything. Returns
 * 0, or -1 with an exception, also if an exact cast has changed a value. */
int launches_wait(struct py_client *c, const struct cuda_stream *stream);

/* ---- Documents ------------------------------------------------------------------------------------- */

/* A tree of dicts, lists, strings and numbers. Frees the document; NULL with an exception. */
PyObject *document_convert(tma_document *document);

#endif
