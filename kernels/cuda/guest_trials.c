/* SPDX-License-Identifier: Apache-2.0 */
/* At most one launch of each layout is timed at a time. The entry of a layout that is never launched again
 * would stay in use for ever, so all entries are checked when none is free. */
#include "guest_trials.h"

#include "kernels/cuda/driver/driver.h"

void guest_trials_init(struct guest_trials *trials, int device)
{
	trials->device = device;
	pthread_mutex_init(&trials->lock, NULL);
}

static void free_event(CUevent event)
{
	if (event)
		driver.cuEventDestroy(event);
}

void guest_trials_deinit(struct guest_trials *trials)
{
	for (int i = 0; i < GUEST_TIMED; i++) {
		engine_plan_unref(trials->timed[i].plan);
		free_event(trials->timed[i].start);
		free_event(trials->timed[i].end);
	}
	pthread_mutex_destroy(&trials->lock);
}

/* ---- Timed launches: the caller holds the lock, and calls that a capture refuses are allowed ---------- */

static void end(struct timed_launch *timed, int status, uint64_t ns)
{
	trials_ran(timed->plan, timed->taken, status, ns);
	engine_plan_unref(timed->plan);
	timed->plan = NULL;
}

/* If the launch has ended, tells the trials how long it took and frees the entry. */
static void read_time(struct timed_launch *timed)
{
	CUresult result = timed->is_launched ? driver.cuEventQuery(timed->end) : CUDA_ERROR_NOT_READY;
	float ms = 0;

	if (result == CUDA_ERROR_NOT_READY)
		return;
	if (result != CUDA_SUCCESS ||
	    driver.cuEventElapsedTime(&ms, timed->start, timed->end) != CUDA_SUCCESS)
		ms = 0;
	end(timed, 0, (uint64_t)(ms * 1e6f));
}

/* Returns whether a launch of the plan is still being timed, after checking whether it has ended. */
static bool is_being_timed(struct guest_trials *trials, const struct engine_plan *plan)
{
	for (int i = 0; i < GUEST_TIMED; i++) {
		if (trials->timed[i].plan != plan)
			continue;
		read_time(&trials->timed[i]);
		return trials->timed[i].plan;
	}
	return false;
}

static struct timed_launch *find_free(struct guest_trials *trials)
{
	for (int i = 0; i < GUEST_TIMED; i++)
		if (!trials->timed[i].plan)
			return &trials->timed[i];
	for (int i = 0; i < GUEST_TIMED; i++) {
		read_time(&trials->timed[i]);
		if (!trials->timed[i].plan)
			return &trials->timed[i];
	}
	return NULL;
}

static bool has_events(struct timed_launch *timed)
{
	if (!timed->start && driver.cuEventCreate(&timed->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
		timed->start = NULL;
	if (!timed->end && driver.cuEventCreate(&timed->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
		timed->end = NULL;
	return timed->start && timed->end;
}

/* Returns whether the address is memory of the device. Managed memory does not count, because it may be
 * anywhere. */
static bool is_of_device(const struct guest_trials *trials, uint64_t address)
{
	CUmemorytype type = CU_MEMORYTYPE_HOST;
	unsigned is_managed = 1;
	int device = -1;

	return driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
	           CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_DEVICE &&
	       driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
	           CUDA_SUCCESS &&
	       device == trials->device &&
	       driver.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
	           CUDA_SUCCESS &&
	       !is_managed;
}

/* Begins to time a launch. Returns NULL if no entry is free or the event cannot be recorded. */
static struct timed_launch *begin(struct guest_trials *trials, struct engine_plan *plan, CUstream stream)
{
	struct timed_launch *timed = find_free(trials);

	if (!timed || !has_events(timed) || driver.cuEventRecord(timed->start, stream) != CUDA_SUCCESS)
		return NULL;
	engine_plan_ref(plan);
	timed->is_launched = false;
	timed->plan = plan;
	return timed;
}

/* ---- Launches ----------------------------------------------------------------------------------------- */

/* Makes the alternatives to a plan once its first run has been measured. Caller holds trials->lock, which is
 * released meanwhile. */
static void make_alternatives(struct guest_trials *trials, struct engine_plan *plan)
{
	struct plan_trials *made;

	if (!trials_are_wanted(plan))
		return;
	pthread_mutex_unlock(&trials->lock);
	made = trials_make(plan);
	pthread_mutex_lock(&trials->lock);
	trials_start(plan, made);
}

void guest_trials_choose(struct guest_trials *trials, struct engine_plan *plan, uint64_t dst, uint64_t src,
                         bool is_limited, CUstream stream, struct guest_choice *ret)
{
	CUstreamCaptureMode mode;

	*ret = (struct guest_choice){ .plan = plan, .taken = cuda_plan(plan) };
	ret->is_settled = plan->transform.conversion.is || trials_are_over(plan);
	if (ret->is_settled) {
		ret->taken = trials_winner(plan);
		return;
	}
	mode = capture_allow();
	pthread_mutex_lock(&trials->lock);
	if (!is_limited && trials_may_go_on(plan) && is_of_device(trials, dst) && is_of_device(trials, src) &&
	    !is_being_timed(trials, plan) && !stream_is_captured(stream)) {
		make_alternatives(trials, plan);
		if (!trials_are_over(plan))
			ret->timed = begin(trials, plan, stream);
	}
	ret->taken = trials_take(plan, ret->timed);
	if (ret->timed)
		ret->timed->taken = ret->taken;
	pthread_mutex_unlock(&trials->lock);
	capture_restore(mode);
}

void guest_trials_launched(struct guest_trials *trials, const struct guest_choice *choice, CUstream stream,
                           int status)
{
	struct timed_launch *timed = choice->timed;

	if (choice->is_settled)
		return;
	pthread_mutex_lock(&trials->lock);
	if (!timed)
		trials_return(choice->plan, choice->taken);
	else if (status == 0 && driver.cuEventRecord(timed->end, stream) == CUDA_SUCCESS)
		timed->is_launched = true;
	else
		end(timed, status, 0);
	pthread_mutex_unlock(&trials->lock);
}
