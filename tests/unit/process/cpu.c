/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of unit_process: the CPU engine, which may be held back, and some that do not open as others
 * do.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rig.h"

/* Once the file $HOLD_BACK is not there, if that is set. */
static int open_cpu(struct engine **ret, const struct engine_options *options, struct error *err)
{
	const char *path = getenv("HOLD_BACK");

	while (path && access(path, F_OK) == 0)
		usleep(10000);
	return engine_cpu_open(ret, options, err);
}

static int refuse(struct engine **ret, const struct engine_options *options, struct error *err)
{
	(void)ret;
	(void)options;
	return error_set(err, STATUS_NOT_FOUND, "it does not want to");
}

static int crash(struct engine **ret, const struct engine_options *options, struct error *err)
{
	(void)ret;
	(void)options;
	(void)err;
	_exit(3);
}

/* Once four processes have come so far. */
static int meet(struct engine **ret, const struct engine_options *options, struct error *err)
{
	const int fd = open(getenv("MEET_AT"), O_WRONLY | O_APPEND | O_CLOEXEC);
	struct stat st = { 0 };

	if (write(fd, "x", 1) != 1)
		return error_set(err, STATUS_INTERNAL, "no place to meet");
	while (fstat(fd, &st) == 0 && st.st_size < 4)
		usleep(1000);
	close(fd);
	return engine_cpu_open(ret, options, err);
}

const struct engine_process_opener rig_openers[] = {
	{ "cpu", open_cpu }, { "refuses", refuse }, { "crashes", crash }, { "meets", meet }, { NULL, NULL },
};
