/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a transform wait for what a CUDA stream has computed so far, and the
 * stream wait for the transform. The host waits for neither. */
#include <tmaclient.h>

/* timeline is a region that starts with the word of a timeline, and word is the
 * device's address of that word. The word goes from step - 1 to step + 1. If
 * the transform fails, nothing signals step + 1: the program then has to signal
 * it with tma_point_signal, or the stream waits forever. A program that has
 * several transforms under way in a stream needs a second word for their ends:
 * the stream's next signal would otherwise undo one that came early. */
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
