/* SPDX-License-Identifier: Apache-2.0 */
/* Registers regions of several allocations. Allocations that the service does not know yet are sent as
 * descriptors. The others are named as parts of regions that contain them.
 *
 * A message brings only as many descriptors as the kernel passes at once. If there are more, the first ones
 * are registered in advance as groups: temporary regions of the call, which the final region refers to, and
 * which are released when the call ends.
 */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_PARTS 500 /* maximum number of parts in a message: each takes at most 7 of its 4096 elements */

/* Registration under way. */
struct registering {
	tma_region *region;
	size_t most_fds; /* maximum number of descriptors in a message */
	uint32_t n;
	struct msg_part parts[MOST_PARTS];
	size_t n_fds;
	int fds[SOCKET_MAX_FDS];
	size_t n_new; /* number of entries of `new`: those of fds that are closed when the call ends */
	int new[SOCKET_MAX_FDS];
};

static int fail_parts(const struct registering *r)
{
	return client_fail(
	    r->region->client, STATUS_QUOTA,
	    "the region has more than %d parts that other regions have: release some of those first",
	    MOST_PARTS);
}

static void close_new(struct registering *registering)
{
	while (registering->n_new > 0)
		close(registering->new[--registering->n_new]);
}

/* Adds a chunk that the service knows. If it continues the part before it in the same region, that part is
 * extended. */
static int add_known(struct registering *r, const struct chunk *chunk)
{
	struct msg_part *last = r->n > 0 ? &r->parts[r->n - 1] : NULL;

	if (last && (last->has & F(part, region)) && last->region == chunk->home->id &&
	    last->offset + last->size == chunk->home_at) {
		last->size += chunk->span.size;
		return 0;
	}
	if (r->n == MOST_PARTS)
		return fail_parts(r);
	r->parts[r->n++] = (struct msg_part){ .has = F(part, size) | F(part, region) | F(part, offset),
		                              .size = chunk->span.size,
		                              .region = chunk->home->id,
		                              .offset = chunk->home_at };
	return 0;
}

static int add_new(struct registering *r, const struct chunk *chunk, size_t i)
{
	bool is_new;
	int fd, rc;

	if (r->n == MOST_PARTS)
		return fail_parts(r);
	if (r->n_fds == r->most_fds)
		return client_fail(r->region->client, STATUS_DISCONNECTED,
		                   "the connection was lost while a region of %zu allocations was registered",
		                   r->region->n_chunks);
	rc = chunk_export(r->region->client, chunk, i, &fd, &is_new);
	if (rc < 0)
		return rc;
	r->fds[r->n_fds++] = fd;
	if (is_new)
		r->new[r->n_new++] = fd;
	r->parts[r->n++] = (struct msg_part){ .has = F(part, size), .size = chunk->span.size };
	return 0;
}

/* Encodes the parts for the current connection, which may not be the one of an earlier attempt. */
static int fill_parts(tma_client *client, const struct call *call, struct request *request, union params *ret)
{
	struct registering *r = (struct registering *)call->from;
	tma_region *region = r->region;
	int rc = 0;

	(void)request;
	close_new(r);
	r->n = 0;
	r->n_fds = 0;
	for (size_t i = 0; rc == 0 && i < region->n_chunks; i++) {
		const struct chunk *chunk = region->chunks[i];

		rc = chunk_is_known(client, chunk) ? add_known(r, chunk) : add_new(r, chunk, i);
	}
	if (rc < 0)
		return rc;
	ret->region_register = (struct msg_region_register){
		.has = F(region_register, kind) | F(region_register, size) | F(region_register, offset) |
		       F(region_register, writable) | F(region_register, parts),
		.kind = REGION_KIND_CUDA_FD,
		.size = region->size,
		.offset = region->offset,
		.writable = region->writable,
		.device = region_device_name(region),
		.parts = { .items = r->parts, .n = r->n },
	};
	if (*region->device)
		ret->region_register.has |= F(region_register, device);
	memcpy(client->out_fds, r->fds, r->n_fds * sizeof *r->fds);
	client->n_out_fds = r->n_fds;
	return 0;
}

static int register_once(tma_region *region, size_t most_fds, int64_t deadline)
{
	struct registering *registering = malloc(sizeof *registering);
	int rc;

	if (!registering)
		return client_fail(region->client, STATUS_NO_MEMORY, "out of memory for a region");
	registering->region = region;
	registering->most_fds = most_fds;
	registering->n_new = 0;
	rc = client_call_until(region->client,
	                       &(struct call){ .method = METHOD_region_register,
	                                       .fill = fill_parts,
	                                       .from = registering,
	                                       .fd = -1,
	                                       .brings_fds = true,
	                                       .on_reply = on_region_registered,
	                                       .arg = region },
	                       deadline);
	close_new(registering);
	free(registering);
	if (rc == 0)
		region_settle_chunks(region);
	return rc;
}

/* ---- More than one message ------------------------------------------------------------------------- */

static size_t count_unknown(const tma_region *region)
{
	size_t n = 0;

	for (size_t i = 0; i < region->n_chunks; i++)
		n += !chunk_is_known(region->client, region->chunks[i]);
	return n;
}

/* Registers a temporary region of the next chunks that the service does not know, at most most_fds of
 * them. */
static int register_group(tma_region *region, size_t most_fds, int64_t deadline, tma_region **ret)
{
	tma_client *client = region->client;
	tma_region *group = NULL;
	int rc = region_new(client, 0, &group);

	if (rc < 0)
		return rc;
	group->kind = REGION_KIND_CUDA_FD;
	group->has_parts = true;
	group->writable = region->writable;
	memcpy(group->device, region->device, sizeof group->device);
	rc = region_reserve_chunks(group, most_fds);
	for (size_t i = 0; rc == 0 && i < region->n_chunks && group->n_chunks < most_fds; i++) {
		struct chunk *chunk = region->chunks[i];

		if (chunk_is_known(client, chunk))
			continue;
		chunk->refs++;
		group->chunks[group->n_chunks++] = chunk;
		group->size += chunk->span.size;
	}
	if (rc == 0)
		rc = register_once(group, most_fds, deadline);
	if (rc < 0)
		region_free(group);
	else
		*ret = group;
	return rc;
}

/* Releases the temporary regions and keeps the last error. Any that cannot be released end with the
 * connection. */
static void release_groups(tma_client *client, tma_region **groups, size_t n)
{
	const struct error error = client->error;

	for (size_t i = 0; i < n; i++)
		tma_region_release(groups[i]);
	client->error = error;
}

static int register_all(tma_region *region, size_t most_fds, int64_t deadline)
{
	const size_t most = region->n_chunks / most_fds + 1;
	tma_region **groups = calloc(most, sizeof *groups);
	size_t n = 0;
	int rc = 0;

	if (!groups)
		return client_fail(region->client, STATUS_NO_MEMORY, "out of memory for a region");
	while (rc == 0 && n < most && count_unknown(region) > most_fds) {
		rc = register_group(region, most_fds, deadline, &groups[n]);
		n += rc == 0;
	}
	if (rc == 0)
		rc = register_once(region, most_fds, deadline);
	release_groups(region->client, groups, n);
	free(groups);
	return rc;
}

int region_register_parts(tma_region *region, int64_t deadline)
{
	size_t most_fds = 1;
	int rc = region->n_chunks > 1 ? client_message_fds(region->client, deadline, &most_fds) : 0;

	return rc < 0 ? rc : register_all(region, most_fds, deadline);
}

/* ---- Parts that the caller has --------------------------------------------------------------------- */

/* Sets [*ret_first, *ret_last) to the indices of the chunks that the part covers in its region. The part must
 * consist of whole chunks. */
static int find_chunks(tma_client *client, const struct tma_region_part *part, size_t i, size_t *ret_first,
                       size_t *ret_last)
{
	const tma_region *other = part->region;
	uint64_t at = 0, end;
	size_t first = 0, last;

	if (other->client != client)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "parts[%zu].region: it belongs to another client", i);
	if (other->n_chunks == 0 || other->kind != REGION_KIND_CUDA_FD || other->chunks[0]->span.size == 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "parts[%zu].region: its allocations are not known; it is of neither "
		                   "tma_region_from_device_ptr nor tma_region_register_parts",
		                   i);
	if (__builtin_add_overflow(part->offset, part->size, &end))
		end = UINT64_MAX;
	while (first < other->n_chunks && at < part->offset)
		at += other->chunks[first++]->span.size;
	for (last = first; at >= part->offset && at < end && last < other->n_chunks; last++)
		at += other->chunks[last]->span.size;
	if (last == first || at != end)
		return client_fail(client, STATUS_OUT_OF_RANGE,
		                   "parts[%zu]: bytes [%" PRIu64 ", %" PRIu64
		                   ") are not whole allocations of its region's memory",
		                   i, part->offset, end);
	*ret_first = first;
	*ret_last = last;
	return 0;
}

/* Checks all parts and counts their chunks. */
static int count_chunks(tma_client *client, const struct tma_region_part *parts, size_t n, size_t *ret)
{
	size_t first = 0, last = 0;
	char name[48];
	int rc = 0;

	*ret = 0;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		snprintf(name, sizeof name, "parts[%zu].reserved", i);
		rc = reserved_check(client, parts[i].reserved, COUNT(parts[i].reserved), name);
		if (rc == 0 && parts[i].size == 0)
			rc = client_fail(
			    client, STATUS_INVALID_ARGUMENT,
			    "parts[%zu].size: it is 0; an allocation has as many bytes as cuMemCreate "
			    "was asked for",
			    i);
		if (rc == 0 && parts[i].region)
			rc = find_chunks(client, &parts[i], i, &first, &last);
		else if (rc == 0 && parts[i].offset)
			rc = client_fail(
			    client, STATUS_INVALID_ARGUMENT,
			    "parts[%zu].offset: only a part of a region has one; an allocation is mapped "
			    "from its start",
			    i);
		*ret += parts[i].region ? last - first : 1;
	}
	return rc;
}

static int add_descriptor(tma_region *region, const struct tma_region_part *part, size_t i)
{
	const struct device_span span = { .size = part->size };
	const int fd = fcntl(part->fd, F_DUPFD_CLOEXEC, 0);
	struct chunk *chunk;
	char what[64];

	snprintf(what, sizeof what, "parts[%zu].fd", i);
	if (fd < 0)
		return errno == EBADF ? client_fail(region->client, STATUS_INVALID_ARGUMENT,
		                                    "parts[%zu].fd: %d is not a file descriptor", i, part->fd)
		                      : client_fail_descriptor(region->client, what, errno);
	chunk = chunk_new(&span, fd);
	if (!chunk)
		return client_fail(region->client, STATUS_NO_MEMORY, "out of memory for a region");
	region->chunks[region->n_chunks++] = chunk;
	return 0;
}

/* Adds the chunks of a part that count_chunks has checked. */
static int add_part(tma_region *region, const struct tma_region_part *part, size_t i)
{
	size_t first = 0, last = 0;
	int rc;

	if (!part->region)
		return add_descriptor(region, part, i);
	rc = find_chunks(region->client, part, i, &first, &last);
	for (; rc == 0 && first < last; first++) {
		struct chunk *chunk = part->region->chunks[first];

		chunk->refs++;
		region->chunks[region->n_chunks++] = chunk;
	}
	return rc;
}

int tma_region_register_parts(tma_client *client, const struct tma_region_part *parts, size_t n,
                              uint64_t offset, size_t size, unsigned flags, tma_region **ret)
{
	tma_region *region = NULL;
	size_t n_chunks = 0;
	int rc = client_check_ret(client, ret, "the region goes");

	if (rc == 0)
		rc = region_prepare(client, REGION_KIND_CUDA_FD, offset, size, flags, &region);
	if (rc < 0)
		return rc;
	if (!parts && n > 0)
		rc = client_fail(client, STATUS_INVALID_ARGUMENT, "parts is NULL, but n is %zu", n);
	else if (n == 0)
		rc = client_fail(client, STATUS_INVALID_ARGUMENT, "parts: a region has at least 1, not 0");
	if (rc == 0)
		rc = count_chunks(client, parts, n, &n_chunks);
	if (rc == 0)
		rc = region_reserve_chunks(region, n_chunks);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = add_part(region, &parts[i], i);
	if (rc < 0) {
		region_free(region);
		return rc;
	}
	region->has_parts = true;
	return region_finish(region, ret);
}
