/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks are known by their numbers. The stack of free blocks has those without memory at its bottom, so that
 * they are used last. */
#include "input.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/arithmetic.h"
#include "proto/wire/buffer.h"
#include "proto/status.h"

#define CHECK_MS 500

/* Beyond one for each session: blocks whose memory is being returned cannot be taken. */
#define SPARE (INPUTS_RETURNED + 64)

#if !defined(__has_feature)
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define MOST 0 /* the sanitizer watches blocks of malloc only */
#else
#define MOST 65536
#endif

static void on_check(uv_timer_t *timer);
static void return_memory(uv_work_t *work);
static void on_returned(uv_work_t *work, int status);

static uint8_t *map(size_t bytes)
{
	void *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, bytes, MADV_NOHUGEPAGE); /* a few bytes must not take a huge page */
	return memory;
}

void inputs_open(struct inputs *inputs, uv_loop_t *loop, uint64_t n)
{
	*inputs = (struct inputs){ 0 };
	uv_timer_init(loop, &inputs->timer);
	inputs->timer.data = inputs->work.data = inputs;
	n += SPARE;
	if (n > MOST)
		n = MOST;
	inputs->free = n ? malloc(n * sizeof *inputs->free) : NULL;
	inputs->memory = inputs->free ? map(n * INPUT_BYTES) : NULL;
	if (!inputs->memory)
		return;
	inputs->n = inputs->n_free = inputs->n_clean = inputs->unused = (uint32_t)n;
	for (uint32_t i = 0; i < inputs->n; i++)
		inputs->free[i] = inputs->n - 1 - i;
}

void inputs_close(struct inputs *inputs)
{
	uv_close((uv_handle_t *)&inputs->timer, NULL);
}

void inputs_deinit(struct inputs *inputs)
{
	assert(inputs->n_free == inputs->n);
	if (inputs->memory)
		munmap(inputs->memory, (size_t)inputs->n * INPUT_BYTES);
	free(inputs->free);
}

/* ---- Blocks ------------------------------------------------------------------------------------------- */

static uint8_t *take(struct inputs *inputs)
{
	if (inputs->n_free == 0)
		return malloc(INPUT_BYTES);
	inputs->n_free--;
	inputs->n_clean = min_u32(inputs->n_clean, inputs->n_free);
	inputs->unused = min_u32(inputs->unused, inputs->n_free);
	return inputs->memory + (size_t)inputs->free[inputs->n_free] * INPUT_BYTES;
}

static void give_back(struct inputs *inputs, uint8_t *block)
{
	uintptr_t at = (uintptr_t)block - (uintptr_t)inputs->memory;

	if (!inputs->memory || at >= (uintptr_t)inputs->n * INPUT_BYTES) {
		free(block);
		return;
	}
	inputs->free[inputs->n_free++] = (uint32_t)(at / INPUT_BYTES);
	if (!uv_is_active((uv_handle_t *)&inputs->timer))
		uv_timer_start(&inputs->timer, on_check, CHECK_MS, CHECK_MS);
}

int input_keep(struct inputs *inputs, struct buffer *in, const uint8_t *data, size_t len)
{
	size_t kept = buffer_len(in);

	assert(len <= INPUT_BYTES - kept);
	if (!in->data) {
		*in = (struct buffer){ .data = take(inputs), .cap = INPUT_BYTES };
		if (!in->data)
			return STATUS_NO_MEMORY;
	}
	if (len > in->cap - in->end) {
		memmove(in->data, in->data + in->start, kept);
		in->start = 0;
		in->end = kept;
	}
	memcpy(in->data + in->end, data, len);
	in->end += len;
	return 0;
}

void input_drop(struct inputs *inputs, struct buffer *in, size_t len)
{
	in->start += len;
	if (!in->data || in->start < in->end)
		return;
	give_back(inputs, in->data);
	*in = (struct buffer){ 0 };
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

static void on_check(uv_timer_t *timer)
{
	struct inputs *inputs = timer->data;
	uint32_t n = inputs->unused > inputs->n_clean ? inputs->unused - inputs->n_clean : 0;

	if (inputs->n_returning > 0)
		return;
	inputs->unused = inputs->n_free;
	if (inputs->n_free == inputs->n_clean)
		uv_timer_stop(timer);
	if (n == 0)
		return;
	n = min_u32(n, INPUTS_RETURNED);
	memcpy(inputs->returning, inputs->free + inputs->n_clean, n * sizeof *inputs->free);
	memmove(inputs->free + inputs->n_clean, inputs->free + inputs->n_clean + n,
	        (inputs->n_free - inputs->n_clean - n) * sizeof *inputs->free);
	inputs->n_free -= n;
	inputs->unused = inputs->n_free;
	inputs->n_returning = n;
	uv_queue_work(timer->loop, &inputs->work, return_memory, on_returned);
}

static void return_memory(uv_work_t *work)
{
	struct inputs *inputs = work->data;

	for (uint32_t i = 0; i < inputs->n_returning; i++)
		madvise(inputs->memory + (size_t)inputs->returning[i] * INPUT_BYTES, INPUT_BYTES,
		        MADV_DONTNEED);
}

/* If there are many, the next ones follow at once. */
static void on_returned(uv_work_t *work, int status)
{
	struct inputs *inputs = work->data;
	uint32_t n = inputs->n_returning;

	(void)status;
	memmove(inputs->free + n, inputs->free, inputs->n_free * sizeof *inputs->free);
	memcpy(inputs->free, inputs->returning, n * sizeof *inputs->free);
	inputs->n_free += n;
	inputs->n_clean += n;
	inputs->unused += n;
	inputs->n_returning = 0;
	if (n == INPUTS_RETURNED && !uv_is_closing((uv_handle_t *)&inputs->timer))
		on_check(&inputs->timer);
}
