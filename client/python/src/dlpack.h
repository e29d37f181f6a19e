/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the structs of DLPack 1.1, by which array libraries lend each other memory
 * (dmlc.github.io/dlpack). Strides are in elements. A producer puts a versioned struct into a capsule named
 * "dltensor_versioned", an older one into "dltensor". A consumer that takes the struct renames the capsule to
 * the same name with "used_" in front, and calls the deleter when it is done. Since DLPack 1.3, a type of
 * arrays may have a table of C functions that need no capsule: its own attribute __dlpack_c_exchange_api__ is
 * a capsule named "dlpack_exchange_api" with that table. */
#ifndef TMACLIENT_PYTHON_DLPACK_H
#define TMACLIENT_PYTHON_DLPACK_H

#include <stdint.h>

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 1 };

enum dl_code {
	DL_INT = 0,
	DL_UINT = 1,
	DL_FLOAT = 2,
	DL_BFLOAT = 4,
	DL_COMPLEX = 5,
	DL_BOOL = 6,
	DL_FLOAT8_E4M3FN = 10,
	DL_FLOAT8_E5M2 = 12,
};

enum dl_flags { DL_READ_ONLY = 1, DL_COPIED = 2 };

typedef struct DLTensor {
	void *data;
	struct {
		int32_t type;
		int32_t id;
	} device;
	int32_t ndim;
	struct {
		uint8_t code;
		uint8_t bits;
		uint16_t lanes;
	} dtype;
	int64_t *shape;
	int64_t *strides; /* NULL: C order */
	uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
	DLTensor tensor;
	void *context;
	void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
	struct {
		uint32_t major;
		uint32_t minor;
	} version;
	void *context;
	void (*deleter)(struct DLManagedTensorVersioned *self);
	uint64_t flags;
	DLTensor tensor;
} DLManagedTensorVersioned;

/* Head of a table of functions. prev_api of a table of a later major version leads to one of an older
 * version. Tables are never freed. */
typedef struct DLPackExchangeAPIHeader {
	struct {
		uint32_t major;
		uint32_t minor;
	} version;
	struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

/* The functions return 0, or -1 with an exception, and do not wait for any stream. The objects that they take
 * are of the type that has the table. */
typedef struct DLPackExchangeAPI {
	DLPackExchangeAPIHeader header;
	int (*managed_tensor_allocator)(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
	                                void (*set_error)(void *error_ctx, const char *kind,
	                                                  const char *message));
	int (*managed_tensor_from_py_object_no_sync)(void *object, DLManagedTensorVersioned **out);
	int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *tensor, void **out_object);
	/* Fills *out with memory and sizes that the object keeps, valid until the caller returns control to
	 * the object's library. This function may be missing (NULL). */
	int (*dltensor_from_py_object_no_sync)(void *object, DLTensor *out);
	/* Sets *out_stream to the stream in which the caller works on the device; NULL can be CUDA's legacy
	 * default stream. */
	int (*current_work_stream)(int device_type, int32_t device_id, void **out_stream);
} DLPackExchangeAPI;

#endif
