/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the engines of unit_process: the CPU engine, which a test can hold back while it opens or maps
 * memory, and engines that do not open, or open late. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rig.h"

/* Waits while the file exists that the environment variable names, if it is set. */
static void wait_while(const char *variable)
{
	const char *path = getenv(variable);

	while (path && access(path, F_OK) == 0)
		usleep(10000);
}

static const struct engine_ops *cpu;

static int map(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
               struct error *err)
{
	if (handle->size == RIG_HELD_BYTES)
		wait_while("HOLD_MAPPING");
	return cpu->map(engine, handle, ret, err);
}

static int open_cpu(struct engine **ret, const struct engine_options *options, struct error *err)
{
	static struct engine_ops ops;
	int r;

	wait_while("HOLD_BACK");
	r = engine_cpu_open(ret, options, err);
	if (r < 0)
		return r;
	cpu = (*ret)->ops;
	ops = *cpu;
	ops.map = map;
	(*ret)->ops = &ops;
	return 0;
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

/* Opens the CPU engine once four processes have come here. */
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
