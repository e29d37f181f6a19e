/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the tensors of a request that need a copy on the device, and makes these copies.
 *
 * The device reaches pinned host memory, so lists of blocks and tensors with gaps are used in place there. A
 * tensor without gaps is copied as a whole by the copy engine nevertheless. The copy engine accesses host
 * memory in order, with as many bytes in flight as the bus allows. A kernel that permutes would access it in
 * pieces of a few bytes, and its threads would wait for each piece.
 */
#include "staging.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- Tensors of a request ----------------------------------------------------------------------------- */

/* A tensor of a request, and its role there. One of tensor and operand is NULL. */
struct role {
	const char *name;
	const struct msg_tensor *tensor;
	const struct msg_operand *operand;
	const struct tensor_place *place;
	bool is_written;
	bool is_side; /* The tensor is dst or src. */
};

static int add_tensor(struct role *roles, int n, const struct role *role)
{
	if (local_is_empty(role->tensor ? &role->tensor->shape : &role->operand->shape))
		return n;
	roles[n] = *role;
	return n + 1;
}

/* Sets roles to the tensors that the request has, except empty ones, and returns their number. */
static int roles_of(const struct msg_transform *t, const struct request_places *places,
                    struct role roles[STAGING_MOST])
{
	const struct msg_operand *const operands[ROLE_COUNT] = {
		[ROLE_SCALE] = &t->scale, [ROLE_BIAS] = &t->bias
	};
	const struct msg_tensor *const tensors[ROLE_COUNT] = {
		[ROLE_AMAX_SCALE] = &t->amax.scale, [ROLE_AMAX_INVERSE] = &t->amax.inverse
	};
	int n = add_tensor(roles, 0, &(struct role){ "dst", &t->dst, NULL, &places->dst, true, true });

	n = add_tensor(roles, n, &(struct role){ "src", &t->src, NULL, &places->src, false, true });
	for (enum operand_role i = 0; i < ROLE_COUNT; i++)
		if (request_operand(t, i).is_tensor)
			n = add_tensor(roles, n,
			               &(struct role){ role_names[i], tensors[i], operands[i],
			                               &places->operand[i], role_is_written(i), false });
	return n;
}

/* Returns the tensor's layout, which has been checked with the request. */
static struct tensor_layout layout_of(const struct role *role)
{
	struct msg_tensor tensor = { .has = 0 };
	struct tensor_layout ret = { .rank = 0 };
	struct error ignored;

	if (role->tensor)
		tensor = *role->tensor;
	else {
		tensor.dtype = role->operand->dtype;
		tensor.shape = role->operand->shape;
		tensor.strides = role->operand->strides;
		tensor.has |= role->operand->has & F(operand, strides) ? F(tensor, strides) : 0;
	}
	tensor_layout_of(&ret, &tensor, role->name, &ignored);
	return ret;
}

/* Sets *ret to ENGINE_HOME_HOST or ENGINE_HOME_PINNED if the tensor needs a copy, otherwise to
 * ENGINE_HOME_DEVICE. */
static int find_home(struct local_session *session, const struct role *role, enum engine_home *ret,
                     struct error *err)
{
	struct tensor_layout layout;
	struct local_packed packed;
	int r = engine_find_home(session->stream.device, local_address(role->place), ret, err);

	if (r < 0 || *ret != ENGINE_HOME_PINNED)
		return r;
	*ret = ENGINE_HOME_DEVICE;
	if (!role->is_side)
		return 0;
	layout = layout_of(role);
	local_packed_init(&packed, &layout, local_address(role->place));
	if (packed.is_gapless)
		*ret = ENGINE_HOME_PINNED;
	return 0;
}

int local_is_staged(struct local_session *session, const struct msg_transform *t,
                    const struct request_places *places, struct error *err)
{
	struct role roles[STAGING_MOST];
	const int n = roles_of(t, places, roles);

	for (int i = 0; i < n; i++) {
		enum engine_home home;
		int r = find_home(session, &roles[i], &home, err);

		if (r < 0)
			return r;
		if (home != ENGINE_HOME_DEVICE)
			return 1;
	}
	return 0;
}

int local_check_all_reach(const struct local_session *session, const struct msg_transform *t,
                          const struct request_places *places, struct error *err)
{
	struct role roles[STAGING_MOST];
	const int n = roles_of(t, places, roles);
	int r = 0;

	for (int i = 0; i < n && r == 0; i++)
		r = local_check_reach(session, roles[i].place, roles[i].name, err);
	return r;
}

/* ---- Copies ------------------------------------------------------------------------------------------- */

void local_staging_init(struct local_staging *staging, struct local_session *session, uint64_t host_threads)
{
	staging->session = session;
	staging->host_threads = host_threads;
	staging->n = 0;
}

static uint64_t bytes_of_copy(const struct staged *staged)
{
	if (!staged->is_blocks)
		return staged->tensor.bytes;
	return staged->blocks.block.bytes * staged->blocks.n * staged->blocks.layers;
}

static int bring_pinned(struct local_session *session, const struct staged *staged, enum local_way way,
                        struct error *err)
{
	const struct local_stream *stream = &session->stream;
	const uint64_t host = staged->tensor.address;

	return engine_copy(stream->device, way == LOCAL_IN ? staged->copy : host,
	                   way == LOCAL_IN ? host : staged->copy, staged->tensor.bytes, stream->cuda_stream,
	                   err);
}

static int bring(const struct local_staging *staging, const struct staged *staged, enum local_way way,
                 struct error *err)
{
	struct local_session *session = staging->session;

	if (staged->is_pinned)
		return bring_pinned(session, staged, way, err);
	if (staged->is_blocks)
		return local_bring_blocks(session, &staged->blocks, staged->copy, way, staging->host_threads,
		                          err);
	return local_bring(session, &staged->tensor, staged->copy, way, staging->host_threads, err);
}

static int refuse(const struct staged *staged, const char *name, struct error *err)
{
	return error_set(err, STATUS_NO_MEMORY,
	                 "%s: it lies on the host, and the device does not have the %" PRIu64
	                 " bytes that its copy there takes",
	                 name, bytes_of_copy(staged));
}

/* Allocates the copy that was set up last and, if its tensor is read, fills it. */
static int stage(struct local_staging *staging, const char *name, struct error *err)
{
	const struct local_stream *stream = &staging->session->stream;
	struct staged *staged = &staging->staged[staging->n];
	int r = engine_scratch_new(stream->device, bytes_of_copy(staged), stream->cuda_stream, &staged->copy,
	                           err);

	if (r < 0)
		return r == STATUS_NO_MEMORY ? refuse(staged, name, err) : r;
	staging->n++;
	return staged->is_written ? 0 : bring(staging, staged, LOCAL_IN, err);
}

void local_use_copy(struct msg_tensor *tensor, uint64_t copy, const struct local_packed *packed)
{
	tensor->has = (tensor->has & ~F(tensor, region)) | F(tensor, offset) | F(tensor, strides);
	tensor->region = 0;
	tensor->offset = copy + packed->first;
	tensor->strides.n = tensor->shape.n;
	memcpy(tensor->strides.v, packed->stride, tensor->shape.n * sizeof *packed->stride);
}

static void use_copy_of_operand(struct msg_operand *operand, uint64_t copy, const struct local_packed *packed)
{
	operand->has = (operand->has & ~F(operand, region)) | F(operand, offset) | F(operand, strides);
	operand->region = 0;
	operand->offset = copy + packed->first;
	operand->strides.n = operand->shape.n;
	memcpy(operand->strides.v, packed->stride, operand->shape.n * sizeof *packed->stride);
}

/* Makes the transform use the copy. The role must be one of this transform's. */
static void use_copy(const struct staged *staged, const struct role *role, struct msg_transform *t)
{
	struct msg_tensor *const tensors[] = { &t->dst, &t->src, &t->amax.scale, &t->amax.inverse };
	struct msg_operand *const operands[] = { &t->scale, &t->bias };

	for (int i = 0; i < 4; i++)
		if (tensors[i] == role->tensor)
			local_use_copy(tensors[i], staged->copy, &staged->tensor);
	for (int i = 0; i < 2; i++)
		if (operands[i] == role->operand)
			use_copy_of_operand(operands[i], staged->copy, &staged->tensor);
}

static int stage_tensor(struct local_staging *staging, struct msg_transform *t, const struct role *role,
                        struct error *err)
{
	struct staged *staged = &staging->staged[staging->n];
	const struct tensor_layout layout = layout_of(role);
	enum engine_home home;
	int r = find_home(staging->session, role, &home, err);

	if (r < 0 || home == ENGINE_HOME_DEVICE)
		return r;
	*staged = (struct staged){ .is_written = role->is_written, .is_pinned = home == ENGINE_HOME_PINNED };
	local_packed_init(&staged->tensor, &layout, local_address(role->place));
	r = stage(staging, role->name, err);
	if (r == STATUS_NO_MEMORY && staged->is_pinned)
		return 0; /* The device reaches the tensor in place. */
	if (r == 0)
		use_copy(staged, role, t);
	return r;
}

int local_stage_tensors(struct local_staging *staging, struct msg_transform *t,
                        const struct request_places *places, bool has_sides, struct error *err)
{
	struct role roles[STAGING_MOST];
	const int n = roles_of(t, places, roles);
	int r = 0;

	for (int i = 0; i < n && r == 0; i++)
		if (has_sides || !roles[i].is_side)
			r = stage_tensor(staging, t, &roles[i], err);
	return r;
}

int local_stage_blocks(struct local_staging *staging, const struct local_packed_blocks *packed,
                       bool is_written, const char *name, uint64_t *ret, struct error *err)
{
	struct staged *staged = &staging->staged[staging->n];
	int r;

	assert(staging->n < STAGING_MOST);
	*staged = (struct staged){ .blocks = *packed, .is_blocks = true, .is_written = is_written };
	r = stage(staging, name, err);
	if (r == 0)
		*ret = staged->copy;
	return r;
}

/* ---- The end ------------------------------------------------------------------------------------------ */

static int bring_back(const struct local_staging *staging, struct error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < staging->n && r == 0; i++)
		if (staging->staged[i].is_written)
			r = bring(staging, &staging->staged[i], LOCAL_OUT, err);
	return r;
}

int local_staging_end(struct local_staging *staging, int r, struct error *err)
{
	const struct local_stream *stream = &staging->session->stream;
	struct error failed;
	int back = 0;

	/* An exact cast that has changed values has written all elements nevertheless. */
	if (r == 0 || r == STATUS_OUT_OF_RANGE)
		back = bring_back(staging, &failed);
	for (uint32_t i = 0; i < staging->n; i++)
		engine_scratch_free(stream->device, staging->staged[i].copy, stream->cuda_stream);
	staging->n = 0;
	if (back == 0)
		return r;
	*err = failed;
	return back;
}
