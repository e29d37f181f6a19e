/* Regions: memory that both sides know. A region's handle lives until it is released or its client freed;
 * one whose connection has ended can only be released. */
#include "client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int region_new(tma_client *client, size_t size, tma_region **ret);
static void region_free(tma_region *region);
static int region_map(tma_region *region, int fd);
static int region_close(tma_region *region);

/* ---- Made by the service --------------------------------------------------------------------------- */

struct created {
	tma_region *region;
	int fd;
};

static int on_region_created(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                             void *arg, struct error *err)
{
	struct created *created = arg;
	struct msg_region_created done;
	int rc = rpc_decode_result(reply, method, &done, err);

	if (rc < 0)
		return rc;
	if (done.kind != REGION_KIND_MEMFD)
		return error_set(err, STATUS_PROTOCOL, "its memory is a %s where a memfd was asked for",
		                 region_kind_names[done.kind]);
	created->region->id = done.region;
	created->fd = client_take_fd(client);
	return created->fd < 0 ? error_set(err, STATUS_PROTOCOL, "no file descriptor came with the reply")
	                       : 0;
}

int tma_region_create(tma_client *client, size_t size, tma_region **ret)
{
	struct msg_region_create params = {
		.has = F(region_create, size) | F(region_create, kind),
		.size = size,
		.kind = REGION_KIND_MEMFD, /* what can be mapped here */
	};
	struct created created = { .fd = -1 };
	struct call call = {
		.method = METHOD_region_create,
		.params = &params,
		.fd = -1,
		.on_reply = on_region_created,
		.arg = &created,
	};
	int rc = client_check(client);

	if (rc < 0)
		return rc;
	rc = region_new(client, size, &created.region);
	if (rc < 0)
		return rc;
	rc = client_call(client, &call);
	if (rc < 0) {
		region_free(created.region);
		return rc;
	}
	rc = region_map(created.region, created.fd);
	close(created.fd);
	if (rc < 0) {
		struct error why = client->error;

		region_close(created.region);
		client->error = why;
		return rc;
	}
	*ret = created.region;
	return 0;
}

static int region_map(tma_region *region, int fd)
{
	struct stat st;
	void *data;

	if (fstat(fd, &st) < 0)
		return client_fail(region->client, STATUS_INTERNAL,
		                   "the region's memory cannot be examined (%s)", strerror(errno));
	if (st.st_size < 0 || (uint64_t)st.st_size < region->size)
		return client_fail(region->client, STATUS_PROTOCOL,
		                   "the region's memory has %" PRId64 " bytes where %zu were asked for",
		                   (int64_t)st.st_size, region->size);
	data = mmap(NULL, region->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return client_fail(region->client, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_INTERNAL,
		                   "%zu bytes of the region cannot be mapped (%s)", region->size,
		                   strerror(errno));
	madvise(data, region->size, MADV_HUGEPAGE); /* a hint: most kernels take it for private memory only */
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

	(void)client;
	if (!rc)
		region->id = done.region;
	return rc;
}

int tma_region_register_memfd(tma_client *client, int fd, uint64_t offset, size_t size, unsigned flags,
                              tma_region **ret)
{
	struct msg_region_register params = {
		.has = F(region_register, kind) | F(region_register, size) | F(region_register, offset) |
		       F(region_register, writable),
		.kind = REGION_KIND_MEMFD,
		.size = size,
		.offset = offset,
		.writable = !(flags & TMA_REGION_READ_ONLY),
	};
	tma_region *region = NULL;
	int rc = client_check(client);

	if (rc < 0)
		return rc;
	if (fd < 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "fd: %d is no file descriptor", fd);
	if (flags & ~(unsigned)TMA_REGION_READ_ONLY)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "flags: %#x has bits that are none of "
		                   "enum tma_region_flags",
		                   flags);
	rc = region_new(client, size, &region);
	if (rc < 0)
		return rc;
	rc = client_call(client, &(struct call){ .method = METHOD_region_register,
	                                         .params = &params,
	                                         .fd = fd,
	                                         .on_reply = on_region_registered,
	                                         .arg = region });
	if (rc < 0)
		region_free(region);
	else
		*ret = region;
	return rc;
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
	region->connection = client->connection;
	region->size = size;
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
	bool stale = region->connection != client->connection || client->sock < 0;

	region_free(region);
	if (stale)
		return 0;
	return client_call(client, &(struct call){ .method = METHOD_region_release,
	                                           .params = &params,
	                                           .fd = -1,
	                                           .on_reply = on_region_released });
}

static void region_free(tma_region *region)
{
	tma_region **link = &region->client->regions;

	while (*link != region)
		link = &(*link)->next;
	*link = region->next;
	if (region->data)
		munmap(region->data, region->size);
	free(region);
}

void client_free_regions(tma_client *client)
{
	while (client->regions)
		region_free(client->regions);
}
