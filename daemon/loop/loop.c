/* SPDX-License-Identifier: Apache-2.0 */
/* Before libuv is asked to poll a descriptor, the kernel is asked for everything that it may refuse, so that
 * the calls in libuv cannot fail. */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

const struct clock clock_uv = {
	.now_ns = uv_hrtime, .now_ms = uv_now, .timer_start = uv_timer_start, .timer_stop = uv_timer_stop
};

static void on_never(uv_poll_t *poll, int status, int events)
{
	(void)poll;
	(void)status;
	(void)events;
}

/* Polls the highest possible descriptor once: libuv's table grows to the highest descriptor that was ever
 * polled, and never shrinks. */
int watch_reserve(uv_loop_t *loop, uint64_t most)
{
	int fd = eventfd(0, EFD_CLOEXEC);
	int last = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, (int)(most - 1));
	uv_poll_t poll;
	int r = last < 0 ? -errno : uv_poll_init(loop, &poll, last);

	if (r == 0) {
		uv_poll_start(&poll, UV_READABLE, on_never);
		uv_close((uv_handle_t *)&poll, NULL);
		uv_run(loop, UV_RUN_NOWAIT);
	}
	if (last >= 0)
		close(last);
	if (fd >= 0)
		close(fd);
	return r;
}

/* Adds the descriptor to the epoll set. libuv tries to add it in the loop's next iteration, finds that it
 * exists, and only changes its events, which takes no memory. */
int watch_start(uv_poll_t *poll, int events, uv_poll_cb on_event)
{
	struct epoll_event nothing = { 0 };
	uv_os_fd_t fd;
	int r;

	uv_fileno((const uv_handle_t *)poll, &fd);
	nothing.data.fd = fd;
	uv_poll_start(poll, events, on_event);
	if (epoll_ctl(uv_backend_fd(poll->loop), EPOLL_CTL_ADD, fd, &nothing) == 0 || errno == EEXIST)
		return 0;
	r = -errno;
	uv_poll_stop(poll);
	return r;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct doorbell *doorbell = poll->data;
	uint64_t rings;
	ssize_t n = read(doorbell->fd, &rings, sizeof rings);

	(void)n; /* fails with EAGAIN if the eventfd has been reset already, which does no harm */
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
