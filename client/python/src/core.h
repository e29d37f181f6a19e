/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the files of the extension module tmaclient._core share: its types, its state, how a client
 * is locked and how a status becomes an exception. Only these files include it.
 *
 * _core wraps libtmaclient for Python and adds nothing: tensors, which are views of other objects' memory,
 * requests between them, and ways to run a request. The Python files of the package implement what NumPy's
 * conventions ask for.
 *
 * A client has one lock, which protects every use of its tma_client. A thread that holds the GIL takes the
 * lock at once if it is free, and otherwise waits for it without the GIL, so that a thread that holds the
 * lock may take the GIL. A destructor cannot wait, because it may run at any allocation; what it cannot
 * release at once is released by the thread that unlocks the client next. */
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
	PyTypeObject *array_type; /* numpy.ndarray; NULL until py_is_ndarray finds NumPy imported */
	PyObject *make_error;     /* tmaclient._errors.make(status, message); NULL until the first error */
};

/* The state of the module, of which there is one: the extension refuses to be loaded into a second
 * interpreter. */
extern struct core_state core;

/* Sets the exception that stands for a status, unless an exception is set already. Returns -1. */
int raise_status(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* exception_set_aside saves and clears the current exception before code of other programs runs (a DLPack
 * deleter, the release of a buffer, a capsule's destructor), which would otherwise run as if it had raised
 * that exception. exception_put_back restores it. An exception that such code has raised is passed to
 * py_tell_later. */
struct set_aside {
	PyObject *type, *value, *trace;
};
void exception_set_aside(struct set_aside *ret);
void exception_put_back(struct set_aside *aside);

/* ---- Tensors --------------------------------------------------------------------------------------- */

/* DLPack's numbers for types of devices. */
enum device_type {
	DEVICE_CPU = 1,
	DEVICE_CUDA = 2,
	DEVICE_CUDA_HOST = 3,
	DEVICE_CUDA_MANAGED = 13,
};

/* A view of another object's memory. It does not change once it is made, and keeps the memory alive. */
struct py_tensor {
	PyObject ob_base;
	/* The object that keeps the memory alive; it may be the tensor of which this one is a part. NULL if
	 * buffer or managed keeps the memory, or if there is no memory. */
	PyObject *owner;
	Py_buffer *buffer; /* the buffer that the view was made of; NULL: none */
	/* The DLPack struct that the view was made of, whose deleter runs in the end: a
	 * DLManagedTensorVersioned if is_versioned is set, otherwise a DLManagedTensor. NULL: none. */
	void *managed;
	bool is_versioned;
	bool is_readonly;
	char *data; /* address of element [0, ..., 0]; NULL: no memory */
	enum tma_dtype dtype;
	int rank;
	int64_t shape[TMA_MAX_RANK];
	int64_t strides[TMA_MAX_RANK]; /* elements from one index of a dimension to the next */
	int device_type;
	int device_id;
	/* The CUDA stream that __cuda_array_interface__ named for the data. -1: none. */
	intptr_t stream;
};

/* The range of bytes from a tensor's lowest element to the end of its highest one. */
struct extent {
	char *start;
	uint64_t size; /* bytes; 0 if the tensor has no element */
};

extern PyType_Spec py_tensor_spec;
struct py_tensor *py_tensor_alloc(void);
struct extent py_tensor_extent(const struct py_tensor *t);
int64_t py_tensor_count(const struct py_tensor *t); /* Returns the number of elements. */

/* Code that makes a tensor calls one of these, because anybody may have chosen its sizes.
 * py_tensor_check_sizes checks that no extent is negative and that elements and bytes can be counted in 64
 * bits, which suffices for a tensor without memory. py_tensor_check also checks that the address is not NULL
 * and that no address wraps around. They return 0, or -1 with an exception. */
int py_tensor_check_sizes(const struct py_tensor *t);
int py_tensor_check(const struct py_tensor *t);
void py_tensor_set_dense(struct py_tensor *t); /* Sets the strides of C order for the tensor's shape. */
bool py_tensor_is_host(const struct py_tensor *t);
bool py_tensor_is_contiguous(const struct py_tensor *t); /* Counts C order only. */

/* Reads a sequence of at most TMA_MAX_RANK numbers; errors mention name. Sets *ret_n to their number. Returns
 * 0, or -1 with an exception. */
int parse_sizes(PyObject *object, const char *name, int64_t *ret, int *ret_n);

/* Reads axes, where negative numbers count from the end, into the rank entries of ret. Returns false, without
 * an exception, unless axes is a tuple or list of ints that is a permutation of all dimensions. */
bool parse_axes(PyObject *axes, int rank, int *ret);

/* Converters for the format "O&" of PyArg_ParseTuple, to uint64_t and uint32_t. A number that does not fit
 * raises OverflowError instead of wrapping around. */
int parse_u64(PyObject *object, void *ret);
int parse_u32(PyObject *object, void *ret);

/* These return new references, or NULL with an exception. py_tensor_get returns a Tensor as it is, and makes
 * one of any other object's buffer. py_tensor_of_buffer makes a tensor of an object's buffer; its elements
 * are of type dtype, whatever the buffer's format says, or of the format's type if dtype is -1. */
struct py_tensor *py_tensor_get(PyObject *object);
struct py_tensor *py_tensor_of_buffer(PyObject *object, int dtype);

/* Returns the element type for a buffer's format (NULL: unsigned bytes) and item size in bytes, or -1 if tmad
 * has none. */
int py_dtype_of_format(const char *format, Py_ssize_t size);

/* Makes a tensor of an object that has __dlpack__, to which it passes stream. Returns a new reference, or
 * NULL with an exception. */
struct py_tensor *py_tensor_of_dlpack(PyObject *object, PyObject *stream);

/* Sets the type, sizes, device and address of t to those of a DLTensor, whose memory remains the producer's.
 * Returns 0, or -1 with an exception. */
typedef struct DLTensor DLTensor;
int dlpack_take(struct py_tensor *t, const DLTensor *dl);

/* Makes a tensor of an object that has __cuda_array_interface__. Returns a new reference, or NULL with an
 * exception. */
struct py_tensor *py_tensor_of_interface(PyObject *object);

/* Slots and methods of the type Tensor that other files than tensor.c define. */
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

/* Copies src to dst, which have the same shape and element size and lie in host memory. The caller need not
 * hold the GIL. */
void copy_tensor(const struct py_tensor *dst, const struct py_tensor *src);

/* The block numbers of a list in host memory: of a list of int64, or of one column of a list of pairs. */
struct block_numbers {
	const char *first;
	int64_t step; /* bytes from one number to the next */
};

static inline int64_t block_number(const struct block_numbers *numbers, int64_t i)
{
	return *(const int64_t *)(const void *)(numbers->first + i * numbers->step);
}

/* Copies count blocks along the axis, in host memory. A scatter copies block i of src to block index[i] of
 * dst, a gather block index[i] of src to block i of dst; the caller has checked the numbers. The caller need
 * not hold the GIL. */
void copy_blocks(const struct py_tensor *dst, const struct py_tensor *src, int axis,
                 const struct block_numbers *index, int64_t count, bool is_scatter);

/* Functions of the module, which Python calls. */
PyObject *check_apart(PyObject *self, PyObject *args);
PyObject *check_index(PyObject *self, PyObject *args);
PyObject *check_pool(PyObject *self, PyObject *args);

/* ---- Clients --------------------------------------------------------------------------------------- */

struct pending;

/* Something that was left to be released when the client is unlocked, by release(object). */
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
	/* A thread holds streams_lock while it queues work in CUDA streams, and takes it before `lock`. A
	 * thread that locks one of the two mutexes a second time gets an error instead of a deadlock. */
	pthread_mutex_t streams_lock;
	/* Protects all members below, except is_local and pid, which never change, and `deferred`, which has
	 * a lock of its own. */

	pthread_mutex_t lock;
	tma_client *client; /* NULL: the client is closed */
	bool is_local;      /* the client is one of "local:", without a service */
	pid_t pid;          /* the process that made the client; a child of fork() may not use it */
	/* A signal's handler has raised an exception since the lock was taken. py_client_on_interrupt sets
	 * it. */
	bool is_interrupted;
	int failed;         /* the status that py_client_unlock raises as an exception; 0: none */
	char failure[1024]; /* the message for it */

	pthread_mutex_t deferred_lock;
	struct deferred *deferred;
	/* An event loop uses the client. Destructors then only wake the loop, because a release waits for the
	 * service's reply; the loop has another thread call release_deferred(). */
	bool is_deferring;

	uint64_t n_pending;
	struct pending *flying; /* list of the requests under way */
	/* List of the requests that have ended and still keep objects, in the order in which they ended.
	 * Client.completed, Client.wait or, if they are forgotten, py_client_take_forgotten takes them. */
	struct pending *ended;
	struct pending **ended_tail;
	bool has_placed_host; /* py_region_place has found host memory since the flag was cleared */
	bool has_forgotten;   /* some request in `ended` is forgotten */
	/* An eventfd that an event loop watches: it is written when a request has ended or a destructor has
	 * left something to release. -1: no event loop has asked for it. */
	int wake_fd;

	/* A small region that is the place of all tensors without elements. NULL until one is needed. */

	tma_region *nothing;
	struct segment *segments;  /* ranges of device memory that are registered with the service */
	struct streams *streams;   /* NULL until a request is put into a stream */
	struct launched *launched; /* only of a client without a service; NULL until it launches something */
};

extern PyType_Spec py_client_spec;

/* Takes the client's lock. Returns false with an exception, and without the lock, also if the client is
 * closed or belongs to another process. */
bool py_client_lock(struct py_client *c);

/* Takes the lock as py_client_lock does, for a call that makes a request. Connects again if an earlier call
 * closed the connection when it gave up waiting for a reply (NO_REPLY). */
bool py_client_enter(struct py_client *c);
void py_client_unlock(struct py_client *c);

/* Takes streams_lock. Returns what py_client_lock returns. This lock is separate from `lock` because a call
 * that queues work in a stream may block until the device has done some of its work, and read_replies
 * (streams.c) may need `lock` to let the device continue. */
bool py_client_lock_streams(struct py_client *c);

/* py_client_lock_if_open takes `lock`, py_client_lock_to_close both locks. They return 1, or 0 without a lock
 * if the client is closed, or -1 without a lock and with an exception. */
int py_client_lock_if_open(struct py_client *c);
int py_client_lock_to_close(struct py_client *c);

/* For destructors: has release(object) called with the lock held and without the GIL. It is called at once if
 * the lock is free, otherwise when the client is unlocked next. Works also for a closed client. Does nothing
 * in a child of fork(), or if memory is exhausted; the object is then never released. */
void py_client_release(struct py_client *c, void (*release)(void *object), void *object);

/* Has release(object) called when the client is unlocked next. Needs neither the lock nor the GIL. Returns
 * false if memory is exhausted. */
bool py_client_defer(struct py_client *c, void (*release)(void *object), void *object);

/* py_client_has_deferred returns whether anything is left to release. py_client_release_all releases all of
 * it, and waits for the service's replies; if another thread holds the lock, it leaves the work to that
 * thread, which does it when it unlocks the client. py_client_release_now only wakes the event loop if one
 * uses the client, and otherwise does the same as py_client_release_all. */
bool py_client_has_deferred(struct py_client *c);
void py_client_release_now(struct py_client *c);
void py_client_release_all(struct py_client *c);

/* Clears the current exception and has the main thread raise it as soon as possible. For places that cannot
 * return an exception. */
void py_tell_later(void);

/* Callback for tma_set_interrupt; arg is the struct py_client. */
int py_client_on_interrupt(void *arg);

/* Turns the status of a library call into a result. Caller holds the lock. Returns the status if it is not
 * negative and no signal's handler has raised an exception; otherwise returns -1, and py_client_unlock sets
 * the exception. A call may have succeeded although it was interrupted. */
int py_client_check(struct py_client *c, int status);

/* Arrays of fewer bytes are moved with the GIL held, because to take it again would last as long as to move
 * them. */
#define KEEP_GIL_BYTES (64 * 1024)

/* Runs the statement `call` without the GIL. Caller holds the client's lock and the GIL. */
#define CLIENT_CALL(c, call)                 \
	do {                                 \
		Py_BEGIN_ALLOW_THREADS call; \
		Py_END_ALLOW_THREADS         \
	} while (0)

/* Adds a request that has been submitted to those under way. Caller holds the lock. */
void py_client_add_pending(struct py_client *c, struct pending *pending);

/* Removes the forgotten requests from those that have ended, and returns them as a list for pending_free_all.
 * Caller holds the lock. */
struct pending *py_client_take_forgotten(struct py_client *c);

/* Ends all requests under way of a client that has just been closed. Whoever waits for one of them gets
 * DISCONNECTED. Caller holds the lock and need not hold the GIL. */
void py_client_end_pending(struct py_client *c);

/* py_client_take_ended takes the completions of all requests that have ended from the library.
 * py_client_take_completed notes the end of one request, whose completion the caller has taken. Caller holds
 * the lock and need not hold the GIL. */
void py_client_take_ended(struct py_client *c);
void py_client_take_completed(struct py_client *c, const struct tma_completed *completed);

/* Methods of the type Client that other files than client.c define. */
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

/* Memory that is shared with the service. The sharing ends with the object, or with Region.release(). */
struct py_region {
	PyObject ob_base;
	struct py_client *client;
	struct remains *remains; /* allocated for the release in advance; NULL once that has begun */
	tma_region *region;
	char *address; /* address in this process; NULL: device memory */
	uint64_t size;
	bool is_mapped; /* the memory was made for this object and ends with it; false: registered */
	bool is_readonly;
	enum tma_region_kind kind;
	/* The tensor whose memory was registered, which the region keeps until the release. NULL: the memory
	 * was made for the region, or the region was released. */

	struct py_tensor *tensor;
	Py_buffer *mapping; /* buffer of the mmap that has the registered memory; NULL: not known */
	/* The address of the same memory on the device. 0 until a stream has used the memory as a timeline,
	 * for which the CUDA driver pins it. */
	uint64_t device_address;
	struct block *block; /* the block of a slab that is the memory; NULL: it is in no slab */
};

extern PyType_Spec py_region_spec;

/* Returns a new Region object without memory, or NULL with an exception. */
struct py_region *py_region_alloc(struct py_client *c);

/* Makes a region of zeroed host memory, which is mapped for the device first unless device is NULL. is_shared
 * says that a driver may pin the memory or other processes may write to it; the library then does not seal
 * it. Returns a new reference, or NULL with an exception. */
PyObject *py_region_create(struct py_client *c, uint64_t size, const char *device, bool is_shared);

/* For destructors: has the region released as soon as possible. After that the size bytes at address are
 * unmapped, unless address is NULL. */
void py_region_leave(struct py_client *c, tma_region *region, char *address, uint64_t size);

/* Sets *ret to the place of a tensor's element [0, ..., 0] in a region. Caller holds the lock. Device memory
 * is registered with the service if need be; host memory has to be in a region already. writable: the request
 * writes to the tensor. Returns 0, or -1 with an exception. */
int py_region_place(struct py_client *c, const struct py_tensor *t, bool writable, struct tma_place *ret);

/* ---- Slabs ----------------------------------------------------------------------------------------- */

/* Called when the module is loaded. Returns 0, or -1 without an exception if memory is exhausted. */
int slabs_init(void);

/* Gives the block that was the memory of a Region object back to its slab. Caller holds the GIL. */
void block_free(struct block *block);

/* Retires all slabs that overlap with this memory: they give out no more blocks. */
void slabs_retire(const char *start, uint64_t size);

/* Retires all slabs of the client, because the service may go on writing to blocks that no object keeps any
 * more. The caller need not hold the GIL. */
void slabs_retire_of(const struct py_client *c);

/* ---- Requests -------------------------------------------------------------------------------------- */

enum py_request_kind { REQUEST_TRANSFORM, REQUEST_PLAN, REQUEST_BLOCKS, REQUEST_ITEMS, REQUEST_RESHARD };

struct py_plan;

/* The scale or bias of a conversion: a number if is_number is set, a tensor if tensor is not NULL, otherwise
 * none. */
struct py_operand {
	bool is_number;
	struct tma_number number;
	struct py_tensor *tensor;
};

/* Tensors that receive the scales and their inverses; NULL: they are not written. */
struct py_results {
	struct py_tensor *scale, *inverse;
};

/* How the request computes scales from the elements, if `is` is set: see struct tma_amax. */
struct py_amax {
	bool is;
	int64_t block[TMA_MAX_RANK];
	bool power_of_two;
	double least;
};

struct py_request {
	PyObject ob_base;
	enum py_request_kind kind;
	struct py_tensor *dst, *src; /* NULL in REQUEST_ITEMS and REQUEST_RESHARD */

	/* REQUEST_TRANSFORM, and the transform of each block of REQUEST_BLOCKS. */
	bool has_perm, has_pads;
	int perm[TMA_MAX_RANK];
	int64_t before[TMA_MAX_RANK], after[TMA_MAX_RANK];
	enum tma_pad_mode mode;
	struct tma_number value;
	bool is_conversion;
	enum tma_cast cast;
	struct py_operand scale, bias; /* REQUEST_PLAN: tensors or none */
	struct py_amax amax;
	struct py_results results; /* written by amax, whether it is the request's own or its plan's */

	struct py_plan *plan;

	/* REQUEST_BLOCKS: dst and src are the blocks at the lowest addresses, all_dst and all_src the tensors
	 * that have all blocks. */
	bool is_scatter;
	struct py_tensor *all_dst, *all_src;
	/* The list of block numbers or, if it has two dimensions, of pairs of a block of src and a block of
	 * dst. If is_index_shared is set, the list is in a region, where the service reads it; otherwise it
	 * is in host memory and is sent with the request. */
	struct py_tensor *index;
	bool is_index_shared;
	int64_t dst_limit, src_limit; /* number of blocks that dst or src has */
	int64_t dst_step, src_step;   /* bytes from one block to the next */

	/* The request may move blocks in several layers, with the same list in each. The layers of a side are
	 * either a tuple of tensors, the first of which is all_dst or all_src, or parts of all_dst or all_src
	 * that begin a fixed step in bytes apart. */
	uint32_t layers;                   /* number of layers; 0: the request has none */
	PyObject *dst_layers, *src_layers; /* tuples of tensors; NULL: the side has a step */
	int64_t dst_layer_step, src_layer_step;

	PyObject *further; /* tuple of tensors, the further destinations of REQUEST_TRANSFORM; NULL: none */

	/* A tuple. In REQUEST_ITEMS it has requests, which are transforms and runs of plans. In
	 * REQUEST_RESHARD it has tensors: first the n_destinations destinations, then the sources. */
	PyObject *items;
	size_t n_destinations;
	/* REQUEST_RESHARD: the index at which each of these tensors begins in the global tensor. The indices
	 * follow each other, each with a number for every dimension. Owned. */
	int64_t *start;
	int64_t shape[TMA_MAX_RANK]; /* extents of the global tensor, if has_shape */
	bool has_shape;
};

extern PyType_Spec py_request_spec;
struct py_request *py_request_alloc(enum py_request_kind kind);
PyObject *py_request_again(PyObject *self, PyObject *args);

/* A request in the library's structs, with the places of its tensors. The structs point to each other and to
 * the request, which has to live as long. */
struct resolved {
	struct tma_tensor dst, src, scale, bias, amax_scale, amax_inverse;
	struct tma_amax amax;
	struct tma_conversion conversion;
	struct tma_tensor *further; /* further destinations; owned */
	struct tma_transform transform;
	struct tma_blocks blocks;
	struct tma_place dst_place, src_place;
	/* The place of each layer of blocks. Owned. NULL: the layers begin at dst_place or src_place. */
	struct tma_place *dst_places, *src_places;
	struct tma_operands operands; /* places of scale, bias and what amax writes */
	/* Owned. NULL unless the request is REQUEST_ITEMS, or the run of a plan with operands or results;
	 * such a run is sent as a single item. */
	struct tma_item *items;
	struct resolved *each; /* the request of each of the n_items items; owned */
	size_t n_items;
	struct tma_reshard reshard;
	struct tma_slice *slices; /* owned */
	size_t n_slices;
};

/* Sets *ret to the request in the library's structs, which resolved_deinit frees. Caller holds the lock of c.
 * With c == NULL the tensors get no places, and no lock is needed. Returns 0, or -1 with an exception and
 * nothing to free. */
int py_request_resolve(struct py_client *c, struct py_request *request, struct resolved *ret);
void resolved_deinit(struct resolved *r);

/* resolved_run runs a resolved request to its end; resolved_submit submits it and sets *ret to its ticket.
 * They return the library's status. Caller holds the lock and not the GIL. */
int resolved_run(struct py_client *c, const struct py_request *request, struct resolved *r,
                 const struct tma_order *order);
int resolved_submit(struct py_client *c, const struct py_request *request, struct resolved *r,
                    const struct tma_order *order, tma_ticket *ret);

/* Launches a resolved request of a client without a service into a CUDA stream, and returns the library's
 * status. A reshard does not enter the stream: it runs to its end within the call, without the order. Caller
 * holds the lock and not the GIL. */
int resolved_enqueue(struct py_client *c, const struct py_request *request, struct resolved *r,
                     const struct tma_order *order, void *stream);

/* A request that has been submitted and whose end nobody has taken yet. Its order's `user` points to it. The
 * client's lock protects it. */
struct pending {
	struct pending *next; /* next in the client's list `ended` */
	struct pending *next_flying;
	struct pending **link_flying; /* the pointer to this request in the client's list `flying` */
	/* Keeps the tensors of the request. NULL: it was forgotten while under way, or is a stream's and uses
	 * no host memory; this struct is then freed as soon as the request ends. */
	PyObject *request;
	const void *of; /* address of the request, for Client.settle to compare; not a reference */
	/* The object that Client.completed returns with the request's end. None: Client.wait takes the end.
	 * NULL: nobody asks for the end of a stream's request. */

	PyObject *token;
	tma_ticket ticket;
	struct tma_result result;
	struct resolved items; /* owns the items, whose statuses the library writes at the end */
	char *message;         /* the error message; NULL: none */
	bool is_forgotten;     /* nobody will ask for its end: it is freed after it has ended */
	struct stream *stream; /* the stream that waits for the request; NULL: none */
	uint64_t value;        /* the request's number in the stream */
};

void pending_free(struct pending *pending);
void pending_free_all(struct pending *first);

/* The type Ticket. If Client.wait is to take the request's end, the request is forgotten with its Ticket. */
extern PyType_Spec py_ticket_spec;

/* Reads the keywords of an order for a request in a stream. With a service they must not have points of
 * timelines (wait, signal), because the stream orders the request by points of its own. Returns 0, or -1 with
 * an exception. */
int order_parse_enqueued(const struct py_client *c, PyObject *kwargs, struct tma_order *ret);

/* Reads a number from the argument of that name. Returns 0, or -1 with an exception. */
int number_parse(PyObject *object, const char *name, struct tma_number *ret);

/* ---- Plans ----------------------------------------------------------------------------------------- */

struct py_plan {
	PyObject ob_base;
	struct py_client *client;
	tma_plan *plan;
	/* The layouts of the plan: only shapes, strides and element types of these tensors count. */
	struct py_tensor *dst, *src;
	struct py_tensor *scale, *bias; /* NULL: a number that the plan keeps, or none */
	struct py_results results;      /* the tensors that amax writes; NULL: not written */
};

extern PyType_Spec py_plan_spec;

/* Returns whether an object is a numpy.ndarray and of no subclass. Does not import NumPy. */
bool py_is_ndarray(PyObject *object);

/* Checks that t has the element type, shape and strides that the plan expects. Returns 0, or -1 with an
 * exception that calls the tensor by name. */
int py_plan_check(const struct py_tensor *expected, const struct py_tensor *t, const char *name);

/* ---- Here ------------------------------------------------------------------------------------------ */

/* Called when the module is loaded. Returns 0 or an errno value. */
int here_init(void);

/* A function of the module, which Python calls. */
PyObject *here_transposed(PyObject *self, PyObject *args);

/* ---- DLPack's table of functions --------------------------------------------------------------------- */

/* Called when the module is loaded. Returns 0, or -1 with an exception if memory is exhausted. */
int exchange_init(void);

/* Functions of the module, which Python calls. */
PyObject *has_exchange(PyObject *self, PyObject *object);
PyObject *exchange_stream(PyObject *self, PyObject *args);

/* ---- CUDA ------------------------------------------------------------------------------------------ */

/* Sets *ret to the place of the first byte of an extent of device memory, which it registers with the service
 * if need be. Caller holds the lock; the place is valid until the lock is released. Returns 0, or -1 with an
 * exception. */
int segments_find(struct py_client *c, const struct py_tensor *t, struct extent extent,
                  struct tma_place *ret);

/* Releases the segments whose memory was freed, before the client connects again: they could not be
 * registered with the next connection. Keeps those in which a tensor of the request `kept` lies (NULL: no
 * request). Caller holds the lock. */
void segments_release_stale(struct py_client *c, const struct resolved *kept);

/* Frees the segments of a client that is being closed. tma_free frees their regions. */
void segments_free(struct py_client *c);

/* A CUDA stream of the program. Each context has default streams of its own, with the same handles. */
struct cuda_stream {
	void *handle;
	void *context; /* CUcontext of the stream; NULL: the calling thread's current one */
};
#define LAST_DEFAULT_STREAM 2 /* handle 0 or 1: the legacy default stream; 2: that of the thread */

/* Reads a stream from its handle or from a tuple (handle, ordinal of its device). Returns 0, or -1 with an
 * exception. */
int cuda_stream_parse(PyObject *object, struct cuda_stream *ret);

/* Makes sure that the thread has a current CUDA context: if it has none, the primary context of the device
 * whose memory is at pointer, or of device 0 if pointer is 0. Returns 0, or -1 with an exception. */
int cuda_enter(uint64_t pointer);

/* Returns the ordinal of the device that has the memory at pointer, or -1 if it is not known. */
int cuda_device_of(uint64_t pointer);

/* Returns the primary context of a device, or NULL if there is none. */
void *cuda_context_of(int device);

/* Makes context the thread's current one. Returns the context that it replaced; the caller restores that one
 * with a second call. Returns NULL if there is nothing to restore: context is NULL and nothing was changed,
 * context was current already, or no context was current before. In the last case, context stays current. */
void *cuda_switch(void *context);

/* Waits for all work of the current context. Returns false on any error. The caller does not hold the GIL. */
bool cuda_synchronize(void);

/* Registers size bytes of host memory at start, mapped by this process, with the CUDA driver, which pins
 * them. Returns their address for the device, or 0 with an exception. */
uint64_t cuda_host_address(void *start, size_t size);

/* Undoes cuda_host_address. Waits first for all work of the current context, whose streams may still signal
 * or wait for words in the memory. The caller does not hold the GIL. */
void cuda_host_retire(void *start);

/* Frees what the client keeps for streams, sets c->client to NULL, and lets streams that wait for a request
 * go on. Releases the lock meanwhile. Caller holds the lock and not the GIL. */
void streams_free(struct py_client *c);

/* Notes the end of a stream's request. Caller holds the lock and need not hold the GIL. */
void streams_end(struct py_client *c, struct pending *pending);

/* Returns whether a request that the client put into a stream has not ended yet. Caller holds the lock. */
bool streams_are_pending(const struct py_client *c);

/* Raises the error of the first request in a stream that has failed since the last call. Caller holds the
 * lock. Returns 0, or -1 with an exception. */
int streams_check(struct py_client *c);

/* ---- Launches ---------------------------------------------------------------------------------------- */

/* Launches a transform of a client without a service into a stream. Caller holds the GIL and not the lock.
 * Returns 0, or -1 without an exception. */
int stream_launch(struct py_client *c, const struct cuda_stream *stream,
                  const struct tma_transform *transform);

/* Launches a request of a client without a service into a stream. Caller holds the GIL and not the lock.
 * Returns 0, or -1 with an exception. */
int launch(struct py_client *c, const struct cuda_stream *stream, struct py_request *q,
           const struct tma_order *order);

/* Waits for all work in the stream, then runs a request of a client without a service to its end in the
 * stream's context. For requests that use host memory: without a service, only calls that wait can use it.
 * Returns 0, or -1 with an exception. */
int launch_and_wait(struct py_client *c, const struct cuda_stream *stream, struct py_request *q,
                    const struct tma_order *order);

/* Waits for the stream or, if it is NULL, for all contexts in which the client has launched anything. Returns
 * 0, or -1 with an exception, which it also raises if an exact cast has changed a value. */
int launches_wait(struct py_client *c, const struct cuda_stream *stream);

/* ---- Documents ------------------------------------------------------------------------------------- */

/* Converts a document to a tree of dicts, lists, strings and numbers, and frees the document. Returns a new
 * reference, or NULL with an exception. */
PyObject *document_convert(tma_document *document);

#endif
