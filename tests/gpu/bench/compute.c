/* SPDX-License-Identifier: Apache-2.0 */
/* A process that keeps a GPU computing, as a neighbour of the service. Its launches take about 200 us, each
 * with four successive blocks for every multiprocessor, and a few launches are queued at any time.
 *
 *    compute PAGE [tiny]     PAGE is the number of a descriptor of a struct compute_page.
 *
 * bench_neighbour starts it. Each block takes most of a multiprocessor's shared memory, as blocks of a matrix
 * multiplication do, so that nothing else fits beside it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "compute_args.h"
#include "compute_page.h"
#include "figures.h"
#include "tests/gpu/rig.h"

#define DEPTH     4 /* launches in the queue */
#define WAVES     4 /* blocks of a launch for each multiprocessor */
#define SHARED    (200 << 10)
#define WORDS     (1 << 24) /* 256 MiB, more than a cache holds */
#define LAUNCH_US 200.0
#define TRIED     20 /* launches timed to find out how long one takes */
#define TRY_STEPS 64
#define LOOK_US   20 /* microseconds between two checks whether a launch has ended */

extern const unsigned char compute_image[]; /* defined in compute_image.S */

struct compute {
	struct device device;
	CUmodule module;
	CUfunction function;
	CUstream stream;
	CUevent ended[DEPTH];
	struct compute_args args;
	struct compute_page *page;
	uint64_t launched, seen;
	unsigned int blocks;
};

static void compute_open(struct compute *compute, bool tiny)
{
	struct error err;

	if (device_open(&compute->device, NULL, &err) < 0)
		rig_die("compute: %s", err.message);
	rig_call(cuModuleLoadData, (&compute->module, compute_image));
	rig_call(cuModuleGetFunction, (&compute->function, compute->module, "compute"));
	rig_call(cuFuncSetAttribute,
	         (compute->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED));
	rig_call(cuStreamCreateWithPriority, (&compute->stream, CU_STREAM_NON_BLOCKING, 0));
	for (int i = 0; i < DEPTH; i++)
		rig_call(cuEventCreate, (&compute->ended[i], CU_EVENT_DISABLE_TIMING));
	compute->args.words = tiny ? 1 << 12 : WORDS;
	compute->args.data = rig_new(compute->args.words * 16);
	compute->args.sums = rig_new(16);
	compute->args.steps = tiny ? 1 : TRY_STEPS;
	compute->blocks = compute->device.processors * (tiny ? 1 : WAVES);
	rig_call(cuMemsetD8Async, (compute->args.data, 0, compute->args.words * 16, compute->stream));
	rig_call(cuStreamSynchronize, (compute->stream));
}

static void launch(struct compute *compute)
{
	CUlaunchConfig config = {
		.gridDimX = compute->blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = COMPUTE_THREADS,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = SHARED,
		.hStream = compute->stream,
	};
	void *params[] = { &compute->args };

	rig_call(cuLaunchKernelEx, (&config, compute->function, params, NULL));
	rig_call(cuEventRecord, (compute->ended[compute->launched++ % DEPTH], compute->stream));
	compute->args.from += (uint64_t)compute->blocks * compute->args.steps * COMPUTE_THREADS;
}

/* Waits for the oldest launch under way. */
static void see(struct compute *compute)
{
	CUevent ended = compute->ended[compute->seen % DEPTH];
	CUresult result;

	while ((result = driver.cuEventQuery(ended)) == CUDA_ERROR_NOT_READY)
		nap_us(LOOK_US);
	rig_call(cuEventQuery, (ended));
	compute->seen++;
	atomic_fetch_add(&compute->page->launches, 1);
}

static void drain(struct compute *compute)
{
	while (compute->seen < compute->launched)
		see(compute);
}

/* Chooses the steps so that a launch takes LAUNCH_US. */
static void choose_steps(struct compute *compute, bool tiny)
{
	double us = 0;

	for (int round = 0; round < 2; round++) {
		const double start = now_us();

		for (int i = 0; i < TRIED; i++)
			launch(compute);
		rig_call(cuStreamSynchronize, (compute->stream));
		us = (now_us() - start) / TRIED;
		compute->seen = compute->launched;
		if (!tiny && round == 0)
			compute->args.steps = (uint32_t)(TRY_STEPS * LAUNCH_US / us) + 1;
	}
	compute->page->launch_us = us;
	compute->page->launch_flop =
	    COMPUTE_STEP_FLOP * COMPUTE_THREADS * compute->args.steps * compute->blocks;
	compute->page->multiprocessors = compute->device.processors;
}

/* Reads a command, waiting for one if waits is set. Returns whether there was one. The end of the input ends
 * the process. */
static bool told(bool waits, char *ret)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };

	if (poll(&in, 1, waits ? -1 : 0) <= 0)
		return false;
	if (read(0, ret, 1) != 1)
		exit(0);
	return true;
}

static void serve(struct compute *compute)
{
	bool goes = false;
	char command;

	for (;;) {
		if (told(!goes, &command)) {
			goes = command == COMPUTE_GO;
			if (!goes) {
				drain(compute);
				atomic_fetch_add(&compute->page->pauses, 1);
			}
		}
		while (goes && compute->launched < compute->seen + DEPTH)
			launch(compute);
		if (goes)
			see(compute);
	}
}

int main(int argc, char **argv)
{
	static struct compute compute;
	const bool tiny = argc == 3 && !strcmp(argv[2], "tiny");

	if (argc != 2 && !tiny) {
		fprintf(stderr, "bench_neighbour starts this program\n");
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	compute.page = mmap(NULL, sizeof *compute.page, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0);
	if (compute.page == MAP_FAILED)
		rig_die("compute: the page: %s", strerror(errno));
	compute_open(&compute, tiny);
	choose_steps(&compute, tiny);
	atomic_fetch_add(&compute.page->pauses, 1);
	serve(&compute);
}
