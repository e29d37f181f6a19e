/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that expand from schema.def. */
#include "schema.h"

#include <string.h>

const char *const region_kind_names[REGION_KIND_COUNT] = {
	[REGION_KIND_MEMFD] = "memfd",
	[REGION_KIND_CUDA_IPC] = "cuda_ipc",
	[REGION_KIND_CUDA_FD] = "cuda_fd",
	[REGION_KIND_CUDA_POOL] = "cuda_pool",
};

const char *const region_state_names[REGION_STATE_COUNT] = {
	[REGION_STATE_OPEN] = "open",
	[REGION_STATE_DRAINING] = "draining",
	[REGION_STATE_CLOSED] = "closed",
};

const char *const completion_names[COMPLETION_COUNT] = {
	[COMPLETION_DONE] = "done",
	[COMPLETION_QUEUED] = "queued",
	[COMPLETION_SIGNAL] = "signal",
};

const char *const job_priority_names[JOB_PRIORITY_COUNT] = {
	[JOB_PRIORITY_NORMAL] = "normal",
	[JOB_PRIORITY_BACKGROUND] = "background",
	[JOB_PRIORITY_URGENT] = "urgent",
};

#define PRESENCE_REQUIRED true
#define PRESENCE_OPTIONAL false

/* The field tables of all messages. Each ends in a row without a name, so that a message may have no
 * fields. */
#define MESSAGE(m, doc) static const struct field m##_fields[] = {
#define FIELD(m, kind, name, presence, dflt, doc) \
	{ #name,                                  \
	  sizeof #name - 1,                       \
	  doc,                                    \
	  FIELD_KIND_##kind,                      \
	  PRESENCE_##presence,                    \
	  offsetof(struct msg_##m, name),         \
	  dflt,                                   \
	  NULL },
#define NESTED(m, kind, name, presence, inner, doc) \
	{ #name,                                    \
	  sizeof #name - 1,                         \
	  doc,                                      \
	  FIELD_KIND_##kind,                        \
	  PRESENCE_##presence,                      \
	  offsetof(struct msg_##m, name),           \
	  0,                                        \
	  &inner##_message },
#define END(m)                                                     \
	{                                                          \
		NULL, 0, NULL, FIELD_KIND_COUNT, false, 0, 0, NULL \
	}                                                          \
	}                                                          \
	;
#include "schema.def"

#define BIT_REQUIRED(m, name)                       F(m, name)
#define BIT_OPTIONAL(m, name)                       0
#define MESSAGE(m, doc)                             enum { NEEDED_##m = 0
#define FIELD(m, kind, name, presence, dflt, doc)   | BIT_##presence(m, name)
#define NESTED(m, kind, name, presence, inner, doc) | BIT_##presence(m, name)
#define END(m) \
	}      \
	;
#include "schema.def"

#define MESSAGE(m, doc)                                                                  \
	const struct message m##_message = {                                             \
		#m, doc, sizeof(struct msg_##m), NEEDED_##m, FIELD_COUNT_##m, m##_fields \
	};
#include "schema.def"

#define ALL(m)        ((UINT64_C(1) << FIELD_COUNT_##m) - 1)
#define NEEDED(m)     NEEDED_##m
#define CONVERSION(m) (F(m, cast) | F(m, scale) | F(m, bias) | F(m, amax))

const struct method methods[METHOD_COUNT] = {
#define METHOD(name, params, accepts, requires, kind, result, fds, doc)            \
	[METHOD_##name] = { #name,   doc,        METHOD_##name, &params##_message, \
		            accepts, (requires), RESULT_##kind, &result##_message, \
		            fds },
#include "schema.def"
};

const char *const method_names[METHOD_COUNT] = {
#define METHOD(name, ...) [METHOD_##name] = #name,
#include "schema.def"
};

const struct method *method_find(const char *name, size_t len)
{
	for (int i = 0; len > 0 && i < METHOD_COUNT; i++)
		if (*method_names[i] == *name && strlen(method_names[i]) == len &&
		    !memcmp(method_names[i], name, len))
			return &methods[i];
	return NULL;
}

struct counter_list counters_named(struct counter *ret, const uint64_t *values, const char *const *names,
                                   uint32_t n)
{
	struct counter_list list = { ret, 0 };

	for (uint32_t i = 0; i < n; i++)
		if (values[i])
			ret[list.n++] = (struct counter){ names[i], values[i] };
	return list;
}

const char *const role_names[ROLE_COUNT] = { "scale", "bias", "amax.scale", "amax.inverse" };
const char *const role_run_names[ROLE_COUNT] = { "scale", "bias", "amax_scale", "amax_inverse" };
