/* SPDX-License-Identifier: Apache-2.0 */
/* Opens one descriptor of each kind. */
#include "descriptors.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "traffic.h"

static int memfd(off_t size, int seals)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, size) < 0 ||
	    (size > 0 && size <= TRAFFIC_SIZE && posix_fallocate(fd, 0, size) != 0) ||
	    (seals && fcntl(fd, F_ADD_SEALS, seals) < 0))
		abort();
	return fd;
}

static int read_only(int fd)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

void descriptors_open(int ret[DESCRIPTOR_COUNT])
{
	int pair[2], ends[2];

	if (pipe2(pair, O_CLOEXEC) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		abort();
	ret[DESCRIPTOR_MEMFD] = memfd(TRAFFIC_SIZE, F_SEAL_SHRINK | F_SEAL_GROW);
	ret[DESCRIPTOR_UNSEALED] = memfd(TRAFFIC_SIZE, 0);
	ret[DESCRIPTOR_SHORT] = memfd(100, F_SEAL_SHRINK);
	ret[DESCRIPTOR_READ_ONLY] = read_only(ret[DESCRIPTOR_MEMFD]);
	ret[DESCRIPTOR_WRITE_SEALED] = memfd(TRAFFIC_SIZE, F_SEAL_SHRINK | F_SEAL_WRITE);
	ret[DESCRIPTOR_EMPTY] = memfd(0, F_SEAL_SHRINK);
	ret[DESCRIPTOR_SPARSE] = memfd((off_t)1 << 40, F_SEAL_SHRINK);
	ret[DESCRIPTOR_PIPE] = pair[0];
	ret[DESCRIPTOR_SOCKET] = ends[0];
	ret[DESCRIPTOR_DIRECTORY] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret[DESCRIPTOR_PATH] = open("/dev/null", O_PATH | O_CLOEXEC);
	ret[DESCRIPTOR_DEVICE] = open("/dev/zero", O_RDWR | O_CLOEXEC);
	ret[DESCRIPTOR_EVENT] = eventfd(0, EFD_CLOEXEC);
	for (int i = 0; i < DESCRIPTOR_COUNT; i++)
		if (ret[i] < 0)
			abort();
}
