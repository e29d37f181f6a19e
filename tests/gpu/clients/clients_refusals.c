/* SPDX-License-Identifier: Apache-2.0 */
/* Cases in which the service is given something that is no device memory, or is not what the request says.
 * Each is refused with one typed error, and the service goes on. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clients.h"
#include "clients_move.h"
#include "clients_store.h"
#include "proto/wire/rpc.h"
#include "proto/wire/socket.h"
#include "tests/support/tap.h"

#define BYTES ((size_t)4 << 20)

static void check_refused(tma_client *client, int status, int wanted, const char *what)
{
	require(status == wanted, "%s: %s, not %s: %s", what, status ? tma_status_name(status) : "taken",
	        tma_status_name(wanted), tma_last_error(client));
	require(*tma_last_error(client), "%s: nothing is said of it", what);
	must(client, tma_ping(client));
}

/* ---- By handle
 * ------------------------------------------------------------------------------------------ */

static void refuse_handle(tma_client *client, const void *handle, uint64_t offset, size_t size, int wanted,
                          const char *what)
{
	tma_region *region;

	check_refused(client, tma_region_register_cuda_ipc(client, handle, offset, size, 0, &region), wanted,
	              what);
}

static void refuse_handles(const struct service *service, uint64_t seed)
{
	tma_client *client = client_connect(service);
	uint8_t zeros[sizeof(CUipcMemHandle)] = { 0 };
	uint64_t state = seed;
	CUipcMemHandle handle;
	struct store store;

	store_open_device();
	store_allocate(&store, BYTES);
	store_handle(&store, &handle);
	for (int i = 0; i < 8; i++) {
		uint8_t *garbage = move_random(sizeof handle, &state);

		refuse_handle(client, garbage, 0, 1, TMA_INVALID_ARGUMENT, "a handle of random bytes");
		free(garbage);
	}
	refuse_handle(client, zeros, 0, 1, TMA_INVALID_ARGUMENT, "a handle of zeros");
	refuse_handle(client, &handle, 0, 0, TMA_INVALID_ARGUMENT, "no bytes of it");
	refuse_handle(client, &handle, 0, BYTES + ((size_t)64 << 20), TMA_OUT_OF_RANGE, "more than it has");
	refuse_handle(client, &handle, BYTES + ((size_t)64 << 20), 1, TMA_OUT_OF_RANGE, "a byte beyond it");
	refuse_handle(client, &handle, UINT64_MAX, 2, TMA_OUT_OF_RANGE, "an offset that wraps");
	refuse_handle(client, &handle, 0, SIZE_MAX, TMA_QUOTA, "a size beyond any");
	store_share(&store, client, STORE_BY_POINTER, 0, BYTES);
	store_free(&store);
	tma_free(client);
}

/* ---- By descriptor
 * ---------------------------------------------------------------------------------------- */

static void refuse_fd(tma_client *client, int fd, uint64_t allocation, uint64_t offset, size_t size,
                      int wanted, const char *what)
{
	tma_region *region;

	check_refused(client, tma_region_register_cuda_fd(client, fd, allocation, offset, size, 0, &region),
	              wanted, what);
}

static void refuse_and_close(tma_client *client, int fd, const char *what)
{
	require(fd >= 0, "%s cannot be opened", what);
	refuse_fd(client, fd, 0, 0, 4096, TMA_INVALID_ARGUMENT, what);
	close(fd);
}

static int regular_file(void)
{
	char path[] = "/tmp/tmad-clients-XXXXXX";
	int fd = mkstemp(path);

	unlink(path);
	return fd >= 0 && ftruncate(fd, 8192) == 0 ? fd : -1;
}

static void refuse_fds(const struct service *service, uint64_t seed)
{
	static const char *const drivers[] = { "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm" };
	tma_client *client = client_connect(service);
	struct store store;
	int ends[2], fd;

	(void)seed;
	store_open_device();
	store_create(&store, BYTES);
	require(pipe(ends) == 0, "no pipe");
	refuse_and_close(client, ends[0], "the end of a pipe that is read");
	refuse_and_close(client, ends[1], "the end of a pipe that is written");
	require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no sockets");
	refuse_and_close(client, ends[0], "a socket");
	close(ends[1]);
	refuse_and_close(client, regular_file(), "a regular file");
	refuse_and_close(client, memfd_create("none", 0), "a memfd");
	refuse_and_close(client, open("/dev/null", O_RDWR), "/dev/null");
	refuse_and_close(client, open("/dev/zero", O_RDWR), "/dev/zero");
	refuse_and_close(client, open("/", O_RDONLY | O_DIRECTORY), "a directory");
	refuse_and_close(client, open("/dev/null", O_PATH), "a path");
	for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
		fd = open(drivers[i], O_RDWR | O_CLOEXEC);
		if (fd >= 0)
			refuse_and_close(client, fd, drivers[i]);
	}
	fd = store_export(&store);
	refuse_fd(client, fd, store.size, 0, 0, TMA_INVALID_ARGUMENT, "no bytes of it");
	refuse_fd(client, fd, store.size, 0, store.size + 1, TMA_OUT_OF_RANGE, "more than it has");
	refuse_fd(client, fd, store.size, store.size, 1, TMA_OUT_OF_RANGE, "a byte beyond it");
	refuse_fd(client, fd, store.size, UINT64_MAX, 2, TMA_OUT_OF_RANGE, "an offset that wraps");
	refuse_fd(client, fd, store.size, 0, SIZE_MAX, TMA_QUOTA, "a size beyond any");
	refuse_fd(client, fd, 2 * store.size, 0, 1, TMA_OUT_OF_RANGE, "a larger allocation than it is");
	close(fd);
	store_share(&store, client, STORE_BY_FD, 0, store.size);
	store_free(&store);
	tma_free(client);
}

/* ---- Of another device
 * ------------------------------------------------------------------------------------ */

/* Sends the request without the library, which would name the memory's own device. */
static int status_for_device(const struct service *service, const CUipcMemHandle *handle, const char *device)
{
	struct msg_region_register params = {
		.has = F(region_register, kind) | F(region_register, size) | F(region_register, handle) |
		       F(region_register, device),
		.kind = REGION_KIND_CUDA_IPC,
		.size = 64,
		.handle = { (const char *)handle, sizeof *handle },
		.device = { .uuid = bytes_of(device) },
	};
	struct rpc_decoder *decoder = rpc_decoder_new();
	int sock = socket_connect(service->socket, 1000), fds[SOCKET_MAX_FDS];
	struct buffer out = { 0 };
	struct rpc_reply reply = { 0 };
	struct error err;
	uint8_t data[4096];
	size_t n_fds;
	ssize_t n;

	require(decoder && sock >= 0 &&
	            rpc_encode_request(&out, 1, &methods[METHOD_region_register], &params) == 0,
	        "no connection");
	require(socket_send(sock, out.data + out.start, buffer_len(&out), NULL, 0) ==
	            (ssize_t)buffer_len(&out),
	        "the request is not sent");
	n = socket_receive(sock, data, sizeof data, fds, &n_fds);
	require(n > 0 && rpc_decode_reply(decoder, data, (size_t)n, &reply, &err) == 0, "no reply");
	close(sock);
	buffer_deinit(&out);
	rpc_decoder_free(decoder);
	return reply.error.status;
}

static void refuse_device(const struct service *service, uint64_t seed)
{
	static const char *const devices[] = { "GPU-00000000-0000-0000-0000-000000000000",
		                               "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff", "GPU-", "0",
		                               "nonsense" };
	tma_client *client = client_connect(service);
	CUipcMemHandle handle;
	struct store store;

	(void)seed;
	store_open_device();
	store_allocate(&store, BYTES);
	store_handle(&store, &handle);
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		int status = status_for_device(service, &handle, devices[i]);

		require(status == STATUS_INVALID_ARGUMENT, "device \"%s\": %s", devices[i],
		        status ? tma_status_name(status) : "taken");
		must(client, tma_ping(client));
	}
	store_free(&store);
	tma_free(client);
}

/* ---- The cases
 * -------------------------------------------------------------------------------------------- */

void refusal_cases(const struct service *service)
{
	static const struct {
		const char *name;
		client_run *run;
	} rows[] = {
		{ "what is no CUDA IPC handle, or less memory than is said", refuse_handles },
		{ "what is no allocation's descriptor, or less memory than is said", refuse_fds },
		{ "memory of another device", refuse_device },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		bool good = client_wait(client_start(rows[i].run, service, i + 1));

		tap_case(good && service_lives(service), "%s", rows[i].name);
	}
}
