/* SPDX-License-Identifier: Apache-2.0 */
/* Tests timelines that a CUDA stream waits for or signals, against a driver of the test. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "client/client.h"

static struct {
	void *stream;
	uint64_t address, value;
	unsigned flags;
	bool waits;
} asked;
static device_result result;

static device_result get_error_name(device_result r, const char **ret)
{
	*ret = r == 400 ? "CUDA_ERROR_INVALID_HANDLE" : NULL;
	return 0;
}

static device_result write_value(void *stream, uint64_t address, uint64_t value, unsigned flags)
{
	asked.stream = stream;
	asked.address = address;
	asked.value = value;
	asked.flags = flags;
	asked.waits = false;
	return result;
}

static device_result wait_value(void *stream, uint64_t address, uint64_t value, unsigned flags)
{
	write_value(stream, address, value, flags);
	asked.waits = true;
	return result;
}

/* Returns a client that has found a driver, which has the entry points that the calls need only if is_new. */
static tma_client *client_with(bool is_new)
{
	tma_client *client = tma_new();

	client->driver = calloc(1, sizeof *client->driver);
	client->driver->library = dlopen(NULL, RTLD_NOW);
	client->driver->cuGetErrorName = get_error_name;
	if (is_new) {
		client->driver->cuStreamWriteValue64 = write_value;
		client->driver->cuStreamWaitValue64 = wait_value;
	}
	return client;
}

Test(stream, enqueues)
{
	tma_client *client = client_with(true);
	int stream;

	cr_assert_eq(tma_stream_signal(client, &stream, 0x7f0000000008, UINT64_MAX), 0, "%s",
	             tma_last_error(client));
	cr_assert(asked.stream == &stream && asked.address == 0x7f0000000008 && asked.value == UINT64_MAX &&
	          asked.flags == 0 && !asked.waits);
	cr_assert_eq(tma_stream_wait(client, NULL, 64, 3), 0);
	cr_assert(asked.stream == NULL && asked.address == 64 && asked.value == 3 && asked.flags == 0 &&
	          asked.waits);
	result = 400;
	cr_assert_eq(tma_stream_wait(client, NULL, 64, 3), TMA_DEVICE);
	cr_assert_str_eq(tma_last_error(client), "cuStreamWaitValue64: CUDA_ERROR_INVALID_HANDLE");
	cr_assert_eq(tma_stream_signal(client, NULL, 64, 3), TMA_DEVICE);
	tma_free(client);
}

Test(stream, what_is_refused)
{
	tma_client *client = client_with(false);

	cr_assert_eq(tma_stream_signal(NULL, NULL, 64, 1), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_stream_wait(client, NULL, 0, 1), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_stream_signal(client, NULL, 0x1004, 1), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "word: 0x1004"), "%s", tma_last_error(client));
	cr_assert_eq(tma_stream_wait(client, NULL, 64, 1), TMA_UNSUPPORTED);
	cr_assert(strstr(tma_last_error(client), "too old"), "%s", tma_last_error(client));
	tma_free(client);
}

/* A machine that has a driver refuses an invalid address by itself. */
Test(stream, no_driver)
{
	tma_client *client = tma_new();

	cr_assert_lt(tma_stream_signal(client, NULL, 64, 1), 0);
	cr_assert_gt(strlen(tma_last_error(client)), 0);
	tma_free(client);
}
