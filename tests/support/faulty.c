/* SPDX-License-Identifier: Apache-2.0 */
/* A tmad whose cuda engine is the cpu engine with injected faults, to test without a device how the service
 * handles one.
 *
 * "Device memory" is memfds: a cuda_fd handle is the memfd itself, a cuda_ipc handle is the text of a path to
 * it (/proc/PID/fd/N). A copy of FATAL_BYTES bytes loses the device: that job and every later one ends as
 * DEVICE_LOST. A copy of FAILING_BYTES bytes is carried out but reported as failed with DEVICE.
 *
 * Environment: FAULTY_OPEN is the reason for which the engine does not open; FAULTY_OPENS is the number of
 * process starts after which it no longer opens; FAULTY_SILENT names a file during whose existence a probe
 * finds the engine silent.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/tmad.h"
#include "kernels/host/memory.h"

#define FATAL_BYTES   6666
#define FAILING_BYTES 5555

struct faulty {
	struct engine engine;
	struct engine *cpu;
	struct engine_options options;
	struct engine_job *fatal; /* jobs that have not ended yet, oldest first */
	struct engine_job **fatal_end;
	void (*on_done)(struct engine_job *job); /* the completion callback of every job */
};

/* Streams belong to the cpu engine and have no pointer to this state, so it is global. */
static struct faulty faulty;

static void faulty_close(struct engine *engine)
{
	(void)engine;
	engine_close(faulty.cpu);
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

static int open_handle(const struct engine_handle *handle, struct error *err)
{
	char path[ENGINE_HANDLE_BYTES + 1] = "";
	int fd;

	memcpy(path, handle->handle.data, handle->handle.len);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? error_set(err, STATUS_INVALID_ARGUMENT, "handle: %s: %s", path, strerror(errno)) : fd;
}

static int faulty_map(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
                      struct error *err)
{
	struct engine_handle memfd = *handle;
	int opened = -1, r;

	(void)engine;
	memfd.kind = REGION_KIND_MEMFD;
	if (handle->kind == REGION_KIND_CUDA_IPC) {
		memfd.fd = opened = open_handle(handle, err);
		if (opened < 0)
			return opened;
	}
	r = engine_map(faulty.cpu, &memfd, ret, err);
	if (r == 0)
		(*ret)->kind = handle->kind;
	if (opened >= 0)
		close(opened);
	return r;
}

/* The memfd behind an IPC handle stays open, as an allocation would. */
static int faulty_create(struct engine *engine, const struct engine_handle *wanted,
                         struct engine_memory **ret, struct engine_export *ret_export, struct error *err)
{
	enum region_kind kind = wanted->kind;
	int r = engine_create(faulty.cpu, REGION_KIND_MEMFD, wanted->size, ret, ret_export, err);

	(void)engine;
	if (r < 0)
		return r;
	(*ret)->kind = kind;
	host_memory(*ret)->is_made = false; /* an allocation lives as long as its descriptors */
	if (kind == REGION_KIND_CUDA_IPC) {
		snprintf((char *)ret_export->handle, ENGINE_HANDLE_BYTES, "/proc/%d/fd/%d", (int)getpid(),
		         ret_export->fd);
		ret_export->handle_len = ENGINE_HANDLE_BYTES;
		ret_export->fd = -1;
	}
	return 0;
}

static bool faulty_unmap(struct engine *engine, struct engine_memory *memory)
{
	(void)engine;
	return engine_unmap_step(faulty.cpu, memory);
}

/* ---- Jobs ------------------------------------------------------------------------------------------- */

static struct engine_stream *faulty_stream_new(struct engine *engine, struct engine_owner *owner)
{
	(void)engine;
	return engine_stream_new(faulty.cpu, owner);
}

static void faulty_stream_free(struct engine_stream *stream)
{
	engine_stream_free(faulty.cpu, stream);
}

/* Makes the job's moves of that many bytes fail. Returns whether there are any. */
static bool fail_moves(struct engine_job *job, uint64_t bytes, int status)
{
	struct engine_move *moves = job->moves ? job->moves : &job->move;
	uint32_t n = job->moves ? job->n_moves : 1;
	bool any = false;

	for (uint32_t i = 0; i < n; i++) {
		if (moves[i].transform->bytes != 2 * bytes)
			continue;
		moves[i].status = status;
		any = true;
	}
	return any;
}

static void on_moved(struct engine_job *job)
{
	if (job->status == 0 && fail_moves(job, FAILING_BYTES, STATUS_DEVICE))
		job->status = STATUS_DEVICE;
	faulty.on_done(job);
}

static void faulty_submit(struct engine_stream *stream, struct engine_job *job)
{
	if (!faulty.fatal && !faulty.engine.lost && !fail_moves(job, FATAL_BYTES, STATUS_DEVICE_LOST)) {
		faulty.on_done = job->on_done;
		job->on_done = on_moved;
		engine_submit(faulty.cpu, stream, job);
		return;
	}
	job->begun = !faulty.fatal && !faulty.engine.lost;
	job->next = NULL;
	*faulty.fatal_end = job;
	faulty.fatal_end = &job->next;
	faulty.options.wake(faulty.options.wake_arg);
}

static void faulty_stream_cancel(struct engine_stream *stream)
{
	engine_stream_cancel(faulty.cpu, stream);
}

static bool faulty_cancel(struct engine_stream *stream, struct engine_job *job)
{
	return engine_cancel(faulty.cpu, stream, job);
}

static void faulty_reap(struct engine *engine)
{
	struct engine_job *job = faulty.fatal, *next;

	engine_reap(faulty.cpu);
	if (!job)
		return;
	faulty.fatal = NULL;
	faulty.fatal_end = &faulty.fatal;
	engine->lost = true;
	snprintf(engine->lost_why, sizeof engine->lost_why, "a copy of %d bytes is fatal to it", FATAL_BYTES);
	for (; job; job = next) {
		next = job->next;
		job->status = STATUS_DEVICE_LOST;
		job->on_done(job);
	}
}

static int faulty_probe(struct engine *engine, struct error *err)
{
	const char *silent = getenv("FAULTY_SILENT");

	(void)engine;
	if (silent && access(silent, F_OK) == 0)
		return error_set(err, STATUS_TIMEOUT, "%s is there: no sign of life", silent);
	return engine_probe(faulty.cpu, err);
}

static int faulty_explain(struct engine *engine, struct engine_plan *plan, struct engine_explanation *ret,
                          struct error *err)
{
	(void)engine;
	return engine_explain(faulty.cpu, plan, ret, err);
}

static const struct engine_ops faulty_ops = {
	.close = faulty_close,
	.map = faulty_map,
	.create = faulty_create,
	.unmap = faulty_unmap,
	.stream_new = faulty_stream_new,
	.stream_free = faulty_stream_free,
	.submit = faulty_submit,
	.stream_cancel = faulty_stream_cancel,
	.cancel = faulty_cancel,
	.reap = faulty_reap,
	.probe = faulty_probe,
	.explain = faulty_explain,
};

/* ---- Opening ---------------------------------------------------------------------------------------- */

/* Counts down over several starts of the process. */
static bool may_open(void)
{
	const char *opens = getenv("FAULTY_OPENS");
	char left[16];

	if (!opens)
		return true;
	snprintf(left, sizeof left, "%d", atoi(opens) - 1);
	setenv("FAULTY_OPENS", left, 1);
	return atoi(opens) > 0;
}

static int faulty_open(struct engine **ret, const struct engine_options *options, struct error *err)
{
	const char *why = getenv("FAULTY_OPEN");
	int r;

	if (why)
		return error_set(err, STATUS_UNSUPPORTED, "%s", why);
	if (!may_open())
		return error_set(err, STATUS_DEVICE, "the device does not come back");
	if (options->device && strcmp(options->device, "0"))
		return error_set(err, STATUS_NOT_FOUND, "--device=%s: there is device 0 alone",
		                 options->device);
	r = engine_cpu_open(&faulty.cpu, options, err);
	if (r < 0)
		return r;
	faulty.engine = *faulty.cpu;
	faulty.engine.ops = &faulty_ops;
	faulty.engine.name = "cuda";
	faulty.engine.kind = REGION_KIND_CUDA_FD;
	strcpy(faulty.engine.device, "faulty");
	strcpy(faulty.engine.uuid, "GPU-00000000-0000-0000-0000-00000000000F");
	faulty.options = *options;
	faulty.fatal_end = &faulty.fatal;
	*ret = &faulty.engine;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct engine_openers openers = { .cpu = engine_cpu_open, .cuda = faulty_open };

	return tmad_main(argc, argv, &openers);
}
