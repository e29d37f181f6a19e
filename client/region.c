/* Regions: memory that both sides know. A region's handle lives until it is released or its client freed; it
 * holds what a later connection needs to register the memory again. Host memory is made here (memory.c),
 * memory of a device by the service. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/memory/mapping.h"

static int region_new(tma_client *client, size_t size, tma_region **ret);
static int region_finish(tma_region *region, tma_region **ret);
static void region_free(tma_region *region);
static int region_close(tma_region *region);

/* ---- Made for the caller --------------------------------------------------------------------------- */

static int take_handle(tma_region *region, const struct msg_region_created *done, struct error *err)
{
	if (done->handle.len != sizeof region->handle)
		return error_set(err, STATUS_PROTOCOL, "the reply came with a handle of %zu bytes, not %zu",
		                 done->handle.len, sizeof region->handle);
	memcpy(region->handle, done->handle.data, sizeof region->handle);
	return 0;
}

/* region->kind is what was asked for. */
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
	if (done.kind == REGION_KIND_CUDA_IPC)
		return take_handle(region, &done, err);
	region->fd = client_take_fd(client);
	return region->fd < 0 ? error_set(err, STATUS_PROTOCOL, "no file descriptor came with the reply") : 0;
}

static int create_there(tma_client *client, enum region_kind kind, size_t size, tma_region **ret)
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
	rc = region->kind == REGION_KIND_MEMFD ? region_map(region) : 0;
	if (rc < 0) {
		struct error why = client->error;

		region_close(region);
		client->error = why;
		return rc;
	}
	*ret = region;
	return 0;
}

static int create_here(tma_client *client, size_t size, tma_region **ret)
{
	tma_region *region = NULL;
	int rc = region_new(client, size, &region);

	if (rc < 0)
		return rc;
	region->kind = REGION_KIND_MEMFD;
	rc = region_make(region);
	if (!rc)
		return region_finish(region, ret);
	region_free(region);
	return rc;
}

static int region_create(tma_client *client, enum region_kind kind, size_t size, tma_region **ret)
{
	bool is_here = kind == REGION_KIND_MEMFD;
	int rc = client_check_usable(client);

	if (!rc && kind == REGION_KIND_ANY)
		rc = client_is_cpu(client, &is_here);
	if (rc < 0)
		return rc;
	if (size == 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "size: a region has at least 1 byte, not 0");
	return is_here ? create_here(client, size, ret) : create_there(client, kind, size, ret);
}

int tma_region_create(tma_client *client, size_t size, tma_region **ret)
{
	return region_create(client, REGION_KIND_ANY, size, ret);
}

int tma_region_create_kind(tma_client *client, enum tma_region_kind kind, size_t size, tma_region **ret)
{
	if (client && (unsigned)kind > TMA_REGION_CUDA_FD)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "kind: %d is not an enum tma_region_kind",
		                   (int)kind);
	return region_create(client, kind == TMA_REGION_ANY ? REGION_KIND_ANY : (enum region_kind)(kind - 1),
	                     size, ret);
}

int region_map(tma_region *region)
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

/* ---- The caller's own ------------------------------------------------------------------------------- */

static int on_region_registered(tma_client *client, const struct rpc_reply *reply,
                                const struct method *method, void *arg, struct error *err)
{
	tma_region *region = arg;
	struct msg_region_registered done;
	int rc = rpc_decode_result(reply, method, &done, err);

	if (rc < 0)
		return rc;
	region->id = done.region;
	region->connection = client->connection;
	region->life = REGION_KNOWN;
	return 0;
}

int region_register(tma_region *region, int64_t deadline)
{
	struct msg_region_register params = {
		.has = F(region_register, kind) | F(region_register, size) | F(region_register, offset) |
		       F(region_register, writable),
		.kind = region->kind,
		.size = region->size,
		.offset = region->offset,
		.writable = region->writable,
		.handle = { (const char *)region->handle, sizeof region->handle },
		.device = bytes_of(region->device),
		.allocation = region->allocation,
	};

	if (region->kind == REGION_KIND_CUDA_IPC)
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

/* What a registration begins with: checks, and a region of that kind. */
static int region_prepare(tma_client *client, enum region_kind kind, uint64_t offset, size_t size,
                          unsigned flags, tma_region **ret)
{
	int rc = client_check_usable(client);

	if (rc < 0)
		return rc;
	if (flags & ~(unsigned)TMA_REGION_READ_ONLY)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "flags: %#x has bits that are not in enum tma_region_flags", flags);
	rc = region_new(client, size, ret);
	if (rc < 0)
		return rc;
	(*ret)->kind = kind;
	(*ret)->offset = offset;
	(*ret)->writable = !(flags & TMA_REGION_READ_ONLY);
	return 0;
}

static int region_finish(tma_region *region, tma_region **ret)
{
	int rc = region_register(region, client_deadline(region->client));

	if (rc < 0)
		region_free(region);
	else
		*ret = region;
	return rc;
}

static int register_fd(tma_client *client, enum region_kind kind, int fd, uint64_t allocation,
                       uint64_t offset, size_t size, unsigned flags, tma_region **ret)
{
	tma_region *region = NULL;
	int rc = region_prepare(client, kind, offset, size, flags, &region);

	if (rc < 0)
		return rc;
	region->allocation = allocation;
	region->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (region->fd >= 0 && kind == REGION_KIND_MEMFD && (rc = region_fill(region)) < 0) {
		region_free(region);
		return rc;
	}
	if (region->fd >= 0)
		return region_finish(region, ret);
	rc = errno == EBADF
	         ? client_fail(client, STATUS_INVALID_ARGUMENT, "fd: %d is not a file descriptor", fd)
	         : client_fail(client, STATUS_NO_MEMORY, "fd: it cannot be duplicated (%s)", strerror(errno));
	region_free(region);
	return rc;
}

int tma_region_register_memfd(tma_client *client, int fd, uint64_t offset, size_t size, unsigned flags,
                              tma_region **ret)
{
	return register_fd(client, REGION_KIND_MEMFD, fd, 0, offset, size, flags, ret);
}

int tma_region_register_cuda_fd(tma_client *client, int fd, uint64_t allocation, uint64_t offset, size_t size,
                                unsigned flags, tma_region **ret)
{
	return register_fd(client, REGION_KIND_CUDA_FD, fd, allocation, offset, size, flags, ret);
}

int tma_region_register_cuda_ipc(tma_client *client, const void *handle, uint64_t offset, size_t size,
                                 unsigned flags, tma_region **ret)
{
	tma_region *region = NULL;
	int rc;

	if (client && !handle)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "handle: it is NULL; it has %d bytes",
		                   DEVICE_HANDLE_BYTES);
	rc = region_prepare(client, REGION_KIND_CUDA_IPC, offset, size, flags, &region);
	if (rc < 0)
		return rc;
	memcpy(region->handle, handle, sizeof region->handle);
	return region_finish(region, ret);
}

static int region_from_export(tma_client *client, const struct device_export *export, size_t size,
                              unsigned flags, tma_region **ret)
{
	tma_region *region = NULL;
	int rc = region_prepare(client, export->kind, export->offset, size, flags, &region);

	if (rc < 0) {
		if (export->fd >= 0)
			close(export->fd);
		return rc;
	}
	region->fd = export->fd;
	if (export->kind == REGION_KIND_CUDA_FD)
		region->allocation = export->size;
	memcpy(region->handle, export->handle, sizeof region->handle);
	memcpy(region->device, export->device, sizeof region->device);
	return region_finish(region, ret);
}

int tma_region_from_device_ptr(tma_client *client, const void *device_ptr, size_t size, unsigned flags,
                               tma_region **ret)
{
	struct device_driver driver;
	struct device_export export;
	struct error err;
	int rc = client_check_usable(client);

	if (rc < 0)
		return rc;
	rc = device_driver_open(&driver, &err);
	if (!rc) {
		rc = device_export(&driver, device_ptr, size, &export, &err);
		device_driver_close(&driver);
	}
	if (rc < 0)
		return client_fail(client, rc, "%s", err.message);
	return region_from_export(client, &export, size, flags, ret);
}

/* ---- Any region ------------------------------------------------------------------------------------- */

void *tma_region_data(const tma_region *region)
{
	return region ? region->data : NULL;
}

size_t tma_region_size(const tma_region *region)
{
	return region ? region->size : 0;
}

enum tma_region_kind tma_region_kind(const tma_region *region)
{
	return region ? (enum tma_region_kind)(region->kind + 1) : TMA_REGION_ANY;
}

int tma_region_fd(const tma_region *region)
{
	return region ? region->fd : -1;
}

const void *tma_region_handle(const tma_region *region)
{
	return region && region->kind == REGION_KIND_CUDA_IPC ? region->handle : NULL;
}

int tma_region_release(tma_region *region)
{
	return region ? region_close(region) : 0;
}

static int region_new(tma_client *client, size_t size, tma_region **ret)
{
	tma_region *region = calloc(1, sizeof *region);

	if (!region)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for a region");
	region->client = client;
	region->size = size;
	region->writable = true;
	region->fd = -1;
	region->next = client->regions;
	client->regions = region;
	*ret = region;
	return 0;
}

static int on_region_released(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                              void *arg, struct error *err)
{
	struct msg_region_released done;

	(void)client;
	(void)arg;
	return rpc_decode_result(reply, method, &done, err);
}

/* Ends it on both sides. One whose connection is gone has ended on the service's side already. */
static int region_close(tma_region *region)
{
	tma_client *client = region->client;
	struct msg_region_release params = { .has = F(region_release, region), .region = region->id };
	bool stale = region->connection != client->connection || client->sock < 0 || client->is_device_lost;
	int rc;

	region_free(region);
	if (stale)
		return 0;
	client->is_bound = true;
	rc = client_call(client, &(struct call){ .method = METHOD_region_release,
	                                         .params = &params,
	                                         .fd = -1,
	                                         .on_reply = on_region_released });
	client->is_bound = false;
	return rc == STATUS_DISCONNECTED ? 0 : rc;
}

static void region_free(tma_region *region)
{
	tma_region **link = &region->client->regions;

	while (*link != region)
		link = &(*link)->next;
	*link = region->next;
	if (region->data)
		munmap(region->data, region->size);
	if (region->fd >= 0)
		close(region->fd);
	free(region);
}

void client_free_regions(tma_client *client)
{
	while (client->regions)
		region_free(client->regions);
}
