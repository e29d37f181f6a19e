/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a transform wait for what a CUDA stream has computed so far, and the
 * stream wait for the transform. The host waits for neither. */
#include <tmaclient.h>

/* timeline: a region that starts with the word of a timeline; word: the
 * device's address of it. The word goes from step - 1 to step + 1. */
int move_in_stream(tma_client *client, void *stream, tma_region *timeline,
                   uint64_t word, uint64_t step, struct tma_transform move)
{
	struct tma_order order = {
		.wait = { .region = timeline, .value = step },
		.signal = { .region = timeline, .value = step + 1 },
		.completion = TMA_COMPLETION_SIGNAL,
	};
	int r;

	move.order = &order;
	r = tma_stream_signal(client, stream, word, step);
	if (r == 0)
		r = tma_submit(client, &move, NULL);
	if (r == 0)
		r = tma_stream_wait(client, stream, word, step + 1);
	return r;
}
