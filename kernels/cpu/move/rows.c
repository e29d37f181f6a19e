/* SPDX-License-Identifier: Apache-2.0 */
/* Microkernels whose rows are contiguous in the destination: copy, repeat a value, reverse. */
#include "microkernel.h"

#include <string.h>

#include "proto/arithmetic.h"

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

static bool is_lines(const char *dst, int64_t n)
{
	return n >= STREAM_LINES * CPU_LINE && n % CPU_LINE == 0 && (uintptr_t)dst % CPU_LINE == 0;
}

static void copy_run(const struct microkernel *microkernel, char *dst, const char *src, int64_t n,
                     int64_t ahead)
{
	if (!microkernel->scratch || (n < STREAM_MIN && !is_lines(dst, n))) {
		memcpy(dst, src, (size_t)n);
		return;
	}
	int64_t head = microkernel_to_line(dst);
	int64_t lines = (n - head) / CPU_LINE;
	int64_t done = head + lines * CPU_LINE;
	memcpy(dst, src, (size_t)head);
	microkernel->isa->copy_lines(dst + head, src + head, lines, ahead);
	memcpy(dst + done, src + done, (size_t)(n - done));
}

void microkernel_copy_run(const struct microkernel *microkernel, char *dst, const char *src, int64_t n)
{
	copy_run(microkernel, dst, src, n, 0);
}

void microkernel_copy(const struct microkernel *microkernel)
{
	int64_t n = microkernel->cols * microkernel->unit;
	if (!microkernel->scratch) {
		for (int64_t r = 0; r < microkernel->rows; r++)
			memcpy(microkernel->dst + r * microkernel->dst_row,
			       microkernel->src + r * microkernel->src_row, (size_t)n);
		return;
	}
	int64_t rows_ahead = AHEAD_BYTES / n + 1;
	for (int64_t r = 0; r < microkernel->rows; r++) {
		int64_t ahead = microkernel->ahead;
		if (!ahead && n <= AHEAD_MOST && r + rows_ahead < microkernel->rows)
			ahead = rows_ahead * microkernel->src_row;
		copy_run(microkernel, microkernel->dst + r * microkernel->dst_row,
		         microkernel->src + r * microkernel->src_row, n, ahead);
	}
}

/* n bytes of a pattern that repeats every 16 bytes; pattern holds a line and 16 bytes of it. */
static void repeat_run(const struct microkernel *microkernel, char *dst, const char *pattern, int64_t n)
{
	if (n < CPU_LINE) {
		memcpy(dst, pattern, (size_t)n);
		return;
	}
	int64_t head = microkernel_to_line(dst);
	memcpy(dst, pattern, CPU_LINE);
	const char *line = pattern + head % 16;
	int64_t lines = (n - head) / CPU_LINE;
	if (microkernel->scratch && n >= STREAM_MIN)
		microkernel->isa->fill_lines(dst + head, line, lines);
	else
		for (int64_t i = 0; i < lines; i++)
			memcpy(dst + head + i * CPU_LINE, line, CPU_LINE);
	int64_t done = head + lines * CPU_LINE;
	memcpy(dst + done, line, (size_t)(n - done));
}

void microkernel_repeat(const struct microkernel *microkernel)
{
	char pattern[CPU_LINE + 16];
	for (int64_t r = 0; r < microkernel->rows; r++) {
		if (r == 0 || microkernel->src_row != 0)
			for (size_t i = 0; i < sizeof(pattern); i += microkernel->unit)
				memcpy(pattern + i, microkernel->src + r * microkernel->src_row,
				       microkernel->unit);
		repeat_run(microkernel, microkernel->dst + r * microkernel->dst_row, pattern,
		           microkernel->cols * microkernel->unit);
	}
}

/* One row by way of scratch, in pieces that end on a line of dst. */
static void reverse_staged(const struct microkernel *microkernel, char *dst, const char *src)
{
	int64_t unit = microkernel->unit;
	int64_t n = STAGE_BYTES / unit + microkernel_to_line(dst) / unit;
	for (int64_t at = 0; at < microkernel->cols; at += n, n = STAGE_BYTES / unit) {
		n = min_i64(n, microkernel->cols - at);
		microkernel->isa->reverse[microkernel_shift(microkernel->unit)](microkernel->scratch,
		                                                                src - at * unit, n);
		microkernel_copy_run(microkernel, dst + at * unit, microkernel->scratch, n * unit);
	}
}

void microkernel_reverse(const struct microkernel *microkernel)
{
	bool staged = microkernel->scratch && microkernel->cols * microkernel->unit >= STREAM_MIN;
	for (int64_t r = 0; r < microkernel->rows; r++) {
		char *dst = microkernel->dst + r * microkernel->dst_row;
		const char *src = microkernel->src + r * microkernel->src_row;
		if (staged)
			reverse_staged(microkernel, dst, src);
		else
			microkernel->isa->reverse[microkernel_shift(microkernel->unit)](dst, src,
			                                                                microkernel->cols);
	}
}
