/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how fast the device moves tensors, compared with its own copy of as many bytes in the same run.
 *
 * The kernel of a plan is compared with cuMemcpyDtoDAsync of the same number of bytes, by the device's
 * events. The plan is the fastest of those that the planner compares (cuda_plan.h), which are tried first;
 * the one predicted to be the fastest is timed as well if it is another. Kernel and copy take turns in the
 * same memory, where each call uses the next place (turn.h). A run repeats short calls. An untimed copy of
 * other data keeps the device busy until all of them are enqueued, so that none waits for the host. The data
 * is random. Rows are in bench_rows.h; tests/bench/program.h has the command line and the table.
 */
#include <stdio.h>
#include <string.h>

#include "bench_rows.h"
#include "kernels/cuda/strategy/plan.h"
#include "tests/bench/explain.h"
#include "kernels/cuda/cuda_plan.h"
#include "turn.h"

#define WARM_UPS 3

/* ---- Time ------------------------------------------------------------------------------------------- */

/* Enqueues the calls of a run, and an event after them. */
static void enqueue_calls(struct turn *turn, void (*call)(struct turn *turn), CUevent after)
{
	for (int i = 0; i < turn->calls; i++)
		call(turn);
	rig_call(cuEventRecord, (after, turn_rig.stream));
}

/* Waits for the run. Returns false if the device had begun before the host had enqueued all of it and more
 * leads are possible. */
static bool wait_for_run(struct turn *turn)
{
	const bool was_ahead = driver.cuEventQuery(turn->event[0]) == CUDA_ERROR_NOT_READY;

	rig_wait(&turn_rig);
	if (was_ahead || turn->leads >= TURN_MAX_LEADS)
		return true;
	turn->leads *= 2;
	return false;
}

/* Runs the copy, the plan, and the chosen plan if that is another one. */
static bool run_all(struct turn *turn)
{
	const struct plan *plan = turn->plan;

	turn_lead(turn);
	enqueue_calls(turn, turn_copy, turn->event[1]);
	if (plan != turn->chosen) {
		turn->plan = turn->chosen;
		enqueue_calls(turn, turn_launch, turn->event[3]);
		turn->plan = plan;
	}
	enqueue_calls(turn, turn_launch, turn->event[2]);
	return wait_for_run(turn);
}

/* Returns nanoseconds per call. */
static double elapsed_ns(const struct turn *turn, CUevent start, CUevent end)
{
	float ms;

	rig_call(cuEventElapsedTime, (&ms, start, end));
	return (double)ms * 1e6 / turn->calls;
}

static void time_runs(struct turn *turn, struct report_row *ret)
{
	const bool is_chosen = turn->plan == turn->chosen;
	const CUevent before = turn->event[is_chosen ? 1 : 3];

	for (int run = -WARM_UPS; run < ret->n_runs;) {
		if (!run_all(turn))
			continue;
		if (run >= 0) {
			ret->base_ns[run] = elapsed_ns(turn, turn->event[0], turn->event[1]);
			ret->ours_ns[run] = elapsed_ns(turn, before, turn->event[2]);
			if (ret->is_tuned)
				ret->chosen_ns[run] =
				    is_chosen ? ret->ours_ns[run] : elapsed_ns(turn, turn->event[1], before);
		}
		run++;
	}
}

/* ---- Trials ----------------------------------------------------------------------------------------- */

/* Returns the time of a run of the plan by itself; 0 if the host was late. */
static uint64_t time_plan(struct turn *turn)
{
	turn_lead(turn);
	enqueue_calls(turn, turn_launch, turn->event[1]);
	return wait_for_run(turn) ? (uint64_t)elapsed_ns(turn, turn->event[0], turn->event[1]) : 0;
}

/* Makes the fastest of the alternatives the plan. Each is checked before it is timed. */
static int settle(struct turn *turn, struct error *err)
{
	bool is_checked[PLAN_ALTERNATIVES] = { true }; /* the chosen plan has been checked with the row */
	struct trials trials;

	trials_init(&trials, (uint32_t)turn->alternatives.n);
	while (!trials_are_settled(&trials)) {
		const uint32_t i = trials_next(&trials);

		turn->plan = &turn->alternatives.plan[i];
		if (!is_checked[i] && turn_try(turn, err) < 0)
			return err->status;
		is_checked[i] = true;
		trials_end(&trials, i, time_plan(turn));
	}
	turn->plan = &turn->alternatives.plan[trials.best];
	return 0;
}

static void explain_one(const struct turn *turn, const struct plan *plan, char *text, size_t size)
{
	const struct plan_facts facts = { .copy = turn_rig.device.copy };
	struct engine_explanation explanation;

	plan_explain(&explanation, plan, &turn->transform, &facts);
	explain_plan(&explanation, text, size);
}

/* Explains the plan, and names the one predicted to be the fastest if that is another. */
static void explain(const struct turn *turn, char *text, size_t size)
{
	size_t len;

	explain_one(turn, turn->plan, text, size);
	if (turn->plan == turn->chosen)
		return;
	len = strlen(text);
	len += (size_t)snprintf(text + len, size - len, "predicted to be the fastest: %s, ",
	                        family_names[turn->chosen->family]);
	if (len < size)
		explain_one(turn, turn->chosen, text + len, size - len);
}

static int measure_row(const struct bench_row *row, const struct program_options *options,
                       struct report_row *ret, struct error *err)
{
	static struct turn turn;
	int r = turn_init(&turn, row, options, err);

	if (r < 0)
		return r;
	turn_launch(&turn);
	r = turn_check(&turn, err);
	if (r == 0)
		r = settle(&turn, err);
	ret->n_runs = options->runs;
	ret->is_tuned = turn.alternatives.n > 1;
	ret->bytes = (double)turn.transform.bytes;
	snprintf(ret->family, sizeof(ret->family), "%s", family_names[turn.plan->family]);
	ret->predicted = turn.chosen->predicted > 0 ? 1 / turn.chosen->predicted : 0;
	ret->predicted_base_ns = copy_speed_ns(&turn_rig.device.copy, turn.transform.bytes);
	explain(&turn, ret->explain, sizeof(ret->explain));
	if (r == 0) {
		time_runs(&turn, ret);
		r = turn_check(&turn, err);
	}
	turn_deinit(&turn);
	return r;
}

/* ---- The program ------------------------------------------------------------------------------------ */

static double bar(const struct bench_row *row)
{
	return row->ragged ? 0.85 : 0.95;
}

static int open_device(const struct program_options *options, struct report *head, struct error *err)
{
	(void)options;
	if (!turn_open(err))
		return STATUS_DEVICE;
	snprintf(head->machine, sizeof(head->machine), "%s, driver %d.%d", turn_rig.device.name,
	         turn_rig.device.driver_version / 1000, turn_rig.device.driver_version % 1000 / 10);
	snprintf(head->engine, sizeof(head->engine), "cuda engine's kernels");
	snprintf(head->base, sizeof(head->base), "copy");
	return 0;
}

int main(int argc, char **argv)
{
	static const struct program program = {
		.name = "bench_gpu",
		.about =
		    "The GPU's kernels against cuMemcpyDtoDAsync: as many bytes, in the same buffers, taking turns.\n"
		    "A row: what is done, element type, source shape, family; GB/s of both (bytes read plus written),\n"
		    "the ratio, what the middle half of the runs' ratios lies between, and the bar. All are medians.\n"
		    "Of rows that are long enough, the plans that the service would try are tried first.\n"
		    "Each row is checked before and after; a wrong byte ends the program with 1.\n",
		.runs = 15,
		.rows = bench_gpu_rows,
		.n_rows = sizeof(bench_gpu_rows) / sizeof(bench_gpu_rows[0]),
		.bar = bar,
		.open = open_device,
		.measure = measure_row,
		.close = turn_close,
	};
	return program_main(&program, argc, argv);
}
