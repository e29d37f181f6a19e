/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the service is told of device memory. Every region of an allocation names the allocation's
 * device, and every connection is told the parts of a region anew, also when one call alone uses the region.
 * The allocations, and the driver that knows one of them, belong to the test. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "server.h"

#define BASE  UINT64_C(0x7f0000000000)
#define BYTES ((uint64_t)2 << 20)
#define MOST  8

/* Records a region_register as it came. */
struct told {
	int connection;
	bool has_parts;
	uint32_t n_parts;
	bool names_region[MOST]; /* for each part */
	char device[DEVICE_UUID_TEXT];
};

static struct told told[MOST];
static int n_told;

static void keep(const struct server *s, const struct rpc_request *request)
{
	const struct msg_region_register *p = &request->params.region_register;
	struct told *kept = &told[n_told++];

	cr_assert_eq(request->method->id, METHOD_region_register);
	cr_assert_leq(n_told, MOST);
	*kept = (struct told){ .connection = s->connection };
	kept->has_parts = p->has & F(region_register, parts);
	kept->n_parts = kept->has_parts ? p->parts.n : 0;
	if (p->has & F(region_register, device))
		snprintf(kept->device, sizeof kept->device, "%.*s", (int)p->device.uuid.len,
		         p->device.uuid.data);
	for (uint32_t i = 0; i < kept->n_parts; i++) {
		struct msg_part part;
		struct error err;

		cr_assert_eq(rpc_decode_part(&p->parts, i, &part, &err), 0, "%s", err.message);
		kept->names_region[i] = part.has & F(part, region);
	}
}

static int new_fd(void)
{
	const int fd = memfd_create("allocation", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	return fd;
}

/* ---- One allocation, in several regions --------------------------------------------------------------- */

static device_result get_attribute(void *ret, int attribute, uint64_t pointer)
{
	cr_assert_lt(pointer - BASE, BYTES);
	switch (attribute) {
	case 1: /* context: there is none */
		*(void **)ret = NULL;
		return 0;
	case 2: /* type: device memory */
		*(unsigned *)ret = 2;
		return 0;
	case 7: /* id of the allocation */
		*(uint64_t *)ret = 500;
		return 0;
	case 9: /* ordinal of the device */
		*(int *)ret = 3;
		return 0;
	default:
		*(unsigned *)ret = 0;
		return 0;
	}
}

static device_result get_address_range(uint64_t *ret_base, size_t *ret_size, uint64_t pointer)
{
	cr_assert_lt(pointer - BASE, BYTES);
	*ret_base = BASE;
	*ret_size = BYTES;
	return 0;
}

static device_result retain_allocation(uint64_t *ret, void *address)
{
	(void)address;
	*ret = 77;
	return 0;
}

static device_result get_properties(struct device_properties *ret, uint64_t handle)
{
	(void)handle;
	*ret = (struct device_properties){ .type = 1, .handle_types = 1, .location_type = 1 };
	return 0;
}

static device_result export_allocation(void *ret, uint64_t handle, int type, uint64_t flags)
{
	(void)handle;
	(void)type;
	(void)flags;
	*(int *)ret = new_fd();
	return 0;
}

static device_result release_allocation(uint64_t handle)
{
	(void)handle;
	return 0;
}

static device_result get_device(int *ret, int ordinal)
{
	*ret = ordinal;
	return 0;
}

static device_result get_uuid(struct device_uuid *ret, int device)
{
	memset(ret->bytes, device, sizeof ret->bytes);
	return 0;
}

static struct device_driver *new_driver(void)
{
	struct device_driver *driver = malloc(sizeof *driver);

	cr_assert_not_null(driver);
	*driver = (struct device_driver){
		.library = dlopen(NULL, RTLD_NOW),
		.cuPointerGetAttribute = get_attribute,
		.cuMemGetAddressRange = get_address_range,
		.cuMemRetainAllocationHandle = retain_allocation,
		.cuMemGetAllocationPropertiesFromHandle = get_properties,
		.cuMemExportToShareableHandle = export_allocation,
		.cuMemRelease = release_allocation,
		.cuDeviceGet = get_device,
		.cuDeviceGetUuid = get_uuid,
	};
	return driver;
}

static void script_register(struct server *s)
{
	struct rpc_request request;

	for (uint64_t id = 10; id < 13; id++) {
		server_request(s, &request);
		keep(s, &request);
		server_answer_registered(s, &request, id);
	}
	server_polite(s);
}

/* The first region is registered by a descriptor, and the others name the region that has the allocation. */
Test(chunks, each_region_of_an_allocation_names_the_device)
{
	struct server s = { 0 };
	tma_region *region = NULL;
	tma_client *client;

	server_start(&s, script_register);
	client = server_client(&s, 5000);
	client->driver = new_driver();
	cr_assert_eq(tma_region_from_device_ptr(client, (void *)BASE, BYTES, 0, &region), 0, "%s",
	             tma_last_error(client));
	cr_assert_eq(tma_region_from_device_ptr(client, (void *)BASE, BYTES, TMA_REGION_READ_ONLY, &region),
	             0, "%s", tma_last_error(client));
	cr_assert_eq(tma_region_from_device_ptr(client, (void *)(BASE + 4096), 64, 0, &region), 0, "%s",
	             tma_last_error(client));
	tma_free(client);
	server_stop(&s);
	cr_assert_eq(n_told, 3);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(told[i].n_parts, i > 0 ? 1U : 0U, "%d", i);
		cr_assert_str_eq(told[i].device, "GPU-03030303-0303-0303-0303-030303030303", "%d", i);
	}
}

/* ---- A call that takes several messages --------------------------------------------------------------- */

/* Limits each message to one descriptor. */
static void answer_info(struct server *s, const struct rpc_request *request)
{
	static const struct counter limit = { "message_fds", 1 };
	const struct msg_info info = { .engine = { "cuda", 4 }, .limits = { &limit, 1 } };

	cr_assert_eq(request->method->id, METHOD_info);
	server_answer(s, request, &info);
}

/* Ends the first connection when the last message of the call has come. */
static void script_go_half_way(struct server *s)
{
	struct rpc_request request;

	if (s->connection == 0) {
		server_request(s, &request);
		answer_info(s, &request);
	}
	for (uint64_t i = 0; i < 2; i++) {
		server_request(s, &request);
		keep(s, &request);
		if (s->connection == 0 && i == 1)
			return;
		server_answer_registered(s, &request, 10 + i);
	}
	server_polite(s);
}

/* The next connection is told of what was registered for this call alone just as the lost one was. */
Test(chunks, a_connection_is_lost_between_two_messages)
{
	const int fds[] = { new_fd(), new_fd() };
	const struct tma_region_part parts[] = { { .fd = fds[0], .size = BYTES },
		                                 { .fd = fds[1], .size = BYTES } };
	struct server s = { .connections = 2 };
	tma_region *region = NULL;
	tma_client *client;

	server_start(&s, script_go_half_way);
	client = server_client(&s, 5000);
	tma_set_reconnect(client, 1000);
	cr_assert_eq(tma_region_register_parts(client, parts, 2, 0, 2 * BYTES, 0, &region), 0, "%s",
	             tma_last_error(client));
	cr_assert_eq(tma_reconnects(client), 1);
	tma_free(client);
	server_stop(&s);
	close(fds[0]);
	close(fds[1]);
	cr_assert_eq(n_told, 4);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(told[i].connection, i / 2, "%d", i);
		cr_assert(told[i].has_parts, "%d", i);
		cr_assert_eq(told[i].n_parts, i % 2 ? 2U : 1U, "%d", i);
		cr_assert_eq(told[i].names_region[0], i % 2, "%d", i);
		cr_assert_not(told[i].names_region[i % 2], "%d", i);
	}
}
