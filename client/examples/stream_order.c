/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a transform wait for what a CUDA stream has computed so far, and the
 * stream wait for the transform. The host waits for neither. */
#include <tmaclient.h>

/* timeline: a region that starts with the word of a timeline; word: the
 * device's address of it. The word goes from step - 1 to step + 1. Nothing
 * signals step + 1 if the transform fails: then the program has to, with
 * tma_point_signal, or the stream waits forever. A program that has several
 * transforms under way in a stream needs a second word for that: the stream's
 * next signal would undo one that came early. */
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
