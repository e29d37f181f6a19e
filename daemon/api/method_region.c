/* SPDX-License-Identifier: Apache-2.0 */
/* Handles the methods region_register, region_create and region_release.
 *
 * Mapping memory may take long, so a chore does it: the charges are taken first, then the memory is mapped
 * off the loop, then the region is added and the request answered. A session that ends during the chore is
 * freed only after the chore has ended.
 */
#include "dispatch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "proto/wire/rpc.h"

/* ==== Parts of a region ============================================================================== */

/* The parts of a region_register request are descriptors that came with it, and regions of the connection.
 * Both are held from the request until its memory is mapped.
 *
 * Until then, the descriptors and the list of parts are charged, and a region that the client releases stays
 * mapped. The engine asks the driver about the parts off the loop.
 */

/* A zero-initialized struct has no parts. */
struct region_parts {
	uint32_t n;
	struct engine_part *list;
	struct region **regions; /* one for each part; NULL: the part is a descriptor */
	uint64_t bytes;          /* sum of the sizes of all parts */
	struct charge fds;
	struct charge list_bytes;
};

static void region_parts_deinit(struct region_parts *parts, struct session *session);

static int find_region(struct session *session, uint32_t i, uint64_t id, struct region **ret,
                       struct error *err)
{
	char name[32];
	int r;

	snprintf(name, sizeof name, "parts[%" PRIu32 "].region", i);
	r = region_table_find(&session->regions, id, name, ret, err);
	if (r == 0 && (*ret)->memory->kind != REGION_KIND_CUDA_FD)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: region %" PRIu64 " is of kind %s; parts are of kind cuda_fd", name, id,
		                 region_kind_names[(*ret)->memory->kind]);
	return r;
}

/* Adds the next part of the list, but not its descriptor. If it has one, increments *n_fds, otherwise holds
 * its region. */
static int take_part(struct region_parts *parts, struct session *session, const struct message_list *list,
                     uint32_t *n_fds, struct error *err)
{
	const uint32_t i = parts->n;
	struct region *region = NULL;
	struct msg_part part;
	int r = rpc_decode_part(list, i, &part, err);

	if (r < 0)
		return r;
	if (part.has & F(part, region))
		r = find_region(session, i, part.region, &region, err);
	else if (part.has & F(part, offset))
		r = error_set(err, STATUS_INVALID_ARGUMENT,
		              "parts[%" PRIu32 "].offset: only a part of a region has one; an allocation is "
		              "mapped from its start",
		              i);
	if (r < 0)
		return r;
	if (__builtin_add_overflow(parts->bytes, part.size, &parts->bytes))
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "parts[%" PRIu32 "].size: with the parts before it %" PRIu64
		                 " bytes overflow 64 bits",
		                 i, part.size);
	parts->list[i] = (struct engine_part){
		.fd = -1, .memory = region ? region->memory : NULL, .offset = part.offset, .size = part.size
	};
	parts->regions[i] = region;
	if (region)
		region_use(region);
	else
		++*n_fds;
	parts->n++;
	return 0;
}

static int take_fds(struct region_parts *parts, struct session *session, uint32_t n, struct error *err)
{
	const uint32_t came = session_count_own_fds(session);
	const struct pending_fd *fds = session_first_fds(session, n);

	if (came > n || (n > 0 && !fds))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "parts: %" PRIu32 " of them are allocations, but %" PRIu32
		                 " file descriptors (SCM_RIGHTS) came with the request",
		                 n, came);
	for (uint32_t i = 0; i < parts->n; i++)
		if (!parts->regions[i])
			parts->list[i].fd = fds++->fd;
	if (n > 0)
		session_take_fds(session, n, &parts->fds);
	return 0;
}

static int take_parts(struct region_parts *parts, struct session *session,
                      const struct msg_region_register *request, struct error *err)
{
	const struct message_list *list = &request->parts;
	const uint64_t bytes = (uint64_t)list->n * (sizeof *parts->list + sizeof *parts->regions);
	uint32_t n_fds = 0;
	int r;

	if (request->kind != REGION_KIND_CUDA_FD)
		return error_set(err, STATUS_INVALID_ARGUMENT, "parts: kind %s has none; cuda_fd has",
		                 region_kind_names[request->kind]);
	if (request->has & F(region_register, allocation))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "allocation: each part has its size; it is of a region without parts");
	if (list->n == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "parts: a region has at least 1, got 0");
	r = charge_take(&parts->list_bytes, &session->service->accounts, session->account, CHARGE_LIST_BYTES,
	                bytes, err);
	if (r < 0)
		return r;
	parts->list = calloc(list->n, sizeof *parts->list);
	parts->regions = calloc(list->n, sizeof *parts->regions);
	if (!parts->list || !parts->regions)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " parts", list->n);
	while (r == 0 && parts->n < list->n)
		r = take_part(parts, session, list, &n_fds, err);
	return r < 0 ? r : take_fds(parts, session, n_fds, err);
}

/* Returns how many descriptors to drop when the request is refused: those that can belong only to it or, if
 * that is more, as many as its list of parts takes. Descriptors beyond these belong to the next request, even
 * if they came with bytes of both requests. */
static uint32_t count_fds(const struct session *session, const struct message_list *list)
{
	const uint32_t own = session_count_own_fds(session);
	uint32_t taken = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		struct msg_part part;
		struct error ignored;

		taken += rpc_decode_part(list, i, &part, &ignored) == 0 && !(part.has & F(part, region));
	}
	return own > taken ? own : taken;
}

/* Drops the descriptors of a request with parts that is refused before its parts are looked at. */
static void region_parts_drop_fds(struct session *session, const struct message_list *list)
{
	session_drop_fds(session, count_fds(session, list));
}

/* Takes the parts that the request names, or sets *err to what is wrong with one. In either case the session
 * no longer has the request's descriptors. The request must still be decoded. */
static int region_parts_init(struct region_parts *parts, struct session *session,
                             const struct msg_region_register *request, struct error *err)
{
	int r;

	*parts = (struct region_parts){ 0 };
	r = take_parts(parts, session, request, err);
	if (r < 0) {
		region_parts_drop_fds(session, &request->parts);
		region_parts_deinit(parts, session);
	}
	return r;
}

/* Returns the number of allocations that the parts lie in. */
static uint64_t region_parts_count(const struct region_parts *parts)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < parts->n; i++) {
		const struct engine_part *part = &parts->list[i];
		const struct memory_range range = { part->memory ? part->memory->chunks : NULL, part->offset,
			                            part->offset + part->size };
		uint32_t first;

		n += range.chunks ? memory_range_touched(&range, &first) : 1;
	}
	return n;
}

/* Closes the descriptors off the loop, stops holding the regions, and frees the list. */
static void region_parts_deinit(struct region_parts *parts, struct session *session)
{
	for (uint32_t i = 0; i < parts->n; i++) {
		struct charge charge = { 0 };

		if (parts->regions[i])
			region_unuse(parts->regions[i]);
		if (parts->list[i].fd < 0)
			continue;
		charge_move(&parts->fds, &charge, 1);
		async_close_fd(&session->service->chores, session->account, parts->list[i].fd, &charge);
	}
	charge_release(&parts->fds);
	charge_release(&parts->list_bytes);
	free(parts->list);
	free(parts->regions);
	*parts = (struct region_parts){ 0 };
}

/* ==== The methods ==================================================================================== */

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

struct mapping {
	struct chore chore;
	LIST_ENTRY(mapping) entry; /* in session->unmapped until the chore has ended */
	struct session *session;
	uint32_t msgid;
	const struct method *method;
	uint64_t start_ns; /* when handling of the request began (uv_hrtime) */
	bool create;
	/* Index of the device; DEVICE_ANY: map_somewhere finds the device that the memory is on. */
	uint32_t device;
	struct engine_handle handle; /* create: only kind and size are set; register: fd is ours to close */
	char handle_bytes[ENGINE_HANDLE_BYTES]; /* the bytes of handle.handle */
	struct region_parts parts;              /* owns what handle.parts points to */
	atomic_bool unwanted;                   /* handle.unwanted points here */
	struct region_charges charges;
	struct charge outgoing; /* create: charge for made.fd, if there will be one */
	/* The chore sets the rest. */
	int status;
	struct error err;
	struct engine_memory *memory;
	/* Indexed by device: the mapping of loose memory by that device; NULL: it has none. */
	struct engine_memory *further[ENGINES_MOST];
	struct engine_export made; /* create: what the client gets */
	bool seal;                 /* register: value of region_registered.seal */
};

static bool may_begin(struct chore *chore);
static bool map(struct chore *chore);
static void on_mapped(struct chore *chore);

/* Frees a mapping that has ended. Its descriptors are closed off the loop, because closing the last
 * descriptor of a large file frees the file's pages. Until then the client's descriptor counts as a region.
 */
static void mapping_free(struct mapping *mapping)
{
	struct session *session = mapping->session;

	if (mapping->made.fd >= 0)
		async_close_fd(&session->service->chores, session->account, mapping->made.fd,
		               &mapping->outgoing);
	if (mapping->handle.fd >= 0)
		async_close_fd(&session->service->chores, session->account, mapping->handle.fd,
		               &mapping->charges.count);
	region_parts_deinit(&mapping->parts, session);
	region_charges_release(&mapping->charges);
	charge_release(&mapping->outgoing);
	free(mapping);
}

/* Returns whether the region may have to be mapped again, for another device. */
static bool keeps_source(const struct mapping *m)
{
	return m->session->service->devices.n > 1;
}

/* Returns how many devices map the memory when it is registered: all of them if it may be loose (region.h),
 * otherwise 1. */
static uint32_t count_mappings(const struct mapping *m)
{
	const struct devices *devices = &m->session->service->devices;
	const bool may_be_loose = device_engine(devices, 0)->ops->settle && m->handle.is_untrusted &&
	                          !m->create && m->handle.kind == REGION_KIND_MEMFD && m->handle.writable;

	return may_be_loose ? devices->n : 1;
}

/* Returns how many descriptors the service will keep to map the region again. The front of an engine
 * (kernels/process) keeps one for each mapping on its own device, or one for each allocation of a region of
 * parts. The region keeps one for further devices (region.h). */
static uint64_t count_kept_fds(const struct mapping *mapping, const struct region_parts *parts)
{
	if (!keeps_source(mapping))
		return 0;
	if (parts)
		return region_parts_count(parts);
	return mapping->handle.kind == REGION_KIND_CUDA_IPC ? 0 : 1 + count_mappings(mapping);
}

static int take_charges(struct mapping *mapping, const struct region_parts *parts, struct error *err)
{
	const uint64_t bytes = parts ? parts->bytes : mapping->handle.size;
	const uint64_t fds = count_kept_fds(mapping, parts);
	struct account *account = mapping->session->account;
	struct accounts *accounts = &mapping->session->service->accounts;
	struct region_charges *charges = &mapping->charges;
	int r = charge_take(&charges->count, accounts, account, CHARGE_REGIONS, count_mappings(mapping), err);

	if (r == 0)
		r = charge_take(&charges->bytes, accounts, account, CHARGE_MAPPED_BYTES, bytes, err);
	if (r == 0 && mapping->create && mapping->handle.kind == REGION_KIND_MEMFD)
		r = charge_take(&charges->created, accounts, account, CHARGE_CREATED_BYTES, bytes, err);
	if (r == 0 && mapping->handle.kind == REGION_KIND_CUDA_POOL && !account_is_trusted(accounts, account))
		r = charge_take(&charges->pool, accounts, account, CHARGE_POOL_REGIONS, 1, err);
	if (r == 0 && fds > 0)
		r = charge_take(&charges->fds, accounts, account, CHARGE_REGION_FDS, fds, err);
	return r;
}

/* Queues the chore that maps or creates the memory. On success, takes over handle->fd and *parts. parts is
 * NULL if the memory is one allocation. */
static int start_mapping(struct session *session, const struct rpc_request *request, bool create,
                         uint32_t device, const struct engine_handle *handle, struct region_parts *parts,
                         struct error *err)
{
	struct service *service = session->service;
	struct mapping *mapping = calloc(1, sizeof *mapping);
	int r;

	if (!mapping)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a region");
	*mapping = (struct mapping){ .chore = { .begins = may_begin, .step = map, .on_done = on_mapped },
		                     .session = session,
		                     .msgid = request->msgid,
		                     .start_ns = session->service->taken_ns,
		                     .method = request->method,
		                     .create = create,
		                     .device = device,
		                     .handle = *handle,
		                     .made = { .fd = -1 } };
	if (handle->handle.len > 0)
		memcpy(mapping->handle_bytes, handle->handle.data, handle->handle.len);
	mapping->handle.handle.data = mapping->handle_bytes;
	mapping->handle.unwanted = &mapping->unwanted;
	mapping->handle.is_untrusted = !account_is_trusted(&service->accounts, session->account);
	mapping->handle.user = session->account->user;
	if (parts) {
		mapping->handle.parts = parts->list;
		mapping->handle.n_parts = parts->n;
	}
	r = take_charges(mapping, parts, err);
	if (r < 0) {
		mapping->handle.fd = -1;
		mapping_free(mapping);
		return r;
	}
	if (parts) {
		mapping->parts = *parts;
		*parts = (struct region_parts){ 0 };
	}
	session->mappings++;
	LIST_INSERT_HEAD(&session->unmapped, mapping, entry);
	chores_add(&service->chores, session->account, &mapping->chore);
	return 0;
}

void session_give_up_mappings(struct session *session)
{
	struct mapping *mapping;

	LIST_FOREACH(mapping, &session->unmapped, entry)
		atomic_store(&mapping->unwanted, true);
}

static struct mapping *mapping_of(struct chore *chore)
{
	return (struct mapping *)((char *)chore - offsetof(struct mapping, chore));
}

/* Called before the chore's first step. Only now is memory that the chore will create charged as an outgoing
 * descriptor, so that nothing is charged while the chore waits. Returns false, with the mapping freed, if
 * nobody waits for the memory any more or the charge exceeds a limit. */
static bool may_begin(struct chore *chore)
{
	struct mapping *m = mapping_of(chore);
	struct session *session = m->session;

	if (!atomic_load(&m->unwanted)) {
		if (!m->create || m->handle.kind == REGION_KIND_CUDA_IPC ||
		    session_charge_fd(session, &m->outgoing, &m->err) == 0)
			return true;
		session_refuse(session, m->msgid, m->method, m->start_ns, &m->err);
	}
	LIST_REMOVE(m, entry);
	session->mappings--;
	mapping_free(m);
	session_settle(session);
	return false;
}

/* Maps memory whose device is not known: asks one engine after the other, because an engine returns
 * INVALID_ARGUMENT for memory that is on another device or that it does not know. */
static int map_somewhere(struct mapping *m)
{
	const struct devices *devices = &m->session->service->devices;
	struct error why;
	int r = STATUS_INVALID_ARGUMENT;

	for (uint32_t i = 0; i < devices->n && r == STATUS_INVALID_ARGUMENT; i++) {
		m->device = i;
		r = engine_map(device_engine(devices, i), &m->handle, &m->memory, i == 0 ? &why : &m->err);
		if (i == 0 && r < 0)
			m->err = why;
	}
	if (r == STATUS_INVALID_ARGUMENT)
		error_set(&m->err, r, "none of the %" PRIu32 " devices has the memory; of the first: %s",
		          devices->n, why.message);
	return r;
}

static int map_there(struct mapping *m)
{
	struct engine *engine = device_engine(&m->session->service->devices, m->device);

	return m->create ? engine_make(engine, &m->handle, &m->memory, &m->made, &m->err)
	                 : engine_map(engine, &m->handle, &m->memory, &m->err);
}

/* Returns whether the client should seal the file. It cannot if the file is sealed against further seals, as
 * are memfds that the service makes and files other than memfds. */
static bool wants_seal(const struct mapping *m)
{
	const int seals =
	    m->create || m->handle.kind != REGION_KIND_MEMFD ? -1 : fcntl(m->handle.fd, F_GET_SEALS);

	return seals >= 0 && !(seals & (F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) &&
	       m->handle.writable && m->handle.is_untrusted;
}

/* Maps loose memory for the other devices now, because nobody can map it for writing once it is sealed. A
 * device that cannot map it now cannot use it later either; the error is reported when a request needs it
 * there. */
static void map_further(struct mapping *m)
{
	const struct devices *devices = &m->session->service->devices;
	struct error ignored;

	for (uint32_t i = 0; i < devices->n; i++)
		if (i != m->device &&
		    engine_map(device_engine(devices, i), &m->handle, &m->further[i], &ignored) < 0)
			m->further[i] = NULL;
}

/* Maps or creates the memory, in one step. */
static bool map(struct chore *chore)
{
	struct mapping *m = mapping_of(chore);

	m->status = m->device == DEVICE_ANY ? map_somewhere(m) : map_there(m);
	m->seal = m->status == 0 && wants_seal(m);
	if (m->status == 0 && m->handle.writable && atomic_load(&m->memory->is_loose))
		map_further(m);
	if (m->status == 0 && !keeps_source(m) && m->handle.kind == REGION_KIND_MEMFD && m->handle.fd >= 0) {
		close(m->handle.fd); /* the file is in memory, so that nobody can delay this */
		m->handle.fd = -1;
	}
	return true;
}

/* Returns the UUID of the region's device, which is empty if the device has none. */
static struct bytes device_name(const struct region *region)
{
	return bytes_of(device_engine(&region->service->devices, region->device)->uuid);
}

static void answer(struct mapping *m, struct region *region)
{
	if (m->create) {
		struct msg_region_created created = { .region = region->id,
			                              .size = region->memory->size,
			                              .kind = region->memory->kind,
			                              .handle = { (const char *)m->made.handle,
			                                          m->made.handle_len },
			                              .device = device_name(region) };

		if (m->made.handle_len > 0)
			created.has |= F(region_created, handle);
		if (created.device.len > 0)
			created.has |= F(region_created, device);
		if (m->made.fd >= 0)
			charge_move(&m->outgoing, &m->session->out_fds_charge, 1);
		session_reply(m->session, m->msgid, m->method, &created, m->made.fd);
		m->made.fd = -1;
	} else {
		struct msg_region_registered registered = { .region = region->id,
			                                    .size = region->memory->size,
			                                    .device = device_name(region),
			                                    .seal = m->seal,
			                                    .must_seal =
			                                        atomic_load(&region->memory->is_loose),
			                                    .session = m->session->id };

		if (registered.device.len > 0)
			registered.has |= F(region_registered, device);
		if (m->seal)
			registered.has |= F(region_registered, seal) | F(region_registered, session);
		if (registered.must_seal)
			registered.has |= F(region_registered, must_seal) | F(region_registered, session);
		session_reply(m->session, m->msgid, m->method, &registered, -1);
	}
}

/* Runs as a chore: unmaps the memory of a mapping from which no region could be made. */
static bool unmap(struct chore *chore)
{
	struct mapping *m = mapping_of(chore);
	const struct devices *devices = &m->session->service->devices;

	for (uint32_t i = 0; i < devices->n; i++)
		if (m->further[i]) {
			if (engine_unmap_step(device_engine(devices, i), m->further[i]))
				m->further[i] = NULL;
			return false;
		}
	return engine_unmap_step(device_engine(devices, m->device), m->memory);
}

static void refuse(struct chore *chore)
{
	struct mapping *m = mapping_of(chore);
	struct session *session = m->session;

	session->mappings--;
	session_refuse(session, m->msgid, m->method, m->start_ns, &m->err);
	mapping_free(m);
	session_settle(session);
}

/* Gives the region the handle from which it can be mapped again (region_keep_source): the one that it was
 * registered by or, if the service created the memory, the one that its client gets. */
static void keep_source(struct mapping *m, struct region *region)
{
	struct engine_handle handle = m->handle;

	if (m->create) {
		handle.fd = m->made.fd >= 0 ? fcntl(m->made.fd, F_DUPFD_CLOEXEC, 0) : -1;
		handle.handle = (struct bytes){ (const char *)m->made.handle, m->made.handle_len };
		handle.writable = true;
		if (m->made.fd >= 0 && handle.fd < 0)
			return;
	}
	m->handle.fd = -1;
	region_keep_source(region, &handle);
}

static int add_region(struct mapping *m, struct region **ret)
{
	const struct devices *devices = &m->session->service->devices;
	const bool is_loose = atomic_load(&m->memory->is_loose);
	struct reach **reaches = is_loose ? reaches_new(devices, m->further) : NULL;
	int r;

	if (is_loose && !reaches)
		return error_set(&m->err, STATUS_NO_MEMORY, "no memory for a region");
	r = region_table_add(&m->session->regions, m->device, m->memory, &m->charges, ret, &m->err);
	if (r < 0)
		reaches_free(devices, reaches);
	else if (reaches)
		region_adopt(*ret, reaches);
	return r;
}

static void on_mapped(struct chore *chore)
{
	struct mapping *m = mapping_of(chore);
	struct session *session = m->session;
	struct region *region;

	LIST_REMOVE(m, entry);
	if (m->status < 0) {
		refuse(chore);
		return;
	}
	if (add_region(m, &region) < 0) {
		m->chore = (struct chore){ .step = unmap, .on_done = refuse };
		chores_add(&session->service->chores, session->account, &m->chore);
		return;
	}
	session->mappings--;
	if (keeps_source(m))
		keep_source(m, region);
	if (session->state == SESSION_ENDED)
		region_release(region);
	else
		answer(m, region);
	mapping_free(m);
	session_settle(session);
}

static int check_handle(const struct msg_region_register *p, struct error *err)
{
	const bool has_handle = p->kind == REGION_KIND_CUDA_IPC || p->kind == REGION_KIND_CUDA_POOL;

	if (has_handle && p->handle.len != ENGINE_HANDLE_BYTES)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "handle: kind %s takes a handle of %d bytes, got %zu",
		                 region_kind_names[p->kind], ENGINE_HANDLE_BYTES, p->handle.len);
	if (p->handle.len > ENGINE_HANDLE_BYTES)
		return error_set(err, STATUS_INVALID_ARGUMENT, "handle: %zu bytes, at most %d", p->handle.len,
		                 ENGINE_HANDLE_BYTES);
	return 0;
}

/* Sets *ret to the device of a region. Memory of a device is on the device that the request names, or on
 * DEVICE_ANY if it names none. Host memory goes to the device that is named, or to the first one if none is
 * named or the UUID is unknown. */
static int find_device(const struct msg_region_register *p, const struct devices *devices, uint32_t *ret,
                       struct error *err)
{
	const bool is_host = p->kind == REGION_KIND_MEMFD;
	const struct bytes uuid = p->device.uuid;
	char all[160];

	*ret = devices->n == 1 || is_host ? 0 : DEVICE_ANY;
	if (!(p->has & F(region_register, device)) || !*device_engine(devices, 0)->uuid ||
	    devices_find(devices, &p->device, ret, err) == 0 || (is_host && uuid.data))
		return 0;
	if (!uuid.data)
		return err->status;
	devices_list(devices, all, sizeof all);
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "device: the memory is on %.*s, but this service uses %s",
	                 (int)(uuid.len < 64 ? uuid.len : 64), uuid.data, all);
}

/* Sets *device to the device of all parts, which must be the same one. Parts that are descriptors are not
 * checked here: their devices are not known yet. */
static int find_parts_device(const struct region_parts *parts, const struct devices *devices,
                             uint32_t *device, struct error *err)
{
	for (uint32_t i = 0; i < parts->n; i++) {
		const struct region *region = parts->regions[i];

		if (!region)
			continue;
		if (*device != DEVICE_ANY && *device != region->device)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "parts[%" PRIu32 "].region: region %" PRIu64
			                 " is on device %s, but the memory is on %s",
			                 i, region->id, device_engine(devices, region->device)->uuid,
			                 device_engine(devices, *device)->uuid);
		*device = region->device;
	}
	return 0;
}

/* Registers memory that consists of several allocations. */
static int register_parts(struct session *session, const struct rpc_request *request, uint32_t device,
                          const struct engine_handle *handle, struct error *err)
{
	struct region_parts parts;
	int r = region_parts_init(&parts, session, &request->params.region_register, err);

	if (r < 0)
		return r;
	r = find_parts_device(&parts, &session->service->devices, &device, err);
	if (r == 0)
		r = start_mapping(session, request, false, device, handle, &parts, err);
	region_parts_deinit(&parts, session);
	return r;
}

/* Registers memory that is one allocation. */
static int register_fd(struct session *session, const struct rpc_request *request, uint32_t device,
                       struct engine_handle *handle, struct error *err)
{
	const struct pending_fd *first = session_first_fds(session, 1);
	struct charge charge = { 0 };
	int r;

	if (!first)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "kind %s: the request must carry one file descriptor (SCM_RIGHTS)",
		                 region_kind_names[handle->kind]);
	handle->fd = first->fd;
	r = start_mapping(session, request, false, device, handle, NULL, err);
	if (r < 0) {
		session_drop_fds(session, 1);
		return r;
	}
	session_take_fds(session, 1, &charge);
	charge_release(&charge);
	return 0;
}

int method_region_register(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_region_register *p = &request->params.region_register;
	struct engine_handle handle = { .kind = p->kind,
		                        .fd = -1,
		                        .offset = p->offset,
		                        .size = p->size,
		                        .writable = p->writable,
		                        .handle = p->handle,
		                        .allocation = p->allocation };
	uint32_t device = DEVICE_ANY;
	int r = check_handle(p, err);

	if (r == 0)
		r = find_device(p, &session->service->devices, &device, err);
	if (r < 0) {
		if (p->has & F(region_register, parts))
			region_parts_drop_fds(session, &p->parts);
		else if (p->kind != REGION_KIND_CUDA_IPC)
			session_drop_fds(session, 1);
		return r;
	}
	if (p->has & F(region_register, parts))
		return register_parts(session, request, device, &handle, err);
	if (p->kind == REGION_KIND_CUDA_IPC)
		return start_mapping(session, request, false, device, &handle, NULL, err);
	return register_fd(session, request, device, &handle, err);
}

int method_region_create(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_region_create *p = &request->params.region_create;
	const struct devices *devices = &session->service->devices;
	struct engine_handle handle = { .kind = p->kind, .fd = -1, .size = p->size };
	uint32_t device = 0;

	if (p->has & F(region_create, device) && devices_find(devices, &p->device, &device, err) < 0)
		return err->status;
	if (p->kind == REGION_KIND_ANY)
		handle.kind = device_engine(devices, device)->kind;
	if (handle.kind == REGION_KIND_MEMFD &&
	    !engine_makes_host_memory(device_engine(devices, device),
	                              !account_is_trusted(&session->service->accounts, session->account)))
		return error_set(
		    err, STATUS_UNSUPPORTED,
		    "kind memfd: a service with a device makes no host memory for its users; register "
		    "a memfd that is made with MFD_ALLOW_SEALING");
	if (p->size == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "size: a region has at least 1 byte, got 0");
	return start_mapping(session, request, true, device, &handle, NULL, err);
}

/* A release that is answered when the memory has been unmapped. Until then it counts in session->mappings, so
 * that the session is not freed. */
struct release {
	struct session *session;
	uint32_t msgid;
	const struct method *method;
};

static void answer_release(struct session *session, uint32_t msgid, const struct method *method,
                           enum region_state state)
{
	struct msg_region_released released = { .state = state };

	session_reply(session, msgid, method, &released, -1);
}

static void on_released(void *arg)
{
	struct release *release = arg;
	struct session *session = release->session;

	session->mappings--;
	answer_release(session, release->msgid, release->method, REGION_STATE_CLOSED);
	free(release);
	session_settle(session);
}

int method_region_release(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct release *release;
	struct region *region;
	int r = region_table_find(&session->regions, request->params.region_release.region, "region", &region,
	                          err);

	if (r < 0)
		return r;
	release = malloc(sizeof *release);
	if (!release)
		return error_set(err, STATUS_NO_MEMORY, "no memory to release a region");
	if (region_release(region) == REGION_STATE_DRAINING) {
		answer_release(session, request->msgid, request->method, REGION_STATE_DRAINING);
		free(release);
		return 0;
	}
	*release = (struct release){ session, request->msgid, request->method };
	session->mappings++;
	region_when_closed(region, on_released, release);
	return 0;
}
