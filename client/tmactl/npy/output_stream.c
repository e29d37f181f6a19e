/* SPDX-License-Identifier: Apache-2.0 */
/* Sends bytes to a stream in order, or spools them if they are written out of order. */
#include "output_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipe.h"
#include "room.h"
#include "spool.h"

#define SEND_BYTES (256 * 1024)

bool output_is_standard(const char *path)
{
	return !strcmp(path, "-") || !strcmp(path, "/dev/stdout");
}

bool output_is_stream(const char *path)
{
	struct stat st;

	return output_is_standard(path) ||
	       (!stat(path, &st) && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode) || S_ISSOCK(st.st_mode)));
}

int output_open_stream(struct output *output, struct failure *f)
{
	bool is_standard = output_is_standard(output->path);
	char why[ROOM_TEXT];
	int error;

	output->is_stream = true;
	if (is_standard) {
		output->path = "standard output";
		output->stream = pipe_own(STDOUT_FILENO, O_WRONLY);
	} else {
		output->stream = pipe_open_write(output->path, output->stop);
	}
	if (output->stream < 0)
		return errno == ECANCELED
		           ? fail(f, EXIT_FAILED, "stopped")
		           : fail(f, EXIT_FAILED, "%s: cannot be opened (%s)", output->path, strerror(errno));
	if (isatty(output->stream))
		return fail(f, EXIT_FAILED, "%s: is a terminal; a file or a pipe is needed", output->path);
	error = room_check(output->stream, output->bytes, why);
	if (error)
		return output_no_room(output, error, why, f);
	/* Nothing but the array may go to standard output. */
	if (is_standard && dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return fail(f, EXIT_FAILED, "%s: cannot be opened (%s)", output->path, strerror(errno));
	return 0;
}

int output_spool(struct output *output, uint64_t *memory, struct failure *f)
{
	output->fd = spool_open(output->bytes, memory, output->path, f);
	if (output->fd < 0)
		return -1;
	if (!output->held)
		return 0;
	return spool_write(output->fd, output->held, output->held_bytes, 0, output->path, f);
}

static int send_all(struct output *output, const void *data, size_t len, struct failure *f)
{
	int rc = pipe_write(output->stream, data, len, output->stop);

	if (rc == -ECANCELED)
		return fail(f, EXIT_FAILED, "stopped");
	if (rc == -EPIPE || rc == -ECONNRESET)
		return fail(f, EXIT_FAILED, "%s: the reader has closed it (%s)", output->path, strerror(-rc));
	if (rc < 0)
		return fail(f, EXIT_FAILED, "%s: cannot be written (%s)", output->path, strerror(-rc));
	output->sent += len;
	return 0;
}

static int send_held(struct output *output, struct failure *f)
{
	int rc = output->held ? send_all(output, output->held, output->held_bytes, f) : 0;

	free(output->held);
	output->held = NULL;
	return rc;
}

int output_send(struct output *output, const void *data, size_t len, struct failure *f)
{
	if (!output->sent && !output->held) {
		output->held = malloc(len + 1);
		if (!output->held)
			return fail(f, EXIT_FAILED, "out of memory");
		memcpy(output->held, data, len);
		output->held_bytes = len;
		return 0;
	}
	return send_held(output, f) < 0 ? -1 : send_all(output, data, len, f);
}

static int send_spool(struct output *output, struct failure *f)
{
	char *data = malloc(SEND_BYTES);
	int rc = data ? 0 : fail(f, EXIT_FAILED, "out of memory");

	for (uint64_t at = 0; !rc && at < output->bytes;) {
		size_t len = output->bytes - at < SEND_BYTES ? (size_t)(output->bytes - at) : SEND_BYTES;
		ssize_t n = pread(output->fd, data, len, (off_t)at);

		if (n > 0)
			rc = send_all(output, data, (size_t)n, f);
		else if (n == 0 || errno != EINTR)
			rc = fail(f, EXIT_FAILED, "%s: its buffered data cannot be read (%s)", output->path,
			          n ? strerror(errno) : "it is truncated");
		at += n > 0 ? (uint64_t)n : 0;
	}
	free(data);
	return rc;
}

int output_end_stream(struct output *output, struct failure *f)
{
	int rc = output->fd >= 0 ? send_spool(output, f) : send_held(output, f);

	if (rc < 0)
		return rc;
	rc = close(output->stream);
	output->stream = -1;
	return rc < 0 ? fail(f, EXIT_FAILED, "%s: cannot be written (%s)", output->path, strerror(errno)) : 0;
}
