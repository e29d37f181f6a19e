/* SPDX-License-Identifier: Apache-2.0 */
/* Registers memory that the caller already has: a memfd or an allocation of CUDA. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int on_region_registered(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                         void *arg, struct error *err)
{
	tma_region *region = arg;
	struct msg_region_registered done;
	int rc = rpc_decode_result(reply, method, &done, err);

	if (rc < 0)
		return rc;
	region->id = done.region;
	region->connection = client->connection;
	region->life = REGION_KNOWN;
	region_note_seals(region, &done);
	return region_keep_device(region, done.device, err);
}

/* A name that consists of digits is a number in the service's list of devices; any other is a UUID. */
struct device_name region_device_name(const tma_region *region)
{
	const char *text = region->device;

	if (*text && !text[strspn(text, "0123456789")])
		return (struct device_name){ .number = strtoull(text, NULL, 10) };
	return (struct device_name){ .uuid = bytes_of(text) };
}

int region_keep_device(tma_region *region, struct bytes uuid, struct error *err)
{
	if (uuid.len >= sizeof region->device)
		return error_set(err, STATUS_PROTOCOL,
		                 "the reply came with a device's UUID of %zu bytes, at most %zu", uuid.len,
		                 sizeof region->device - 1);
	if (uuid.len > 0) {
		memcpy(region->device, uuid.data, uuid.len);
		region->device[uuid.len] = '\0';
	}
	return 0;
}

/* Returns whether the service has to be told of the region's chunks one by one, with references to the
 * regions that have them. */
static bool has_parts(const tma_region *region)
{
	const struct chunk *first = region->n_chunks > 0 ? region->chunks[0] : NULL;

	if (!first || region->kind != REGION_KIND_CUDA_FD)
		return false;
	return region->has_parts || region->n_chunks > 1 || first->fd < 0 ||
	       chunk_is_known(region->client, first);
}

static int register_whole(tma_region *region, int64_t deadline)
{
	struct msg_region_register params = {
		.has = F(region_register, kind) | F(region_register, size) | F(region_register, offset) |
		       F(region_register, writable),
		.kind = region->kind,
		.size = region->size,
		.offset = region->offset,
		.writable = region->writable,
		.handle = { (const char *)region->handle, sizeof region->handle },
		.device = region_device_name(region),
		.allocation = region->allocation,
	};

	if (region->kind == REGION_KIND_CUDA_IPC || region->kind == REGION_KIND_CUDA_POOL)
		params.has |= F(region_register, handle);
	if (*region->device)
		params.has |= F(region_register, device);
	if (region->allocation)
		params.has |= F(region_register, allocation);
	return client_call_until(region->client,
	                         &(struct call){ .method = METHOD_region_register,
	                                         .params = &params,
	                                         .fd = region->fd,
	                                         .on_reply = on_region_registered,
	                                         .arg = region },
	                         deadline);
}

int region_register(tma_region *region, int64_t deadline)
{
	int rc;

	if (region->client->local && region->kind == REGION_KIND_MEMFD && (region->data || region->address))
		return local_register(region,
		                      region->data ? region->data : (const void *)(uintptr_t)region->address);
	if (region->client->local && region->kind == REGION_KIND_MEMFD)
		return client_fail(region->client, STATUS_UNSUPPORTED,
		                   "a client of \"local:\" has only memory of this process: map it, and use "
		                   "tma_region_from_host_ptr");
	if (region->client->local)
		return client_fail(region->client, STATUS_UNSUPPORTED,
		                   "a client of \"local:\" has only memory of this process: map it, and use "
		                   "tma_region_from_device_ptr");
	rc = region_move(region, deadline);
	if (rc < 0)
		return rc;
	if (has_parts(region))
		return region_register_parts(region, deadline);
	if (region->kind == REGION_KIND_CUDA_POOL && region->n_chunks > 0) {
		rc = chunk_check_current(region->client, region->chunks[0], 0);
		if (rc < 0)
			return rc;
	}
	rc = register_whole(region, deadline);
	if (rc == 0 && region->kind == REGION_KIND_CUDA_FD)
		region_settle_chunks(region);
	return rc;
}

int region_check_flags(tma_client *client, unsigned flags)
{
	if (flags & ~(unsigned)TMA_REGION_READ_ONLY)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "flags: %#x has bits that are not in enum tma_region_flags", flags);
	return 0;
}

int region_prepare(tma_client *client, enum region_kind kind, uint64_t offset, size_t size, unsigned flags,
                   tma_region **ret)
{
	int rc = client_check_usable(client);

	if (rc == 0)
		rc = region_check_flags(client, flags);
	if (rc < 0)
		return rc;
	rc = region_new(client, size, ret);
	if (rc < 0)
		return rc;
	(*ret)->kind = kind;
	(*ret)->offset = offset;
	(*ret)->writable = !(flags & TMA_REGION_READ_ONLY);
	return 0;
}

int region_finish(tma_region *region, tma_region **ret)
{
	int rc = region_register(region, client_deadline(region->client));

	if (rc < 0)
		region_free(region);
	else
		*ret = region;
	return rc;
}

/* Registers memory by a descriptor. handle is the exported pointer of cuda_pool, otherwise NULL. */
static int register_fd(tma_client *client, enum region_kind kind, int fd, const void *handle,
                       uint64_t allocation, uint64_t offset, size_t size, unsigned flags, tma_region **ret)
{
	tma_region *region = NULL;
	int rc = client_check_ret(client, ret, "the region goes");

	if (rc == 0)
		rc = region_prepare(client, kind, offset, size, flags, &region);
	if (rc < 0)
		return rc;
	region->allocation = allocation;
	if (handle)
		memcpy(region->handle, handle, sizeof region->handle);
	region->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (region->fd >= 0 && kind == REGION_KIND_MEMFD && (rc = region_fill(region)) < 0) {
		region_free(region);
		return rc;
	}
	if (region->fd >= 0)
		return region_finish(region, ret);
	rc = errno == EBADF
	         ? client_fail(client, STATUS_INVALID_ARGUMENT, "fd: %d is not a file descriptor", fd)
	         : client_fail_descriptor(client, "fd", errno);
	region_free(region);
	return rc;
}

int tma_region_register_memfd(tma_client *client, int fd, uint64_t offset, size_t size, unsigned flags,
                              tma_region **ret)
{
	return register_fd(client, REGION_KIND_MEMFD, fd, NULL, 0, offset, size, flags, ret);
}

int tma_region_register_cuda_fd(tma_client *client, int fd, uint64_t allocation, uint64_t offset, size_t size,
                                unsigned flags, tma_region **ret)
{
	return register_fd(client, REGION_KIND_CUDA_FD, fd, NULL, allocation, offset, size, flags, ret);
}

int tma_region_register_cuda_pool(tma_client *client, int pool_fd, const void *pointer, uint64_t allocation,
                                  uint64_t offset, size_t size, unsigned flags, tma_region **ret)
{
	if (client && !pointer)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "pointer: it is NULL; it has %d bytes",
		                   DEVICE_HANDLE_BYTES);
	return register_fd(client, REGION_KIND_CUDA_POOL, pool_fd, pointer, allocation, offset, size, flags,
	                   ret);
}

int tma_region_register_cuda_ipc(tma_client *client, const void *handle, uint64_t offset, size_t size,
                                 unsigned flags, tma_region **ret)
{
	tma_region *region = NULL;
	int rc;

	if (client && !handle)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "handle: it is NULL; it has %d bytes",
		                   DEVICE_HANDLE_BYTES);
	rc = client_check_ret(client, ret, "the region goes");
	if (rc == 0)
		rc = region_prepare(client, REGION_KIND_CUDA_IPC, offset, size, flags, &region);
	if (rc < 0)
		return rc;
	memcpy(region->handle, handle, sizeof region->handle);
	return region_finish(region, ret);
}
