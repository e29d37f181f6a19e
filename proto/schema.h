/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that schema.def expands to: the structs of messages, their field tables, and the table of
 * methods.
 *
 * Every struct msg_<message> begins with `has`, a mask of the fields that are present (F(message, field)).
 * The struct of a group has no mask, because its bits are in that of its message. Decoding sets absent fields
 * to their defaults. Strings and binaries point into the bytes of the message.
 */
#ifndef PROTO_SCHEMA_H
#define PROTO_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "scalar.h"
#include "tensor.h"

#define PROTOCOL_VERSION 1

enum region_kind {
	REGION_KIND_MEMFD,
	REGION_KIND_CUDA_IPC,
	REGION_KIND_CUDA_FD,
	REGION_KIND_CUDA_POOL,
	REGION_KIND_COUNT,
	REGION_KIND_ANY = REGION_KIND_COUNT, /* has no name, and is never sent */
};

enum region_state { REGION_STATE_OPEN, REGION_STATE_DRAINING, REGION_STATE_CLOSED, REGION_STATE_COUNT };

/* Selects when a request that moves something is answered. */
enum completion {
	COMPLETION_DONE, /* The request is answered when it has ended. */
	/* The request is answered when it has been checked and queued; the notification `done` follows when
	 * it has ended. */
	COMPLETION_QUEUED,
	/* The request is answered only if it is refused or fails; its signal reports success. */
	COMPLETION_SIGNAL,
	COMPLETION_COUNT
};

/* Says which requests of its user's other connections a request overtakes, and which of them overtake it. */
enum job_priority { JOB_PRIORITY_NORMAL, JOB_PRIORITY_BACKGROUND, JOB_PRIORITY_URGENT, JOB_PRIORITY_COUNT };

extern const char *const completion_names[COMPLETION_COUNT];
extern const char *const job_priority_names[JOB_PRIORITY_COUNT];
extern const char *const region_kind_names[REGION_KIND_COUNT];
extern const char *const region_state_names[REGION_STATE_COUNT];

struct bytes {
	const char *data;
	size_t len;
};

/* Returns the bytes of a C string, without copying them. */
static inline struct bytes bytes_of(const char *text)
{
	return (struct bytes){ text, strlen(text) };
}

struct int_list {
	uint32_t n;
	int64_t v[TENSOR_MAX_RANK];
};

/* Names a device of the service, by its UUID or by its number. */
struct device_name {
	struct bytes uuid; /* data NULL: the device is named by its number */
	uint64_t number;
};

/* A place in a region. */
struct region_place {
	uint64_t region; /* id of the region */
	uint64_t offset; /* bytes from the region's start */
};

struct counter {
	const char *name;
	uint64_t value;
};

/* Lists, none of which owns its entries. Counters and names are only encoded. Entries of the other lists are
 * decoded one at a time. */
struct counter_list {
	const struct counter *items;
	uint32_t n;
};

/* Writes those of the n values that are not 0 to ret, with their names, and returns the list. ret must have
 * room for n entries. */
struct counter_list counters_named(struct counter *ret, const uint64_t *values, const char *const *names,
                                   uint32_t n);

struct name_list {
	const char *const *items;
	uint32_t n;
};
struct message_list {
	const void *items; /* to encode: structs of the field's inner message */
	uint32_t n;
	const void *objects; /* decoded: msgpack_objects of the decoder, for codec_decode_entry */
};

/* The items of a submit. An item is a run of a plan if it names one, otherwise a transform. */
struct item_list {
	const struct submit_item *items; /* to encode */
	uint32_t n;
	const void *objects; /* decoded: msgpack_objects of the decoder, for rpc_decode_item */
};

struct code_list {
	const int32_t *codes; /* to encode */
	uint32_t n;
	const void *objects; /* decoded: msgpack_objects of the decoder, for rpc_code_at */
};

/* Kinds of fields. The comments give the type in C and the form in MessagePack. */
enum field_kind {
	FIELD_KIND_BOOL,         /* bool; boolean */
	FIELD_KIND_UINT,         /* uint64_t; non-negative integer */
	FIELD_KIND_STRING,       /* struct bytes; str */
	FIELD_KIND_BINARY,       /* struct bytes; bin */
	FIELD_KIND_DTYPE,        /* enum dtype; str, a name */
	FIELD_KIND_PAD_MODE,     /* enum pad_mode; str, a name */
	FIELD_KIND_CAST,         /* enum cast; str, a name */
	FIELD_KIND_REGION_KIND,  /* enum region_kind; str, a name */
	FIELD_KIND_REGION_STATE, /* enum region_state; str, a name */
	FIELD_KIND_COMPLETION,   /* enum completion; str, a name */
	FIELD_KIND_PRIORITY,     /* enum job_priority; str, a name */
	FIELD_KIND_DEVICE,       /* struct device_name; str (a UUID) or non-negative integer */
	FIELD_KIND_INTS,         /* struct int_list; array of at most TENSOR_MAX_RANK integers */
	FIELD_KIND_VALUE,        /* struct scalar; number, or [re, im] */
	FIELD_KIND_PLACE,        /* struct region_place; [region, offset], non-negative integers */
	FIELD_KIND_ITEMS,        /* struct item_list; array of maps */
	FIELD_KIND_CODES,        /* struct code_list; array of integers */
	FIELD_KIND_MESSAGE,      /* the inner struct; map */
	FIELD_KIND_OPERAND,      /* struct msg_operand; a real number, or a map */
	FIELD_KIND_LIST,         /* struct message_list; array of maps */
	FIELD_KIND_NAMES,        /* struct name_list; array of str */
	FIELD_KIND_COUNTERS,     /* struct counter_list; map of str to integer */
	FIELD_KIND_COUNT
};

typedef bool FIELD_TYPE_BOOL;
typedef uint64_t FIELD_TYPE_UINT;
typedef struct bytes FIELD_TYPE_STRING;
typedef struct bytes FIELD_TYPE_BINARY;
typedef enum dtype FIELD_TYPE_DTYPE;
typedef enum pad_mode FIELD_TYPE_PAD_MODE;
typedef enum cast FIELD_TYPE_CAST;
typedef enum region_kind FIELD_TYPE_REGION_KIND;
typedef enum region_state FIELD_TYPE_REGION_STATE;
typedef enum completion FIELD_TYPE_COMPLETION;
typedef enum job_priority FIELD_TYPE_PRIORITY;
typedef struct device_name FIELD_TYPE_DEVICE;
typedef struct int_list FIELD_TYPE_INTS;
typedef struct scalar FIELD_TYPE_VALUE;
typedef struct region_place FIELD_TYPE_PLACE;
typedef struct item_list FIELD_TYPE_ITEMS;
typedef struct code_list FIELD_TYPE_CODES;
typedef struct name_list FIELD_TYPE_NAMES;
typedef struct counter_list FIELD_TYPE_COUNTERS;
#define NESTED_TYPE_MESSAGE(inner) struct msg_##inner
#define NESTED_TYPE_OPERAND(inner) struct msg_##inner
#define NESTED_TYPE_LIST(inner)    struct message_list

/* F(message, field) is the field's bit in `has`. */
#define F(m, field) (UINT64_C(1) << FIELD_INDEX_##m##_##field)

#define MESSAGE(m, doc)                             enum {
#define FIELD(m, kind, name, presence, dflt, doc)   FIELD_INDEX_##m##_##name,
#define NESTED(m, kind, name, presence, inner, doc) FIELD_INDEX_##m##_##name,
#define END(m)          \
	FIELD_COUNT_##m \
	}               \
	;
#define GROUP(group, rows) enum { rows(group) FIELD_COUNT_##group };
#include "schema.def"

#define MESSAGE(m, doc)  \
	struct msg_##m { \
		uint64_t has;
#define FIELD(m, kind, name, presence, dflt, doc)   FIELD_TYPE_##kind name;
#define NESTED(m, kind, name, presence, inner, doc) NESTED_TYPE_##kind(inner) name;
#define END(m) \
	}      \
	;
#define GROUP(group, rows)      \
	struct group##_fields { \
		rows(group)     \
	};
#define GROUP_OF(m, group, rows)             \
	union {                              \
		struct group##_fields group; \
		struct {                     \
			rows(m)              \
		};                           \
	};
#include "schema.def"

/* ORDER(m) is the mask of an order's bits in `has` of message m. ORDER_HAS(m, p) are the order's bits that
 * are set in *p, shifted to where F(order, field) has them. Both rely on `wait` being the first row of
 * ORDER_ROWS. */
#define ORDER(m)        (((UINT64_C(1) << FIELD_COUNT_order) - 1) * F(m, wait))
#define ORDER_HAS(m, p) (((p)->has & ORDER(m)) / F(m, wait))

enum method_id {
#define METHOD(name, ...) METHOD_##name,
#include "schema.def"
	METHOD_COUNT
};

/* The decoded parameters of a request, by its method. */
union params {
	struct msg_empty empty;
	struct msg_transform transform;
	struct msg_region_register region_register;
	struct msg_region_create region_create;
	struct msg_region_release region_release;
	struct msg_region_list region_list;
	struct msg_session_list session_list;
	struct msg_plan_run plan_run;
	struct msg_plan_release plan_release;
	struct msg_table_prepare table_prepare;
	struct msg_table_release table_release;
	struct msg_submit submit;
	struct msg_blocks blocks;
	struct msg_reshard reshard;
	struct msg_cancel cancel;
	struct msg_ring_open ring_open;
};

/* The operands that a transform has besides dst and src: what it converts with, and the results of amax.
 * Whoever checks, places, holds or maps operands does so by a loop over these roles. */
enum operand_role {
	ROLE_SCALE,
	ROLE_BIAS,
	ROLE_AMAX_SCALE, /* This one and the next are written. */
	ROLE_AMAX_INVERSE,
	ROLE_COUNT
};

static inline bool role_is_written(enum operand_role role)
{
	return role >= ROLE_AMAX_SCALE;
}

/* The names of the roles in a transform, such as "amax.scale", and in a run of a plan, such as "amax_scale".
 */
extern const char *const role_names[ROLE_COUNT];
extern const char *const role_run_names[ROLE_COUNT];

/* An item of a submit. */
struct submit_item {
	bool is_run;
	union {
		struct msg_transform transform; /* has no order */
		struct msg_plan_run run;
	};
};

struct field {
	const char *name;
	size_t name_len;
	const char *doc;
	enum field_kind kind;
	bool required;
	size_t offset; /* offset in the message's struct */
	int64_t dflt;
	const struct message *inner; /* message of the maps in a MESSAGE, OPERAND or LIST; otherwise NULL */
};

struct message {
	const char *name;
	const char *doc;
	size_t size;     /* bytes of the struct */
	uint64_t needed; /* mask of the REQUIRED fields */
	uint32_t n_fields;
	const struct field *fields;
};

enum result_kind {
	RESULT_MESSAGE, /* one map */
	RESULT_LIST,    /* an array of maps; struct message_list in C */
	RESULT_TRUE,    /* true; NULL in C */
};

struct method {
	const char *name;
	const char *doc;
	enum method_id id;
	const struct message *params;
	uint64_t accepts;
	uint64_t requires;
	enum result_kind result_kind;
	const struct message *result;
	uint32_t fds; /* maximum number of descriptors that a request carries */
};

#define MESSAGE(m, doc) extern const struct message m##_message;
#include "schema.def"

extern const struct method methods[METHOD_COUNT];
extern const char *const method_names[METHOD_COUNT];

/* Returns the method with this name, which need not end in a NUL, or NULL. */
const struct method *method_find(const char *name, size_t len);

#endif
