/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the bounds of a work item, which touches few pages however far apart the elements lie, and how many
 * work items threads hold at once. */
#include "kernels/cpu/run/running_job.h"

#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/plan/cpu_choice.h"
#include "kernels/host/memory.h"
#include "rig.h"
#include "tests/support/plans.h"

/* The most cache lines that a work item touches on one side, and so the most elements if each lies in a line
 * of its own. */
#define MOST_LINES (CPU_PIECE_BYTES / CPU_LINE)

struct work_item_row {
	char name[32];
	enum pad_mode mode;
	int rank;
	int64_t perm[3];
	int64_t src[3], src_strides[3];
	int64_t dst[3], dst_strides[3];
	int64_t before[3];
};

ParameterizedTestParameters(running, work_items_touch_few_lines)
{
	static struct work_item_row rows[] = {
		{ .name = "a page an element, both",
		  .rank = 1,
		  .src = { 262144 },
		  .src_strides = { 4096 },
		  .dst = { 262144 },
		  .dst_strides = { 4096 } },
		{ .name = "a page an element, source",
		  .rank = 1,
		  .src = { 262144 },
		  .src_strides = { 4096 },
		  .dst = { 262144 },
		  .dst_strides = { 1 } },
		{ .name = "a page a pair, transposed",
		  .rank = 2,
		  .perm = { 1, 0 },
		  .src = { 131072, 2 },
		  .src_strides = { 4096, 1 },
		  .dst = { 2, 131072 },
		  .dst_strides = { 131072, 1 } },
		{ .name = "pages, crossed",
		  .rank = 2,
		  .perm = { 1, 0 },
		  .src = { 2048, 2048 },
		  .src_strides = { 1 << 20, 128 },
		  .dst = { 2048, 2048 },
		  .dst_strides = { 1 << 20, 128 } },
		{ .name = "pages, one side crossed",
		  .rank = 2,
		  .perm = { 1, 0 },
		  .src = { 2048, 2048 },
		  .src_strides = { 1 << 20, 128 },
		  .dst = { 2048, 2048 },
		  .dst_strides = { 2048, 1 } },
		{ .name = "rows of 8 bytes",
		  .rank = 2,
		  .perm = { 0, 1 },
		  .src = { 65536, 8 },
		  .src_strides = { 8, 1 },
		  .dst = { 65536, 8 },
		  .dst_strides = { 4096, 1 } },
		{ .name = "wrapped, a page an element",
		  .mode = PAD_MODE_WRAP,
		  .rank = 1,
		  .src = { 50000 },
		  .src_strides = { 1 },
		  .dst = { 200000 },
		  .dst_strides = { 4096 },
		  .before = { 75000 } },
		{ .name = "small subregions, pages",
		  .mode = PAD_MODE_WRAP,
		  .rank = 1,
		  .src = { 100 },
		  .src_strides = { 1 },
		  .dst = { 200000 },
		  .dst_strides = { 4096 },
		  .before = { 1000 } },
		{ .name = "filled, a page an element",
		  .rank = 1,
		  .src = { 1 },
		  .src_strides = { 1 },
		  .dst = { 200000 },
		  .dst_strides = { 4096 },
		  .before = { 199999 } },
	};
	return cr_make_param_array(struct work_item_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static void spec_init(struct transform_spec *spec, const struct work_item_row *row)
{
	struct error err;
	*spec = (struct transform_spec){
		.n_perm = row->rank, .n_before = row->rank, .n_after = row->rank, .mode = row->mode
	};
	for (int d = 0; d < row->rank; d++) {
		spec->perm[d] = row->perm[d];
		spec->before[d] = row->before[d];
		spec->after[d] = row->dst[d] - row->before[d] - row->src[row->perm[d]];
	}
	cr_assert_eq(
	    tensor_layout_init(&spec->dst, DTYPE_UINT8, row->rank, row->dst, row->dst_strides, "dst", &err),
	    0, "%s: %s", row->name, err.message);
	cr_assert_eq(
	    tensor_layout_init(&spec->src, DTYPE_UINT8, row->rank, row->src, row->src_strides, "src", &err),
	    0, "%s: %s", row->name, err.message);
}

/* Returns an upper bound of the elements of a work item, which is not executed. */
static int64_t work_item_elements(const struct work_item *work_item)
{
	int64_t n = 1;
	const struct partition *partition = &work_item->partition;
	if (partition->piece < 0) {
		struct subregions subregions;
		n = 0;
		subregions_init(&subregions, partition->task.transform);
		for (uint64_t i = partition->first; i < partition->end; i++) {
			struct loop_nest nest;
			subregions_get(&subregions, i, CPU_ALIGN, &nest);
			n += loop_nest_count(&nest);
		}
		return n;
	}
	for (int d = 0; d < partition->move.rank; d++)
		n *= partition->move.dim[d].chunk < partition->move.dim[d].n ? partition->move.dim[d].chunk
		                                                             : partition->move.dim[d].n;
	return n;
}

/* No memory is mapped, because work items are made but not executed. */
ParameterizedTest(struct work_item_row *row, running, work_items_touch_few_lines)
{
	struct transform_spec spec;
	struct transform transform;
	struct error err;
	static char address; /* stands for memory that nobody accesses */
	struct host_memory memory = { .data = &address };
	struct cpu_tuning tuning = cpu_tuning_get();
	struct running_job running = { 0 };
	static struct work_item work_item;
	int64_t work_items = 0;
	spec_init(&spec, row);
	cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s: %s", row->name, err.message);
	open_engine(1, 0);
	struct engine_job job = { .move = { .transform = &transform,
		                            .plan = plan_for(engine, &transform, 0, 0),
		                            .dst = &memory.base,
		                            .src = &memory.base } };
	running_job_clear(&job);
	running_job_start(&running, &job, &tuning, 2);
	while (running_job_work_items(&running, 1)) {
		running_job_work_item(&running, &work_item);
		cr_assert_eq(work_item.kind, WORK_ITEM_PARTITION, "%s", row->name);
		int64_t elements = work_item_elements(&work_item);
		cr_assert_leq(elements, MOST_LINES, "%s: work item %ld has %ld elements", row->name,
		              (long)work_items, (long)elements);
		running_job_end_work_item(&running, &work_item, 0);
		work_items++;
	}
	struct engine_job *ended;
	cr_assert(running_job_end(&running, &ended));
	cr_assert_gt(work_items, 1, "%s", row->name);
	close_engine();
}

Test(running, no_more_threads_than_the_job_allows)
{
	static char address;
	static struct work_item work_item[3];
	struct host_memory memory = { .data = &address };
	struct transform_spec spec = { .n_perm = 1, .n_before = 1, .n_after = 1 };
	const int64_t shape[] = { 64 << 20 };
	struct cpu_tuning tuning = cpu_tuning_get();
	struct running_job running = { 0 };
	struct transform transform;
	struct engine_job *ended;
	struct error err;
	cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, shape, NULL, "dst", &err), 0);
	spec.src = spec.dst;
	cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s", err.message);
	open_engine(1, 0);
	struct engine_job job = { .move = { .transform = &transform,
		                            .plan = plan_for(engine, &transform, 0, 0),
		                            .dst = &memory.base,
		                            .src = &memory.base },
		                  .share.host_threads = 2 };
	running_job_clear(&job);
	running_job_start(&running, &job, &tuning, 8);
	cr_assert_eq(running_job_work_items(&running, 8), 2);
	running_job_work_item(&running, &work_item[0]);
	cr_assert_eq(running_job_work_items(&running, 8), 1);
	running_job_work_item(&running, &work_item[1]);
	cr_assert_eq(running_job_work_items(&running, 8), 0);
	cr_assert_not(running_job_end(&running, &ended));
	running_job_end_work_item(&running, &work_item[0], 0);
	cr_assert_eq(running_job_work_items(&running, 8), 1);
	running_job_end_work_item(&running, &work_item[1], 0);
	running_job_stop(&running, STATUS_CANCELED);
	cr_assert(running_job_end(&running, &ended));
	close_engine();
}
