/* What counts as small, and the shortest way through a job that is: no claims, no lock.
 *
 * A few KiB take less time to move than memory takes to answer: all their lines are asked for before anything
 * else is done. A transpose of more reads its source once in the order that it lies in, is made in scratch
 * and copied from there: memory answers three times as fast to one who asks for line after line.
 */
#include "small.h"

#include <string.h>

#include "leaf.h"
#include "memory.h"
#include "move.h"
#include "run.h"

/* Jobs of more slabs, or that reach over more bytes on either side, do not run where they are submitted,
 * however small: the owner's thread may not meet more than a few pages that have to be found first. */
#define MOST_SLABS 64
#define MOST_SPAN  (256 * 1024)

struct small {
	const struct engine_job *job;
	const struct cpu_tuning *tuning;
	char *dst; /* element [0, ..., 0] */
	const char *src;
	char *scratch;
};

static int64_t span(const struct tensor_extent *extent)
{
	return extent->high - extent->low;
}

bool small_is(const struct engine_job *job, const struct cpu_tuning *tuning)
{
	const struct transform *t = job->move.transform;
	return t->bytes <= (uint64_t)tuning->inline_bytes && job->move.plan->n_slabs <= MOST_SLABS &&
	       span(&t->dst_extent) <= MOST_SPAN && span(&t->src_extent) <= MOST_SPAN;
}

static bool is_near(const struct small *small)
{
	const struct transform *t = small->job->move.transform;
	return span(&t->dst_extent) <= small->tuning->fetch_bytes &&
	       span(&t->src_extent) <= small->tuning->fetch_bytes;
}

static void fetch(const struct small *small)
{
	const struct transform *t = small->job->move.transform;
	int64_t n_dst = span(&t->dst_extent), n_src = span(&t->src_extent);
	/* Where most lines between the first byte and the last are needed. */
	if ((uint64_t)(n_dst + n_src) <= 2 * t->bytes)
		small->tuning->isa->fetch(small->dst + t->dst_extent.low, n_dst,
		                          small->src + t->src_extent.low, n_src);
}

static bool has_gaps(const struct transform *t)
{
	return span(&t->dst_extent) != t->count * t->element;
}

static bool is_staged(const struct small *small)
{
	const struct transform *t = small->job->move.transform;
	return !is_near(small) && small->job->move.plan->family == FAMILY_TILE_TRANSPOSE && !has_gaps(t) &&
	       span(&t->dst_extent) <= CPU_SCRATCH;
}

/* Reads a byte of each line of a source without gaps: fetches that are only asked for are forgotten when
 * there are more than a few dozen. */
static void touch(const struct small *small)
{
	const struct transform *t = small->job->move.transform;
	const volatile char *src = small->src + t->src_extent.low;
	int64_t n = span(&t->src_extent);
	if ((uint64_t)(t->count * t->element + n) != t->bytes)
		return;
	for (int64_t at = 0; at < n; at += CPU_LINE)
		(void)src[at];
}

/* A destination without gaps, in the cache, takes a constant's border and all between in one run of stores;
 * the interior then goes over it. */
static bool is_filled_first(const struct transform *t, const struct slabs *slabs)
{
	return t->mode == PAD_MODE_CONSTANT && slabs->interior && slabs->n > 1 && !has_gaps(t);
}

static void fill(const struct small *small, char *dst)
{
	const struct transform *t = small->job->move.transform;
	struct leaf leaf = { .isa = small->tuning->isa,
		             .unit = t->element,
		             .dst = dst,
		             .src = (const char *)t->fill,
		             .rows = 1,
		             .cols = t->count };
	leaf_repeat(&leaf);
}

static void work(void *arg)
{
	const struct small *small = arg;
	const struct engine_job *job = small->job;
	const struct transform *t = job->move.transform;
	bool staged = is_staged(small);
	char *dst = staged ? small->scratch - t->dst_extent.low : small->dst;
	struct move_place place = {
		.dst = dst, .src = small->src, .fill = t->fill, .piece_bytes = small->tuning->piece_most
	};
	struct slabs slabs;
	slabs_init(&slabs, t);
	uint64_t n = slabs.n;
	if (staged)
		touch(small);
	if ((staged || is_near(small)) && is_filled_first(t, &slabs)) {
		fill(small, dst + t->dst_extent.low);
		n = 1;
	}
	for (uint64_t i = 0; i < n; i++) {
		struct nest room;
		struct move move;
		move_init(&move, small->tuning->isa, run_slab(job, &slabs, i, &room), &place);
		for (int64_t piece = 0; piece < move.pieces; piece++)
			move_run(&move, piece, NULL);
	}
	if (staged)
		memcpy(small->dst + t->dst_extent.low, small->scratch, (size_t)span(&t->dst_extent));
}

void small_run(struct engine_job *job, const struct cpu_tuning *tuning, char *scratch)
{
	const struct cpu_memory *dst = cpu_memory(job->move.dst), *src = cpu_memory(job->move.src);
	struct fault_range ranges[2] = { dst->mapped, src->mapped };
	struct small small = { job, tuning, dst->data + job->move.dst_offset,
		               src->data + job->move.src_offset, scratch };
	if (is_near(&small))
		fetch(&small);
	uint64_t start_ns = run_now_ns();
	job->status = fault_guard(ranges, work, &small) ? 0 : STATUS_DEVICE;
	job->ns = run_now_ns() - start_ns;
}
