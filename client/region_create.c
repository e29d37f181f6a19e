/* SPDX-License-Identifier: Apache-2.0 */
/* Creates regions together with their memory: host memory in this process (memory.c), device memory by the
 * service. */
#include "client.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "proto/memory/memfd.h"

static int take_handle(tma_region *region, const struct msg_region_created *done, struct error *err)
{
	if (done->handle.len != sizeof region->handle)
		return error_set(err, STATUS_PROTOCOL, "the reply came with a handle of %zu bytes, not %zu",
		                 done->handle.len, sizeof region->handle);
	memcpy(region->handle, done->handle.data, sizeof region->handle);
	return 0;
}

/* Takes the reply to region_create. region->kind is the requested kind, and becomes the actual one. */
static int on_region_created(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                             void *arg, struct error *err)
{
	tma_region *region = arg;
	struct msg_region_created done;
	int rc = rpc_decode_result(reply, method, &done, err);

	if (rc < 0)
		return rc;
	if (region->kind != REGION_KIND_ANY && done.kind != region->kind)
		return error_set(err, STATUS_PROTOCOL, "its memory is a %s, but a %s was requested",
		                 region_kind_names[done.kind], region_kind_names[region->kind]);
	region->id = done.region;
	region->connection = client->connection;
	region->kind = done.kind;
	rc = region_keep_device(region, done.device, err);
	if (rc < 0)
		return rc;
	if (done.kind == REGION_KIND_CUDA_IPC)
		return take_handle(region, &done, err);
	region->fd = client_take_fd(client);
	return region->fd < 0 ? error_set(err, STATUS_PROTOCOL, "no file descriptor came with the reply") : 0;
}

/* Copies the device's name into the region. A name that is longer than a UUID cannot be a device's. */
static int set_device(tma_region *region, const char *device)
{
	if (strlen(device) >= sizeof region->device)
		return client_fail(region->client, STATUS_INVALID_ARGUMENT,
		                   "device: %zu bytes, but a UUID or a number has at most %zu",
		                   strlen(device), sizeof region->device - 1);
	strcpy(region->device, device);
	return 0;
}

static int create_there(tma_client *client, const char *device, enum region_kind kind, size_t size,
                        tma_region **ret)
{
	struct msg_region_create params = { .has = F(region_create, size), .size = size, .kind = kind };
	tma_region *region = NULL;
	int rc = client_check_usable(client);

	if (rc < 0)
		return rc;
	if (kind != REGION_KIND_ANY)
		params.has |= F(region_create, kind);
	rc = region_new(client, size, &region);
	if (rc < 0)
		return rc;
	region->kind = kind;
	region->is_service_made = true;
	rc = set_device(region, device);
	if (rc < 0) {
		region_free(region);
		return rc;
	}
	if (*device)
		params.has |= F(region_create, device);
	params.device = region_device_name(region);
	rc = client_call(client, &(struct call){ .method = METHOD_region_create,
	                                         .params = &params,
	                                         .fd = -1,
	                                         .on_reply = on_region_created,
	                                         .arg = region });
	if (rc < 0) {
		region_free(region);
		return rc;
	}
	region->life = REGION_KNOWN;
	rc = region->kind == REGION_KIND_MEMFD ? region_map_data(region) : 0;
	if (rc < 0) {
		struct error why = client->error;

		tma_region_release(region);
		client->error = why;
		return rc;
	}
	if (region->data && (rc = region_keep_range(region, (uintptr_t)region->data)) < 0)
		return rc;
	*ret = region;
	return 0;
}

static int create_here(tma_client *client, const char *device, size_t size, tma_region **ret)
{
	tma_region *region = NULL;
	int rc = region_new(client, size, &region);

	if (rc < 0)
		return rc;
	region->kind = REGION_KIND_MEMFD;
	rc = set_device(region, device);
	if (rc == 0)
		rc = region_make(region);
	if (rc < 0) {
		region_free(region);
		return rc;
	}
	rc = region_finish(region, &region);
	if (rc == 0)
		rc = region_keep_range(region, (uintptr_t)region->data);
	if (rc == 0)
		*ret = region;
	return rc;
}

static int region_create(tma_client *client, const char *device, enum region_kind kind, size_t size,
                         tma_region **ret)
{
	bool is_here = kind == REGION_KIND_MEMFD;
	int rc = client_check_ret(client, ret, "the region goes");

	if (rc == 0)
		rc = client_check_usable(client);
	if (rc == 0 && kind == REGION_KIND_ANY)
		rc = client_is_cpu(client, &is_here);
	if (rc < 0)
		return rc;
	if (size == 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "size: a region has at least 1 byte, not 0");
	return is_here ? create_here(client, device, size, ret)
	               : create_there(client, device, kind, size, ret);
}

int tma_region_create(tma_client *client, size_t size, tma_region **ret)
{
	return region_create(client, "", REGION_KIND_ANY, size, ret);
}

int tma_region_create_kind(tma_client *client, enum tma_region_kind kind, size_t size, tma_region **ret)
{
	return tma_region_create_on(client, NULL, kind, size, ret);
}

int tma_region_create_on(tma_client *client, const char *device, enum tma_region_kind kind, size_t size,
                         tma_region **ret)
{
	if (client && (unsigned)kind > TMA_REGION_CUDA_POOL)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "kind: %d is not an enum tma_region_kind",
		                   (int)kind);
	return region_create(client, device ? device : "",
	                     kind == TMA_REGION_ANY ? REGION_KIND_ANY : (enum region_kind)(kind - 1), size,
	                     ret);
}

int region_map_data(tma_region *region)
{
	struct stat st;
	void *data;

	if (fstat(region->fd, &st) < 0)
		return client_fail(region->client, STATUS_INTERNAL,
		                   "the region's memory cannot be examined (%s)", strerror(errno));
	if (st.st_size < 0 || (uint64_t)st.st_size < region->size)
		return client_fail(region->client, STATUS_PROTOCOL,
		                   "the region's memory has %" PRId64 " bytes, but %zu were requested",
		                   (int64_t)st.st_size, region->size);
	data = mapping_new(region->size, PROT_READ | PROT_WRITE, region->fd, 0);
	if (data == MAP_FAILED)
		return client_fail(region->client, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_INTERNAL,
		                   "%zu bytes of the region cannot be mapped (%s)", region->size,
		                   strerror(errno));
	region->data = data;
	return 0;
}
