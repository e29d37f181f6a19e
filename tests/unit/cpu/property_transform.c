/* Random transforms through the engine against the oracle, the whole destination with guards and gaps; and
 * that a transpose by a permutation and one by its inverse are the identity.
 *
 *   PROPERTY_CASES  how many random transforms, instead of a share of FULL_CASES
 *   PROPERTY_SEED   the first one's seed, 1 unless given; each case is decided by its own seed alone
 *
 * Case after case goes another way: each instruction set of this machine; run where it is submitted, by
 * way of scratch or not, or by threads in pieces of a few hundred bytes; through the cache or past it.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/run.h"
#include "kernels/cpu/tuning.h"
#include "kernels/engine.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define FULL_CASES   1000000
#define DEFAULT_SEED 1
/* Transposes there and back: one for so many transforms, since they are dearer. */
#define INVERSE_SHARE 10
#define MOST_FAILURES 10

/* A tensor with its guards, as oracle_case_prepare allocates them, always fits. */
#define REGION_BYTES (4 << 20)

enum way { WAY_INLINE, WAY_INLINE_STAGED, WAY_PIECES, WAY_PIECES_STREAMED, WAYS };

static const char *const way_names[WAYS] = { "inline", "inline, staged", "pieces", "pieces, streamed" };

/* One engine for each way and instruction set, with the memory that its jobs use. */
struct bench {
	const char *isa;
	enum way way;
	int wakeups;
	struct engine *engine;
	struct engine_owner owner;
	struct engine_stream *stream;
	struct engine_memory *dst, *src;
};

static bool finished;

static void die(const char *what)
{
	fprintf(stderr, "property_transform: %s\n", what);
	exit(1);
}

static void wake(void *arg)
{
	uint64_t one = 1;
	if (write(*(int *)arg, &one, sizeof(one)) < 0)
		die("write");
}

static void on_done(struct engine_job *job)
{
	(void)job;
	finished = true;
}

static struct engine_memory *new_memory(struct engine *engine)
{
	struct engine_memory *memory;
	struct error err;
	struct engine_export made;
	if (engine_create(engine, REGION_KIND_MEMFD, REGION_BYTES, &memory, &made, &err) < 0)
		die(err.message);
	close(made.fd);
	return memory;
}

static void bench_open(struct bench *bench, const struct cpu_isa *isa, enum way way)
{
	struct error err;
	struct cpu_tuning tuning = { .isa = isa,
		                     .inline_bytes = way <= WAY_INLINE_STAGED ? INT64_MAX : 0,
		                     .fetch_bytes = way == WAY_INLINE ? INT64_MAX : 0,
		                     .piece_least = 256,
		                     .piece_most = 2048,
		                     .stream_bytes = way == WAY_PIECES_STREAMED ? 0 : INT64_MAX };
	struct engine_options options = { .threads = 2, .wake = wake, .wake_arg = &bench->wakeups };
	cpu_tuning_force(&tuning);
	bench->isa = isa->name;
	bench->way = way;
	bench->wakeups = eventfd(0, EFD_CLOEXEC);
	if (engine_cpu_open(&bench->engine, &options, &err) < 0)
		die(err.message);
	cpu_tuning_force(NULL);
	engine_owner_init(&bench->owner);
	bench->stream = engine_stream_new(bench->engine, &bench->owner);
	bench->dst = new_memory(bench->engine);
	bench->src = new_memory(bench->engine);
}

static void bench_close(struct bench *bench)
{
	engine_unmap(bench->engine, bench->dst);
	engine_unmap(bench->engine, bench->src);
	engine_stream_free(bench->engine, bench->stream);
	engine_owner_deinit(&bench->owner);
	engine_close(bench->engine);
	close(bench->wakeups);
}

/* dst and src: bytes of element [0, ..., 0] in the bench's memories. */
static int run(struct bench *bench, const struct transform *transform, uint64_t dst, uint64_t src)
{
	struct plan plan;
	plan_init(&plan, transform, &bench->engine->facts);
	struct engine_job job = { .move = { .transform = transform,
		                            .plan = &plan,
		                            .dst = bench->dst,
		                            .src = bench->src,
		                            .dst_offset = dst,
		                            .src_offset = src },
		                  .on_done = on_done };
	finished = false;
	engine_submit(bench->engine, bench->stream, &job);
	while (!finished) {
		uint64_t count;
		if (read(bench->wakeups, &count, sizeof(count)) < 0)
			die("read");
		engine_reap(bench->engine);
	}
	return job.status;
}

/* ---- Against the oracle ----------------------------------------------------------------------------- */

static bool complain(const struct bench *bench, const struct oracle_case *c, const char *what)
{
	char text[1024];
	oracle_case_text(c, text, sizeof(text));
	fprintf(stderr, "property_transform: %s, %s: %s: %s\n", bench->isa, way_names[bench->way], what,
	        text);
	return false;
}

static bool try_case(struct bench *bench, struct oracle_case *c)
{
	struct transform transform;
	struct error err;
	char text[1024];
	size_t dst_bytes = c->dst_size + 2 * ORACLE_GUARD, src_bytes = c->src_size + 2 * ORACLE_GUARD;
	if (dst_bytes > REGION_BYTES || src_bytes > REGION_BYTES)
		return complain(bench, c, "the case is larger than a region");
	if (transform_init(&transform, &c->spec, &err) < 0)
		return complain(bench, c, err.message);

	struct tensor_place dst = { .memory = { bench->dst->memory[0], bench->dst->memory[1] },
		                    .base = bench->dst->base + ORACLE_GUARD,
		                    .offset = c->dst_offset,
		                    .size = c->dst_size };
	struct tensor_place src = { .memory = { bench->src->memory[0], bench->src->memory[1] },
		                    .base = bench->src->base + ORACLE_GUARD,
		                    .offset = c->src_offset,
		                    .size = c->src_size };
	if (transform_check_places(&transform, &dst, &src, &err) < 0)
		return complain(bench, c, err.message);

	memcpy(cpu_memory(bench->dst)->data, c->dst, dst_bytes);
	memcpy(cpu_memory(bench->src)->data, c->src, src_bytes);
	int status = run(bench, &transform, ORACLE_GUARD + c->dst_offset, ORACLE_GUARD + c->src_offset);
	if (status < 0)
		return complain(bench, c, status_name(status));
	if (memcmp(cpu_memory(bench->src)->data, c->src, src_bytes) != 0)
		return complain(bench, c, "the source was written");
	memcpy(c->dst, cpu_memory(bench->dst)->data, dst_bytes);
	if (oracle_case_check(c, text, sizeof(text)))
		return true;
	fprintf(stderr, "property_transform: %s, %s: %s\n", bench->isa, way_names[bench->way], text);
	return false;
}

static bool try_seed(struct bench *bench, uint64_t seed)
{
	struct oracle_case c;
	oracle_random_case(seed, &c);
	if (!oracle_case_prepare(&c))
		die("out of memory");
	bool good = try_case(bench, &c);
	oracle_case_free(&c);
	return good;
}

/* ---- There and back --------------------------------------------------------------------------------- */

static void transpose_of(struct transform *ret, enum dtype dtype, int rank, const int64_t *shape,
                         const int64_t *perm)
{
	struct transform_spec spec = { .n_perm = rank, .n_before = -1, .n_after = -1 };
	struct error err;
	int64_t permuted[TENSOR_MAX_RANK];
	for (int d = 0; d < rank; d++) {
		spec.perm[d] = perm[d];
		permuted[d] = shape[perm[d]];
	}
	if (tensor_layout_init(&spec.src, dtype, rank, shape, NULL, "src", &err) < 0 ||
	    tensor_layout_init(&spec.dst, dtype, rank, permuted, NULL, "dst", &err) < 0 ||
	    transform_init(ret, &spec, &err) < 0)
		die(err.message);
}

/* src to dst by a random permutation, back over a cleared src by its inverse. */
static bool try_inverse(struct bench *bench, uint64_t seed)
{
	uint64_t state = seed;
	int rank = (int)oracle_between(&state, 1, 5);
	int64_t shape[TENSOR_MAX_RANK], permuted[TENSOR_MAX_RANK];
	int64_t perm[TENSOR_MAX_RANK], inverse[TENSOR_MAX_RANK];
	enum dtype dtype = (enum dtype)oracle_between(&state, 0, DTYPE_COUNT - 1);
	int64_t room = REGION_BYTES / TENSOR_MAX_ELEMENT >> oracle_between(&state, 0, 8);
	for (int d = 0; d < rank; d++) {
		int64_t most = d == rank - 1 || room < 64 ? room : 64;
		shape[d] = oracle_between(&state, 1, most < 600 ? most : 600);
		room /= shape[d];
		perm[d] = d;
	}
	for (int d = rank - 1; d > 0; d--) {
		int64_t other = oracle_between(&state, 0, d), kept = perm[d];
		perm[d] = perm[other];
		perm[other] = kept;
	}
	for (int d = 0; d < rank; d++) {
		permuted[d] = shape[perm[d]];
		inverse[perm[d]] = d;
	}

	struct transform there, back;
	transpose_of(&there, dtype, rank, shape, perm);
	transpose_of(&back, dtype, rank, permuted, inverse);
	size_t size = (size_t)there.count * there.element;
	char *src = cpu_memory(bench->src)->data, *start = malloc(size);
	if (!start)
		die("out of memory");
	for (size_t i = 0; i + 8 <= size; i += 8) {
		uint64_t bits = oracle_random(&state);
		memcpy(src + i, &bits, 8);
	}
	memcpy(start, src, size);
	int status = run(bench, &there, 0, 0);
	memset(src, 0, size);
	struct engine_memory *dst = bench->dst;
	bench->dst = bench->src;
	bench->src = dst;
	status |= run(bench, &back, 0, 0);
	bool good = status == 0 && memcmp(cpu_memory(bench->dst)->data, start, size) == 0;
	free(start);
	if (!good)
		fprintf(stderr, "property_transform: seed %" PRIu64 " (%s, %s): not the identity\n", seed,
		        bench->isa, way_names[bench->way]);
	return good;
}

/* ---- Main ------------------------------------------------------------------------------------------- */

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

/* n tries, each with a seed of its own, in turn on each of the benches; what says what has to hold. */
static void try_all(bool (*try)(struct bench *bench, uint64_t seed), struct bench *bench, size_t n_benches,
                    uint64_t n, uint64_t seed, const char *what)
{
	uint64_t start_ns = run_now_ns(), i = 0;
	int failed = 0;
	for (; i < n && failed < MOST_FAILURES; i++)
		failed += !try(&bench[(seed + i) % n_benches], seed + i);
	tap_case(failed == 0, "row 13: %s", what);
	tap_note("%" PRIu64 " cases from seed %" PRIu64 " in %.1f s, %d failed", i, seed,
	         (double)(run_now_ns() - start_ns) / 1e9, failed);
}

int main(void)
{
	struct bench bench[CPU_ISA_LEVELS * WAYS];
	size_t n = 0;
	uint64_t cases = number_from("PROPERTY_CASES", (uint64_t)tap_portion(FULL_CASES));
	uint64_t seed = number_from("PROPERTY_SEED", DEFAULT_SEED);
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (int way = 0; way < WAYS && cpu_isa_get(level); way++)
			bench_open(&bench[n++], cpu_isa_get(level), way);
	try_all(try_seed, bench, n, cases, seed,
	        "a random transform is the oracle's, guards and source intact");
	try_all(try_inverse, bench, n, cases / INVERSE_SHARE, seed,
	        "a transpose and its inverse are the identity");
	while (n > 0)
		bench_close(&bench[--n]);
	return tap_end();
}
