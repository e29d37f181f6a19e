/* SPDX-License-Identifier: Apache-2.0 */
/* The structs of DLPack 1.1, by which array libraries lend each other memory (dmlc.github.io/dlpack). Strides
 * are in elements. Versioned structs are exchanged in capsules named "dltensor_versioned", older ones in
 * "dltensor"; who takes one renames it with "used_" in front, and calls its deleter when done. */
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

typedef struct {
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

#endif
