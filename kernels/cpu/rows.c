/* Leaves whose rows are contiguous in the destination: copied, repeated, reversed. */
#include "microkernel.h"

#include <string.h>

/* Shorter runs are mostly their first and last lines, which go through the cache anyway; unless they are
 * whole lines, a few of them. */
#define STREAM_MIN   512
#define STREAM_LINES 2

/* Rows of up to AHEAD_MOST bytes are asked for so many bytes before they are copied, as they would be by the
 * machine if they followed each other in the source. */
#define AHEAD_BYTES 2048
#define AHEAD_MOST  4096

/* Reversed rows are made in pieces of this many bytes when they go past the cache. */
#define STAGE_BYTES 4096

static int64_t min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static bool is_lines(const char *dst, int64_t n)
{
	return n >= STREAM_LINES * CPU_LINE && n % CPU_LINE == 0 && (uintptr_t)dst % CPU_LINE == 0;
}

static void copy_run(const struct leaf *leaf, char *dst, const char *src, int64_t n, int64_t ahead)
{
	if (!leaf->scratch || (n < STREAM_MIN && !is_lines(dst, n))) {
		memcpy(dst, src, (size_t)n);
		return;
	}
	int64_t head = leaf_to_line(dst);
	int64_t lines = (n - head) / CPU_LINE;
	int64_t done = head + lines * CPU_LINE;
	memcpy(dst, src, (size_t)head);
	leaf->isa->copy_lines(dst + head, src + head, lines, ahead);
	memcpy(dst + done, src + done, (size_t)(n - done));
}

void leaf_copy_run(const struct leaf *leaf, char *dst, const char *src, int64_t n)
{
	copy_run(leaf, dst, src, n, 0);
}

void leaf_copy(const struct leaf *leaf)
{
	int64_t n = leaf->cols * leaf->unit;
	if (!leaf->scratch) {
		for (int64_t r = 0; r < leaf->rows; r++)
			memcpy(leaf->dst + r * leaf->dst_row, leaf->src + r * leaf->src_row, (size_t)n);
		return;
	}
	int64_t rows_ahead = AHEAD_BYTES / n + 1;
	for (int64_t r = 0; r < leaf->rows; r++) {
		int64_t ahead = leaf->ahead;
		if (!ahead && n <= AHEAD_MOST && r + rows_ahead < leaf->rows)
			ahead = rows_ahead * leaf->src_row;
		copy_run(leaf, leaf->dst + r * leaf->dst_row, leaf->src + r * leaf->src_row, n, ahead);
	}
}

/* n bytes of a pattern that repeats every 16 bytes; pattern holds a line and 16 bytes of it. */
static void repeat_run(const struct leaf *leaf, char *dst, const char *pattern, int64_t n)
{
	if (n < CPU_LINE) {
		memcpy(dst, pattern, (size_t)n);
		return;
	}
	int64_t head = leaf_to_line(dst);
	memcpy(dst, pattern, CPU_LINE);
	const char *line = pattern + head % 16;
	int64_t lines = (n - head) / CPU_LINE;
	if (leaf->scratch && n >= STREAM_MIN)
		leaf->isa->fill_lines(dst + head, line, lines);
	else
		for (int64_t i = 0; i < lines; i++)
			memcpy(dst + head + i * CPU_LINE, line, CPU_LINE);
	int64_t done = head + lines * CPU_LINE;
	memcpy(dst + done, line, (size_t)(n - done));
}

void leaf_repeat(const struct leaf *leaf)
{
	char pattern[CPU_LINE + 16];
	for (int64_t r = 0; r < leaf->rows; r++) {
		if (r == 0 || leaf->src_row != 0)
			for (size_t i = 0; i < sizeof(pattern); i += leaf->unit)
				memcpy(pattern + i, leaf->src + r * leaf->src_row, leaf->unit);
		repeat_run(leaf, leaf->dst + r * leaf->dst_row, pattern, leaf->cols * leaf->unit);
	}
}

/* One row by way of scratch, in pieces that end on a line of dst. */
static void reverse_staged(const struct leaf *leaf, char *dst, const char *src)
{
	int64_t unit = leaf->unit;
	int64_t n = STAGE_BYTES / unit + leaf_to_line(dst) / unit;
	for (int64_t at = 0; at < leaf->cols; at += n, n = STAGE_BYTES / unit) {
		n = min(n, leaf->cols - at);
		leaf->isa->reverse[leaf_shift(leaf->unit)](leaf->scratch, src - at * unit, n);
		leaf_copy_run(leaf, dst + at * unit, leaf->scratch, n * unit);
	}
}

void leaf_reverse(const struct leaf *leaf)
{
	bool staged = leaf->scratch && leaf->cols * leaf->unit >= STREAM_MIN;
	for (int64_t r = 0; r < leaf->rows; r++) {
		char *dst = leaf->dst + r * leaf->dst_row;
		const char *src = leaf->src + r * leaf->src_row;
		if (staged)
			reverse_staged(leaf, dst, src);
		else
			leaf->isa->reverse[leaf_shift(leaf->unit)](dst, src, leaf->cols);
	}
}
