/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates host memory of regions. The pages are made by this process, so that they are charged to its
 * cgroup for as long as the file lives; the service makes none. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/memory/headroom.h"
#include "proto/memory/memfd.h"

static int fail_fill(tma_client *client, size_t size, int why);

/* ---- What the service makes, or has made ------------------------------------------------------------- */

static int on_info(tma_client *client, const struct rpc_reply *reply, const struct method *method, void *arg,
                   struct error *err)
{
	tma_document *info = document_new(reply->document, err);
	const char *engine;

	(void)method;
	(void)arg;
	if (!info)
		return err->status;
	engine = tma_document_text(tma_document_find(info, "engine"));
	client->is_cpu = engine && !strcmp(engine, "cpu");
	client->message_fds =
	    tma_document_int(tma_document_find(tma_document_find(info, "limits"), "message_fds"));
	client->engine_of = client->connection;
	tma_document_free(info);
	return 0;
}

static int ask(tma_client *client, int64_t deadline)
{
	int rc = client_ready(client, deadline, PATIENCE_FULL);

	if (!rc && client->engine_of != client->connection)
		rc = client_call_until(
		    client, &(struct call){ .method = METHOD_info, .fd = -1, .on_reply = on_info }, deadline);
	return rc;
}

int client_is_cpu(tma_client *client, bool *ret)
{
	int rc = ask(client, client_deadline(client));

	*ret = client->is_cpu;
	return rc;
}

int client_message_fds(tma_client *client, int64_t deadline, size_t *ret)
{
	int rc = ask(client, deadline);

	if (rc < 0)
		return rc;
	*ret = client->message_fds > 0 && client->message_fds < SOCKET_MAX_FDS ? (size_t)client->message_fds
	                                                                       : SOCKET_MAX_FDS;
	return 0;
}

/* ---- Pages ------------------------------------------------------------------------------------------- */

/* Makes the missing pages of a range, which must consist of whole pages, if the machine and the cgroup have
 * enough memory left. Returns 0 or a negative errno. */
static int fill(const struct memfd_fill *what)
{
	struct memfd_fill pages = *what;
	struct headroom headroom;

	headroom_init(&headroom, "");
	pages.missing = pages.size;
	pages.headroom = &headroom;
	return memfd_fill(&pages);
}

static int fail_fill(tma_client *client, size_t size, int why)
{
	char what[64];

	if (why == -EMFILE || why == -ENFILE) {
		snprintf(what, sizeof what, "size: %zu bytes", size);
		return client_fail_descriptor(client, what, -why);
	}
	if (why == -ENOSPC)
		return client_fail(
		    client, STATUS_NO_MEMORY,
		    "size: %zu bytes: this machine or cgroup does not have that much memory left", size);
	return client_fail(client, STATUS_NO_MEMORY, "size: %zu bytes: the memory could not be allocated: %s",
	                   size, strerror(-why));
}

int host_file_make(tma_client *client, size_t size, struct host_file *ret)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_new_sealable(size), r;
	void *data;

	if (fd < 0)
		return fail_fill(client, size, fd);
	data = mapping_new(size, PROT_READ | PROT_WRITE, fd, 0);
	if (data == MAP_FAILED) {
		r = -errno;
		close(fd);
		return fail_fill(client, size, r);
	}
	r = fill(&(struct memfd_fill){ .fd = fd,
	                               .start = data,
	                               .size = (size + page - 1) / page * page,
	                               .writable = true,
	                               .huge = true });
	if (r < 0) {
		munmap(data, size);
		close(fd);
		return fail_fill(client, size, r);
	}
	*ret = (struct host_file){ fd, data };
	return 0;
}

int region_make(tma_region *region)
{
	struct host_file file;
	int rc = host_file_make(region->client, region->size, &file);

	if (rc < 0)
		return rc;
	region->fd = file.fd;
	region->data = file.data;
	atomic_store(&region->sealing, SEALING_ALLOWED);
	return 0;
}

void region_widen(const struct stat *st, uint64_t *start, uint64_t *end)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), block = (uint64_t)st->st_blksize;

	if (block > page && !(block & (block - 1)))
		page = block;
	*start &= ~(page - 1);
	*end = (*end + page - 1) / page * page;
}

static int fill_range(int fd, const struct stat *st, uint64_t start, uint64_t end, bool writable)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = start, to = end;
	char *map;
	int r;

	region_widen(st, &from, &to);
	map = mapping_new((size_t)(to - from), writable ? PROT_READ | PROT_WRITE : PROT_READ, fd, from);
	if (map == MAP_FAILED)
		return 0;
	start &= ~(page - 1);
	end = (end + page - 1) / page * page;
	r = fill(&(struct memfd_fill){ .fd = fd,
	                               .offset = start,
	                               .start = map + (start - from),
	                               .size = (size_t)(end - start),
	                               .writable = writable });
	munmap(map, (size_t)(to - from));
	return r;
}

/* Files that the service will refuse for another reason are left for it to refuse, because its error says
 * why. */
int region_fill(tma_region *region)
{
	uint64_t start = region->offset, end;
	int seals = fcntl(region->fd, F_GET_SEALS), mode = fcntl(region->fd, F_GETFL) & O_ACCMODE;
	struct stat st;
	int r;

	if (seals < 0 || mode == O_WRONLY || region->size == 0 || !memfd_is_sparse(region->fd) ||
	    fstat(region->fd, &st) < 0 || __builtin_add_overflow(start, region->size, &end) ||
	    end > (uint64_t)st.st_size)
		return 0;
	r = fill_range(region->fd, &st, start, end, mode == O_RDWR && !(seals & F_SEAL_WRITE));
	if (r == -EFAULT)
		return client_fail(
		    region->client, STATUS_NO_MEMORY,
		    "size: %zu bytes: the file has holes that cannot be filled: its file system "
		    "is full, or the file has just shrunk",
		    region->size);
	return r == -ENOSPC || r == -ENOMEM ? fail_fill(region->client, region->size, r) : 0;
}
