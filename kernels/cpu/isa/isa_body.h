/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of one instruction set. Included by isa_<name>.c, which first defines these macros:
 *
 *   TARGET                  the attribute of the functions; empty if the compiler targets the set anyway
 *   VECTOR, WIDTH           the vector type and its bytes; a vector has WIDTH / 16 lanes of 16 bytes
 *   GATHER(p, lane_pitch)   16 bytes from each of p, p + lane_pitch, ... , one for each lane
 *   LANES(p, offset, step)  16 bytes from each of p + offset[0], p + offset[step], ... , one for each lane
 *   STORE(p, v)             stores to any address
 *   STREAM(p, v)            stores to an aligned address, bypassing the cache
 *   FENCE()                 orders earlier STREAMs before later stores
 *   SHUFFLE(v, mask)        within each lane: byte i becomes byte mask[i] of v, or 0 if mask[i] is 0x80
 *   SHUFFLE16(v, mask)      the same for a vector of 16 bytes
 *   LOW1(a, b) .. HIGH8     within each lane: interleaves the low or high halves by 1, 2, 4, 8 bytes
 *   CONVERT_WIDTH           bytes of a vector of lanes of numbers (isa_convert.h)
 *   ISA, ISA_NAME           the table to be defined, and its name
 *
 * A tile of N = 16 / element columns is transposed lane by lane: register q holds, in lane l, 16 bytes of row
 * l * N + q. log2(N) rounds of interleaving register i with i + N / 2 transpose each lane. Register c then
 * holds WIDTH bytes of row c of dst, because the bytes of lane l + 1 follow those of lane l.
 *
 *   N = 4, one lane    a0 a1 a2 a3      a0 c0 a1 c1      a0 b0 c0 d0
 *                      b0 b1 b2 b3  ->  a2 c2 a3 c3  ->  a1 b1 c1 d1
 *                      c0 c1 c2 c3      b0 d0 b1 d1      a2 b2 c2 d2
 *                      d0 d1 d2 d3      b2 d2 b3 d3      a3 b3 c3 d3
 */
#include <string.h>

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

static inline TARGET vec16 load16(const char *p)
{
	vec16 v;
	memcpy(&v, p, 16);
	return v;
}

static inline TARGET VECTOR load_vector(const char *p)
{
	VECTOR v;
	memcpy(&v, p, sizeof(v));
	return v;
}

static inline TARGET void store16(char *p, vec16 v)
{
	memcpy(p, &v, 16);
}

/* These macros interleave the low or high halves of two 16-byte vectors, by elements of 1, 2, 4 or 8
 * bytes. */
#ifdef __clang__
#define MERGE(type, a, b, ...) ((vec16)__builtin_shufflevector((type)(a), (type)(b), __VA_ARGS__))
#else
#define MERGE(type, a, b, ...) ((vec16)__builtin_shuffle((type)(a), (type)(b), (type){ __VA_ARGS__ }))
#endif
typedef uint16_t vec8x2 __attribute__((vector_size(16)));
typedef uint32_t vec4x4 __attribute__((vector_size(16)));
typedef uint64_t vec2x8 __attribute__((vector_size(16)));
#define MERGE_LOW1(a, b)  MERGE(vec16, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define MERGE_HIGH1(a, b) MERGE(vec16, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define MERGE_LOW2(a, b)  MERGE(vec8x2, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define MERGE_HIGH2(a, b) MERGE(vec8x2, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define MERGE_LOW4(a, b)  MERGE(vec4x4, a, b, 0, 4, 1, 5)
#define MERGE_HIGH4(a, b) MERGE(vec4x4, a, b, 2, 6, 3, 7)
#define MERGE_LOW8(a, b)  MERGE(vec2x8, a, b, 0, 2)
#define MERGE_HIGH8(a, b) MERGE(vec2x8, a, b, 1, 3)

/* Does one round of interleaving on the n registers v[0 .. n), reading them from a copy t. */
#define ROUND(T, n, low, high)                                                                      \
	do {                                                                                        \
		T t[n];                                                                             \
		UNROLL for (int i = 0; i < (n); i++) t[i] = v[i];                                   \
		UNROLL for (int i = 0; i < (n); i++) v[i] =                                         \
		    i % 2 ? high(t[i / 2], t[i / 2 + (n) / 2]) : low(t[i / 2], t[i / 2 + (n) / 2]); \
	} while (0)

#define ROUNDS_16(T, p) /* nothing to do, because a lane is an element */
#define ROUNDS_8(T, p)  ROUND(T, 2, p##LOW8, p##HIGH8)
#define ROUNDS_4(T, p)                  \
	ROUND(T, 4, p##LOW4, p##HIGH4); \
	ROUND(T, 4, p##LOW4, p##HIGH4)
#define ROUNDS_2(T, p)                  \
	ROUND(T, 8, p##LOW2, p##HIGH2); \
	ROUND(T, 8, p##LOW2, p##HIGH2); \
	ROUND(T, 8, p##LOW2, p##HIGH2)
#define ROUNDS_1(T, p)                   \
	ROUND(T, 16, p##LOW1, p##HIGH1); \
	ROUND(T, 16, p##LOW1, p##HIGH1); \
	ROUND(T, 16, p##LOW1, p##HIGH1); \
	ROUND(T, 16, p##LOW1, p##HIGH1)

/* Defines the transpose of one group: 16 bytes from each of CPU_LINE / element rows of src. It writes a whole
 * line to each row of dst. put is STORE or STREAM. */
#define DEFINE_TILE(function, element, put)                                                                  \
	static inline TARGET void function(char *dst, int64_t dst_pitch, const char *src, int64_t src_pitch) \
	{                                                                                                    \
		enum { N = 16 / (element) };                                                                 \
		UNROLL for (int part = 0; part < CPU_LINE / WIDTH; part++)                                   \
		{                                                                                            \
			const char *rows = src + part * (WIDTH / (element)) * src_pitch;                     \
			VECTOR v[N];                                                                         \
			UNROLL for (int i = 0; i < N; i++) v[i] =                                            \
			    GATHER(rows + i * src_pitch, N * src_pitch);                                     \
			ROUNDS_##element(VECTOR, );                                                          \
			UNROLL for (int i = 0; i < N; i++) put(dst + i * dst_pitch + part * WIDTH, v[i]);    \
		}                                                                                            \
	}

/* Returns the address of the block to prefetch, which will be read `ahead` blocks after the one at src. It is
 * in the same strip, whose rows have `left` more bytes, or at the start of the strip at next. If that would
 * be needed but next is NULL, returns src. */
static inline const char *fetch_place(const char *src, int64_t left, int64_t ahead, const char *next)
{
	if (left > ahead * CPU_LINE || !next)
		return src + (left > ahead * CPU_LINE ? ahead * CPU_LINE : 0);
	return next + ahead * CPU_LINE - left;
}

/* Number of blocks by which prefetching is ahead of reading. The fewer rows a block has, the more blocks, so
 * that the number of lines in flight is about the same. */
#define AHEAD(element) ((element) < 4 ? 2 : (element) < 16 ? (element) : 8)

/* Defines a cpu_strip_fn (isa.h). It copies four groups at a time to a block that holds one line of each row
 * and transposes them from there, because rows that lie a power of two apart would evict each other from the
 * cache between one group and the next. A later block is prefetched at the same time, because there are too
 * many rows for the hardware prefetcher. */
#define DEFINE_STRIP(function, tile, element)                                                              \
	static TARGET void function(char *dst, int64_t dst_pitch, const char *src, int64_t src_pitch,      \
	                            int64_t groups, const char *next)                                      \
	{                                                                                                  \
		enum { N = 16 / (element), ROWS = CPU_LINE / (element) };                                  \
		char block[ROWS * CPU_LINE] __attribute__((aligned(CPU_LINE)));                            \
		for (; groups >= 4 && N > 1; groups -= 4, src += CPU_LINE, dst += 4 * N * dst_pitch) {     \
			const char *later = fetch_place(src, groups / 4 * CPU_LINE, AHEAD(element), next); \
			for (int64_t r = 0; r < ROWS; r++) {                                               \
				__builtin_prefetch(later + r * src_pitch, 0, 2);                           \
				memcpy(block + r * CPU_LINE, src + r * src_pitch, CPU_LINE);               \
			}                                                                                  \
			for (int64_t i = 0; i < 4; i++)                                                    \
				tile(dst + i * N * dst_pitch, dst_pitch, block + i * 16, CPU_LINE);        \
		}                                                                                          \
		for (; groups > 0; groups--, src += 16, dst += N * dst_pitch)                              \
			tile(dst, dst_pitch, src, src_pitch);                                              \
	}

#define DEFINE_NARROW(element)                                                                   \
	static TARGET void narrow_##element(char *dst, int64_t dst_pitch, const char *src,       \
	                                    int64_t src_pitch, int64_t groups, const char *next) \
	{                                                                                        \
		enum { N = 16 / (element) };                                                     \
		for (int64_t g = 0; g < groups; g++, src += 16, dst += N * dst_pitch) {          \
			vec16 v[N];                                                              \
			if (g % 4 == 0) {                                                        \
				const char *later =                                              \
				    fetch_place(src, (groups - g) * 16, AHEAD(element), next);   \
				for (int i = 0; i < N; i++)                                      \
					__builtin_prefetch(later + i * src_pitch, 0, 2);         \
			}                                                                        \
			UNROLL for (int i = 0; i < N; i++) v[i] = load16(src + i * src_pitch);   \
			ROUNDS_##element(vec16, MERGE_);                                         \
			UNROLL for (int i = 0; i < N; i++) store16(dst + i * dst_pitch, v[i]);   \
		}                                                                                \
	}

/* Prefetches the next n of the lines that *fetch names. */
static inline TARGET void fetch_some(struct cpu_fetch *fetch, int64_t n)
{
	for (; n > 0 && fetch->i < fetch->n; n--) {
		const char *run = fetch->src + fetch->offset[fetch->i];
		int64_t last = fetch->bytes - 1;
		__builtin_prefetch(run + (fetch->at < last ? fetch->at : last), 0, 2);
		fetch->at += CPU_LINE;
		if (fetch->at >= last + CPU_LINE) {
			fetch->at = 0;
			fetch->i++;
		}
	}
}

/* Defines the transposes of one group of a panel (cpu_panel_fn): 16 bytes of each of several columns.
 * panel_tile writes a line to each row of dst, and panel_narrow 16 bytes. */
#define DEFINE_PANEL_TILE(element)                                                                       \
	static inline TARGET void panel_tile_##element(char *dst, const int64_t *row, const char *src,   \
	                                               const int64_t *col)                               \
	{                                                                                                \
		enum { N = 16 / (element) };                                                             \
		UNROLL for (int part = 0; part < CPU_LINE / WIDTH; part++)                               \
		{                                                                                        \
			const int64_t *c = col + part * (WIDTH / (element));                             \
			VECTOR v[N];                                                                     \
			UNROLL for (int i = 0; i < N; i++) v[i] = LANES(src, c + i, N);                  \
			ROUNDS_##element(VECTOR, );                                                      \
			UNROLL for (int i = 0; i < N; i++) STORE(dst + row[i] + part * WIDTH, v[i]);     \
		}                                                                                        \
	}                                                                                                \
	static inline TARGET void panel_narrow_##element(char *dst, const int64_t *row, const char *src, \
	                                                 const int64_t *col)                             \
	{                                                                                                \
		enum { N = 16 / (element) };                                                             \
		vec16 v[N];                                                                              \
		UNROLL for (int i = 0; i < N; i++) v[i] = load16(src + col[i]);                          \
		ROUNDS_##element(vec16, MERGE_);                                                         \
		UNROLL for (int i = 0; i < N; i++) store16(dst + row[i], v[i]);                          \
	}

/* Defines a cpu_panel_fn, which moves its panel in strips of columns. At the edges, tiles overlap the ones
 * before them. */
#define DEFINE_PANEL(element)                                                                 \
	DEFINE_PANEL_TILE(element)                                                            \
	static TARGET void panel_##element(char *dst, const int64_t *row, const char *src,    \
	                                   const int64_t *col, int64_t rows, int64_t cols,    \
	                                   struct cpu_fetch *fetch)                           \
	{                                                                                     \
		enum { N = 16 / (element), WIDE = CPU_LINE / (element) };                     \
		for (int64_t c = 0, n; c < cols; c += n) {                                    \
			n = cols - c >= WIDE ? WIDE : N;                                      \
			c = cols - c < n ? cols - n : c;                                      \
			for (int64_t at = 0, r; at < rows; at += N) {                         \
				r = rows - at < N ? rows - N : at;                            \
				if (n == WIDE)                                                \
					panel_tile_##element(dst + c * (element), row + r,    \
					                     src + r * (element), col + c);   \
				else                                                          \
					panel_narrow_##element(dst + c * (element), row + r,  \
					                       src + r * (element), col + c); \
				fetch_some(fetch, (n + 3) / 4);                               \
			}                                                                     \
		}                                                                             \
	}

/* Copies n < CPU_LINE bytes to dst in groups of 16. If n is no multiple of 16, the last group has the 16
 * bytes that end at src + n: it repeats bytes of the group before it or, if n < 16, begins before src. */
static inline TARGET void copy_groups(char *dst, const char *src, int64_t n)
{
	for (int64_t g = 0; g < n; g += 16)
		store16(dst + g, load16(src + (n - g < 16 ? n - 16 : g)));
}

/* Defines a cpu_far_panel_fn, for a panel that is in no cache. One line of each column at a time is copied to
 * a block, because columns that lie a power of two apart would evict each other from the cache before their
 * lines are used up. Later lines are prefetched at the same time, because there are too many columns for the
 * hardware prefetcher. */
#define DEFINE_FAR_PANEL(element)                                                                          \
	static TARGET void far_panel_##element(char *dst, const int64_t *row, const char *src,             \
	                                       const int64_t *col, int64_t rows, int64_t cols,             \
	                                       const char *next)                                           \
	{                                                                                                  \
		enum {                                                                                     \
			N = 16 / (element),                                                                \
			WIDE = CPU_LINE / (element),                                                       \
			AHEAD_BYTES = AHEAD(element) * CPU_LINE                                            \
		};                                                                                         \
		static const int64_t line[64] = {                                                          \
			L8(0), L8(8), L8(16), L8(24), L8(32), L8(40), L8(48), L8(56)                       \
		};                                                                                         \
		char block[WIDE * CPU_LINE] __attribute__((aligned(CPU_LINE)));                            \
		int64_t bytes = rows * (element);                                                          \
		for (int64_t c = 0, n; c < cols; c += n) {                                                 \
			n = cols - c >= WIDE ? WIDE : N;                                                   \
			c = cols - c < n ? cols - n : c;                                                   \
			bool more = c + 2 * n <= cols;                                                     \
			const int64_t *next_col = more ? col + c + n : col;                                \
			const char *next_src = more ? src : next;                                          \
			for (int64_t at = 0; at < bytes; at += CPU_LINE) {                                 \
				int64_t left = bytes - at;                                                 \
				if (left > AHEAD_BYTES)                                                    \
					for (int64_t i = 0; i < n; i++)                                    \
						__builtin_prefetch(src + at + AHEAD_BYTES + col[c + i], 0, \
						                   2);                                     \
				else if (next_src) {                                                       \
					int64_t later = at + AHEAD_BYTES - bytes;                          \
					later = later < bytes ? later : at;                                \
					for (int64_t i = 0; i < n; i++)                                    \
						__builtin_prefetch(next_src + later + next_col[i], 0, 2);  \
				}                                                                          \
				if (left >= CPU_LINE)                                                      \
					for (int64_t i = 0; i < n; i++)                                    \
						memcpy(block + i * CPU_LINE, src + at + col[c + i],        \
						       CPU_LINE);                                          \
				else                                                                       \
					for (int64_t i = 0; i < n; i++)                                    \
						copy_groups(block + i * CPU_LINE, src + at + col[c + i],   \
						            left);                                         \
				for (int64_t g = 0; g < CPU_LINE && g < left; g += 16) {                   \
					int64_t from = left - g < 16 ? left - 16 : g;                      \
					const int64_t *r = row + (at + from) / (element);                  \
					char *to = dst + c * (element);                                    \
					if (n == WIDE)                                                     \
						panel_tile_##element(to, r, block + g, line);              \
					else                                                               \
						panel_narrow_##element(to, r, block + g, line);            \
				}                                                                          \
			}                                                                                  \
		}                                                                                          \
	}

/* Lists the offsets of eight consecutive lines. */
#define L8(i)                                                                                     \
	(i) * 64, ((i) + 1) * 64, ((i) + 2) * 64, ((i) + 3) * 64, ((i) + 4) * 64, ((i) + 5) * 64, \
	    ((i) + 6) * 64, ((i) + 7) * 64

static inline TARGET vec16 shuffle_step(const char *src, const struct cpu_shuffle_step *step)
{
	return SHUFFLE16(load16(src + step->offset), load16((const char *)step->mask));
}

#define DEFINE_SHUFFLE(name, windows, more)                                                              \
	static TARGET void shuffle_##name(char *dst, const char *src, const struct cpu_shuffle *shuffle) \
	{                                                                                                \
		const struct cpu_shuffle_step *step = shuffle->step;                                     \
		const char *fill = (const char *)shuffle->fill;                                          \
		int64_t left = shuffle->bytes;                                                           \
		for (; left > 0; left -= 16, dst += 16, step += (windows)) {                             \
			vec16 v = shuffle_step(src, step);                                               \
			UNROLL for (int i = 1; i < (windows); i++) v |= shuffle_step(src, step + i);     \
			more;                                                                            \
			store16(left < 16 ? dst + left - 16 : dst, v);                                   \
		}                                                                                        \
		(void)fill;                                                                              \
	}
#define ADD_FILL v |= load16(fill), fill += 16
DEFINE_SHUFFLE(1, 1, )
DEFINE_SHUFFLE(2, 2, )
DEFINE_SHUFFLE(3, 3, )
DEFINE_SHUFFLE(4, 4, )
DEFINE_SHUFFLE(filled_1, 1, ADD_FILL)
DEFINE_SHUFFLE(filled_2, 2, ADD_FILL)

static TARGET void shuffle_any(char *dst, const char *src, const struct cpu_shuffle *shuffle)
{
	const struct cpu_shuffle_step *step = shuffle->step;
	int64_t last = shuffle->bytes - 16, windows = shuffle->windows;
	for (int64_t at = 0; at < shuffle->bytes; at += 16) {
		vec16 v = shuffle_step(src, step++);
		for (int64_t i = 1; i < windows; i++)
			v |= shuffle_step(src, step++);
		if (shuffle->fill)
			v |= load16((const char *)shuffle->fill + at);
		store16(dst + (at < last ? at : last), v);
	}
}

static TARGET void shuffle(char *dst, const char *src, const struct cpu_shuffle *shuffle)
{
	static void (*const few[])(char *, const char *, const struct cpu_shuffle *) = { shuffle_1, shuffle_2,
		                                                                         shuffle_3,
		                                                                         shuffle_4 };
	if (shuffle->windows > 4 || (shuffle->fill && shuffle->windows > 2))
		shuffle_any(dst, src, shuffle);
	else if (!shuffle->fill)
		few[shuffle->windows - 1](dst, src, shuffle);
	else if (shuffle->windows == 1)
		shuffle_filled_1(dst, src, shuffle);
	else
		shuffle_filled_2(dst, src, shuffle);
}

/* Loads 16 bytes, or as many as there are before `end`; the others become 0. */
static inline TARGET vec16 load_before(const char *p, const char *end)
{
	vec16 v = { 0 };
	if (end - p >= 16)
		return load16(p);
	memcpy(&v, p, (size_t)(end - p));
	return v;
}

static inline TARGET void store_part(char *p, vec16 v, int64_t n)
{
	char block[16];
	int64_t at = 0;
	if (n == 16) {
		store16(p, v);
		return;
	}
	memcpy(block, &v, 16);
	UNROLL for (int part = 8; part > 0; part /= 2) if (n & part)
	{
		memcpy(p + at, block + at, (size_t)part);
		at += part;
	}
}

/* Returns where the square after the one at `at` begins, in squares of side n that together end at `end`. The
 * last square may overlap the one before it. */
static inline int64_t next_square(int64_t at, int64_t n, int64_t end)
{
	return at + n < end && at + 2 * n > end ? end - n : at + n;
}

/* Defines a cpu_tables_fn. It transposes squares whose sides have 16 bytes, or fewer if the rows or columns
 * are fewer. */
#define DEFINE_TABLES(element)                                                                               \
	static TARGET void tables_part_##element(char *dst, const int32_t *dst_at, int64_t rows,             \
	                                         const char *src, const int32_t *src_at, int64_t cols,       \
	                                         const char *end)                                            \
	{                                                                                                    \
		enum { N = 16 / (element) };                                                                 \
		int64_t n_rows = rows < N ? rows : N, n_cols = cols < N ? cols : N;                          \
		for (int64_t c = 0; c < cols; c = next_square(c, N, cols))                                   \
			for (int64_t r = 0; r < rows; r = next_square(r, N, rows)) {                         \
				const char *from = src + r * (element);                                      \
				char *to = dst + c * (element);                                              \
				vec16 v[N];                                                                  \
				UNROLL for (int i = 0; i < N; i++) v[i] =                                    \
				    i < n_cols ? load_before(from + src_at[c + i], end) : (vec16){ 0 };      \
				ROUNDS_##element(vec16, MERGE_);                                             \
				UNROLL for (int i = 0; i < N; i++) if (i < n_rows)                           \
				    store_part(to + dst_at[r + i], v[i], n_cols * (element));                \
			}                                                                                    \
	}                                                                                                    \
	static TARGET void tables_##element(char *dst, const int32_t *dst_at, int64_t rows, const char *src, \
	                                    const int32_t *src_at, int64_t cols, const char *end)            \
	{                                                                                                    \
		enum { N = 16 / (element) };                                                                 \
		if (rows < N || cols < N) {                                                                  \
			tables_part_##element(dst, dst_at, rows, src, src_at, cols, end);                    \
			return;                                                                              \
		}                                                                                            \
		for (int64_t c = 0; c < cols; c = next_square(c, N, cols))                                   \
			for (int64_t r = 0; r < rows; r = next_square(r, N, rows)) {                         \
				const char *from = src + r * (element);                                      \
				char *to = dst + c * (element);                                              \
				vec16 v[N];                                                                  \
				UNROLL for (int i = 0; i < N; i++) v[i] = load16(from + src_at[c + i]);      \
				ROUNDS_##element(vec16, MERGE_);                                             \
				UNROLL for (int i = 0; i < N; i++) store16(to + dst_at[r + i], v[i]);        \
			}                                                                                    \
	}

#define FLIP_1(v)  MERGE(vec16, v, v, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define FLIP_2(v)  MERGE(vec8x2, v, v, 7, 6, 5, 4, 3, 2, 1, 0)
#define FLIP_4(v)  MERGE(vec4x4, v, v, 3, 2, 1, 0)
#define FLIP_8(v)  MERGE(vec2x8, v, v, 1, 0)
#define FLIP_16(v) (v)

#define DEFINE_REVERSE(element)                                                     \
	static TARGET void reverse_##element(char *dst, const char *src, int64_t n) \
	{                                                                           \
		enum { N = 16 / (element) };                                        \
		for (; n >= N; n -= N, dst += 16, src -= 16)                        \
			store16(dst, FLIP_##element(load16(src + (element)-16)));   \
		for (; n > 0; n--, dst += (element), src -= (element))              \
			memcpy(dst, src, element);                                  \
	}

#define DEFINE_ALL(element)                                                  \
	DEFINE_TILE(tile_##element, element, STORE)                          \
	DEFINE_TILE(tile_stream_##element, element, STREAM)                  \
	DEFINE_STRIP(strip_##element, tile_##element, element)               \
	DEFINE_STRIP(strip_stream_##element, tile_stream_##element, element) \
	DEFINE_NARROW(element)                                               \
	DEFINE_PANEL(element)                                                \
	DEFINE_FAR_PANEL(element)                                            \
	DEFINE_REVERSE(element)

DEFINE_TABLES(1)
DEFINE_TABLES(2)
DEFINE_TABLES(4)
DEFINE_TABLES(8)

DEFINE_ALL(1)
DEFINE_ALL(2)
DEFINE_ALL(4)
DEFINE_ALL(8)
DEFINE_ALL(16)

/* ---- Pixels of a few channels ----------------------------------------------------------------------- */

/* A pixel of `channels` elements, at most 16 bytes, is widened to C elements, the next power of two. C
 * registers, with N = 16 / element elements a lane, then hold N consecutive pixels. One round (as in a
 * transpose) moves element j of that sequence to position 2 j, or in its second half to 2 j + 1 - C N.
 * log2(N) rounds bring [pixel][channel] to [channel][pixel], and log2(C) rounds bring it back. Pixels are
 * widened after loading and narrowed before storing, 16 bytes at a time, by a shuffle. Each store also
 * overwrites the start of the next pixels, which are stored later. */

/* Returns the mask that widens the 16 / room pixels of a lane from `pixel` bytes to `room` bytes each, or, if
 * not wider, narrows them back to `pixel` bytes. */
static inline vec16 pixel_mask(uint32_t pixel, uint32_t room, bool wider)
{
	vec16 mask;
	for (uint32_t b = 0; b < 16; b++) {
		uint32_t from = wider ? pixel : room, to = wider ? room : pixel;
		uint32_t at = b / to * from + b % to;
		mask[b] = b % to < from && b / to < 16 / room ? (uint8_t)at : 0x80;
	}
	return mask;
}

#define PIXEL_ROUNDS(element, c, n) \
	UNROLL for (int round = 1; round < (n); round *= 2) ROUND(VECTOR, c, LOW##element, HIGH##element)

/* Defines a function that writes a line to each row of dst, from CPU_LINE / element pixels. The last 16 bytes
 * that it reads may reach beyond these pixels. */
#define DEFINE_SPLIT_BLOCK(element, C)                                                         \
	static inline TARGET void split_block_##element##_##C(                                 \
	    char *dst, const int64_t *row, const char *src, int64_t channels, VECTOR mask)     \
	{                                                                                      \
		enum { N = 16 / (element) };                                                   \
		int64_t group = N / (C)*channels * (element);                                  \
		UNROLL for (int part = 0; part < CPU_LINE / WIDTH; part++)                     \
		{                                                                              \
			VECTOR v[C];                                                           \
			UNROLL for (int i = 0; i < (C); i++)                                   \
			{                                                                      \
				const char *p = src + (part * (WIDTH / 16) * (C) + i) * group; \
				v[i] = SHUFFLE(GATHER(p, (C)*group), mask);                    \
			}                                                                      \
			PIXEL_ROUNDS(element, C, N);                                           \
			UNROLL for (int i = 0; i < (C); i++) if (i < channels)                 \
			    STORE(dst + row[i] + part * WIDTH, v[i]);                          \
		}                                                                              \
	}

/* Defines a function that writes CPU_LINE / element pixels, and fewer than 8 bytes beyond them. */
#define DEFINE_MERGE_BLOCK(element, C)                                                                      \
	static inline TARGET void merge_block_##element##_##C(                                              \
	    char *dst, const char *src, const int64_t *col, int64_t channels, VECTOR mask)                  \
	{                                                                                                   \
		enum { N = 16 / (element) };                                                                \
		int64_t group = N / (C)*channels * (element);                                               \
		UNROLL for (int part = 0; part < CPU_LINE / WIDTH; part++)                                  \
		{                                                                                           \
			VECTOR v[C];                                                                        \
			char block[(C)*WIDTH] __attribute__((aligned(CPU_LINE)));                           \
			UNROLL for (int i = 0; i < (C); i++) v[i] =                                         \
			    load_vector(src + col[i < channels ? i : 0] + part * WIDTH);                    \
			PIXEL_ROUNDS(element, C, C);                                                        \
			UNROLL for (int i = 0; i < (C); i++) STORE(block + i * WIDTH, SHUFFLE(v[i], mask)); \
			UNROLL for (int lane = 0; lane < WIDTH / 16; lane++)                                \
			    UNROLL for (int i = 0; i < (C); i++, dst += group)                              \
				store16(dst, load16(block + i * WIDTH + lane * 16));                        \
		}                                                                                           \
	}

/* Processes all n pixels block by block: runs the statement `direct`, or for the last blocks `by_copy`, with
 * `at` set to the block's first pixel. Fewer than 8 bytes, and so fewer than 8 pixels, are read or written
 * beyond a block. The last blocks, which may overlap, are therefore processed by way of a copy. */
#define EACH_BLOCK(element, n, direct, by_copy)                 \
	do {                                                    \
		enum { BLOCK = CPU_LINE / (element) };          \
		int64_t at = 0, last = (n)-BLOCK;               \
		for (; at + BLOCK + 8 <= (n); at += BLOCK) {    \
			direct;                                 \
		}                                               \
		at = at < last ? at : last;                     \
		for (; at < (n); at = at < last ? last : (n)) { \
			char copy[BLOCK * 16 + 16];             \
			by_copy;                                \
		}                                               \
	} while (0)

#define DEFINE_PIXELS(element, C)                                                                         \
	DEFINE_SPLIT_BLOCK(element, C)                                                                    \
	DEFINE_MERGE_BLOCK(element, C)                                                                    \
	static TARGET void split_##element##_##C(char *dst, const int64_t *row, const char *src,          \
	                                         int64_t channels, int64_t n)                             \
	{                                                                                                 \
		int64_t pixel = channels * (element);                                                     \
		vec16 lane = pixel_mask((uint32_t)pixel, (C) * (element), true);                          \
		VECTOR mask = GATHER((const char *)&lane, 0);                                             \
		EACH_BLOCK(element, n,                                                                    \
		           split_block_##element##_##C(dst + at * (element), row, src + at * pixel,       \
		                                       channels, mask),                                   \
		           memcpy(copy, src + at * pixel, (size_t)(BLOCK * pixel));                       \
		           split_block_##element##_##C(dst + at * (element), row, copy, channels, mask)); \
	}                                                                                                 \
	static TARGET void merge_##element##_##C(char *dst, const char *src, const int64_t *col,          \
	                                         int64_t channels, int64_t n)                             \
	{                                                                                                 \
		int64_t pixel = channels * (element);                                                     \
		vec16 lane = pixel_mask((uint32_t)pixel, (C) * (element), false);                         \
		VECTOR mask = GATHER((const char *)&lane, 0);                                             \
		EACH_BLOCK(element, n,                                                                    \
		           merge_block_##element##_##C(dst + at * pixel, src + at * (element), col,       \
		                                       channels, mask),                                   \
		           merge_block_##element##_##C(copy, src + at * (element), col, channels, mask);  \
		           memcpy(dst + at * pixel, copy, (size_t)(BLOCK * pixel)));                      \
	}

DEFINE_PIXELS(1, 2)
DEFINE_PIXELS(1, 4)
DEFINE_PIXELS(1, 8)
DEFINE_PIXELS(1, 16)
DEFINE_PIXELS(2, 2)
DEFINE_PIXELS(2, 4)
DEFINE_PIXELS(2, 8)
DEFINE_PIXELS(4, 2)
DEFINE_PIXELS(4, 4)
DEFINE_PIXELS(8, 2)

#define CHOOSE_1(f, channels) \
	((channels) <= 2 ? f##_1_2 : (channels) <= 4 ? f##_1_4 : (channels) <= 8 ? f##_1_8 : f##_1_16)
#define CHOOSE_2(f, channels) ((channels) <= 2 ? f##_2_2 : (channels) <= 4 ? f##_2_4 : f##_2_8)
#define CHOOSE_4(f, channels) ((channels) <= 2 ? f##_4_2 : f##_4_4)
#define CHOOSE_8(f, channels) f##_8_2

#define DEFINE_CHOICE(element)                                                                        \
	static void split_##element(char *dst, const int64_t *row, const char *src, int64_t channels, \
	                            int64_t n)                                                        \
	{                                                                                             \
		CHOOSE_##element(split, channels)(dst, row, src, channels, n);                        \
	}                                                                                             \
	static void merge_##element(char *dst, const char *src, const int64_t *col, int64_t channels, \
	                            int64_t n)                                                        \
	{                                                                                             \
		CHOOSE_##element(merge, channels)(dst, src, col, channels, n);                        \
	}

DEFINE_CHOICE(1)
DEFINE_CHOICE(2)
DEFINE_CHOICE(4)
DEFINE_CHOICE(8)

static inline TARGET void put_lines(char *dst, const char *src, int64_t lines)
{
	for (; lines > 0; lines--, dst += CPU_LINE, src += CPU_LINE)
		UNROLL for (int part = 0; part < CPU_LINE / WIDTH; part++)
		    STREAM(dst + part * WIDTH, load_vector(src + part * WIDTH));
}

static TARGET void copy_lines(char *dst, const char *src, int64_t lines, int64_t ahead)
{
	if (!ahead) {
		put_lines(dst, src, lines);
		return;
	}
	for (; lines > 0; lines--, dst += CPU_LINE, src += CPU_LINE) {
		__builtin_prefetch(src + ahead, 0, 2);
		put_lines(dst, src, 1);
	}
}

static TARGET void fill_lines(char *dst, const char *line, int64_t lines)
{
	VECTOR v[CPU_LINE / WIDTH];
	UNROLL for (int part = 0; part < CPU_LINE / WIDTH; part++) v[part] = load_vector(line + part * WIDTH);
	for (; lines > 0; lines--, dst += CPU_LINE)
		UNROLL for (int part = 0; part < CPU_LINE / WIDTH; part++)
		    STREAM(dst + part * WIDTH, v[part]);
}

/* Writes the line at dst, which consists of the end of one part, the `kept` bytes at room, and the start of
 * the next part, at stage. */
static inline TARGET void put_joined(char *dst, const char *room, const char *stage, int64_t kept)
{
	char line[CPU_LINE] __attribute__((aligned(CPU_LINE)));
	memcpy(line, room, CPU_LINE);
	memcpy(line + kept, stage, (size_t)(CPU_LINE - kept));
	put_lines(dst, line, 1);
}

static TARGET void flush(char *dst, int64_t dst_pitch, const char *stage, int64_t pitch, int64_t rows,
                         int64_t n, char *room, unsigned part)
{
	for (; rows > 0; rows--, dst += dst_pitch, stage += pitch, room += CPU_LINE) {
		/* Bytes from the start of the line to dst. */
		int64_t kept = (int64_t)((uintptr_t)dst % CPU_LINE);
		int64_t head = kept ? CPU_LINE - kept : 0;
		if (part & CPU_PART_FIRST && kept) {
			if (n <= head) {
				copy_short(dst, stage, (uint32_t)n);
				continue;
			}
			copy_short(dst, stage, (uint32_t)head);
		} else if (kept) {
			if (n < head) {
				copy_short(dst - kept, room, (uint32_t)kept);
				copy_short(dst, stage, (uint32_t)n);
				continue;
			}
			put_joined(dst - kept, room, stage, kept);
		}
		int64_t lines = (n - head) / CPU_LINE, left = (n - head) % CPU_LINE;
		const char *rest = stage + head + lines * CPU_LINE;
		put_lines(dst + head, stage + head, lines);
		if (!left)
			continue;
		if (part & CPU_PART_LAST)
			copy_short(dst + head + lines * CPU_LINE, rest, (uint32_t)left);
		else
			memcpy(room, rest, CPU_LINE);
	}
}

static TARGET void fetch(const char *dst, int64_t n_dst, const char *src, int64_t n_src)
{
	for (int64_t at = 0; at < n_dst || at < n_src; at += CPU_LINE) {
		if (at < n_src)
			__builtin_prefetch(src + at, 0);
		if (at < n_dst)
			__builtin_prefetch(dst + at, 1);
	}
}

static TARGET void fence(void)
{
	FENCE();
}

#include "isa_convert.h"

#define EACH(function)                                                                \
	{                                                                             \
		function##_1, function##_2, function##_4, function##_8, function##_16 \
	}

const struct cpu_isa ISA = {
	.name = ISA_NAME,
	.vector = WIDTH,
	.strip = EACH(strip),
	.strip_stream = EACH(strip_stream),
	.narrow = EACH(narrow),
	.panel = EACH(panel),
	.shuffle = shuffle,
	.far_panel = EACH(far_panel),
	.tables = { tables_1, tables_2, tables_4, tables_8 },
	.reverse = EACH(reverse),
	.split = { split_1, split_2, split_4, split_8 },
	.merge = { merge_1, merge_2, merge_4, merge_8 },
	.copy_lines = copy_lines,
	.fill_lines = fill_lines,
	.flush = flush,
	.fetch = fetch,
	.fence = fence,
	.converters = &converters,
};
