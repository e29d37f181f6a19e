/* SPDX-License-Identifier: Apache-2.0 */
/* Points of timelines on the program's own CUDA streams: the stream itself writes a value or waits for
 * one. */
#include "client.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
	WAIT_UNTIL_REACHED = 0, /* CU_STREAM_WAIT_VALUE_GEQ: waits until word - value is not negative */
	/* CU_STREAM_WRITE_VALUE_DEFAULT: earlier writes of the stream become visible first */
	WRITE_AFTER_ALL = 0,
};

/* Checks the word's address and loads the driver. UNSUPPORTED: the driver lacks stream memory operations. */
static int check(tma_client *client, uint64_t word)
{
	int rc;

	if (!client)
		return STATUS_INVALID_ARGUMENT;
	if (!word || word % sizeof(uint64_t))
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "word: %#" PRIx64
		                   " is not the address of a word, which must be aligned to 8 bytes",
		                   word);
	rc = client_find_driver(client);
	if (rc < 0)
		return rc;
	if (!client->driver->cuStreamWriteValue64 || !client->driver->cuStreamWaitValue64)
		return client_fail(
		    client, STATUS_UNSUPPORTED,
		    "the CUDA driver here has no 64-bit stream memory operations: it is too old");
	return 0;
}

static int finish(tma_client *client, device_result result, const char *what)
{
	struct error err;

	return result
	           ? client_fail(client, device_fail(client->driver, result, what, &err), "%s", err.message)
	           : 0;
}

int tma_stream_signal(tma_client *client, void *stream, uint64_t word, uint64_t value)
{
	int rc = check(client, word);

	return rc < 0 ? rc
	              : finish(client,
	                       client->driver->cuStreamWriteValue64(stream, word, value, WRITE_AFTER_ALL),
	                       "cuStreamWriteValue64");
}

int tma_stream_wait(tma_client *client, void *stream, uint64_t word, uint64_t value)
{
	int rc = check(client, word);

	return rc < 0 ? rc
	              : finish(client,
	                       client->driver->cuStreamWaitValue64(stream, word, value, WAIT_UNTIL_REACHED),
	                       "cuStreamWaitValue64");
}
