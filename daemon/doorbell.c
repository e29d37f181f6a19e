/* SPDX-License-Identifier: Apache-2.0 */
/* The eventfd, watched by the loop. */
#include "doorbell.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct doorbell *doorbell = poll->data;
	uint64_t rings;
	ssize_t n = read(doorbell->fd, &rings, sizeof rings);

	(void)n; /* somebody else's reading is as good */
	(void)status;
	(void)events;
	doorbell->on_ring(doorbell->arg);
}

int doorbell_open(struct doorbell *doorbell, uv_loop_t *loop, void (*on_ring)(void *arg), void *arg,
                  struct error *err)
{
	const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r;

	if (fd < 0)
		return error_set(err, STATUS_INTERNAL, "no descriptors to start: %s", strerror(errno));
	r = uv_poll_init(loop, &doorbell->poll, fd);
	if (r < 0) {
		close(fd);
		return error_set(err, STATUS_INTERNAL, "no event loop: %s", uv_strerror(r));
	}
	doorbell->fd = fd;
	doorbell->on_ring = on_ring;
	doorbell->arg = arg;
	doorbell->poll.data = doorbell;
	uv_poll_start(&doorbell->poll, UV_READABLE, on_readable);
	return 0;
}

void doorbell_close(struct doorbell *doorbell)
{
	if (doorbell->fd <= 0)
		return;
	uv_close((uv_handle_t *)&doorbell->poll, NULL);
	close(doorbell->fd);
	doorbell->fd = 0;
}
