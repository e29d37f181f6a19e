/* SPDX-License-Identifier: Apache-2.0 */
/* These functions let the library make driver calls while the program captures a stream.
 *
 * While this thread captures, or any thread captures in global mode, the driver refuses calls that a graph
 * cannot hold, such as allocations and queries, and the capture is lost. Calls that have nothing to do with
 * the capture are made between capture_allow and capture_restore.
 */
#ifndef KERNELS_CUDA_DRIVER_CAPTURE_H
#define KERNELS_CUDA_DRIVER_CAPTURE_H

#include "driver.h"

/* Allows such calls on this thread. Returns the mode for capture_restore. */
static inline CUstreamCaptureMode capture_allow(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	driver.cuThreadExchangeStreamCaptureMode(&mode);
	return mode;
}

static inline void capture_restore(CUstreamCaptureMode before)
{
	driver.cuThreadExchangeStreamCaptureMode(&before);
}

/* Sets *ret to the graph that the stream is being captured into, or to NULL. Returns 0, or the driver's
 * error. */
static inline int capture_graph(CUstream stream, CUgraph *ret, struct error *err)
{
	CUstreamCaptureStatus status;
	int r = driver_call(err, cuStreamGetCaptureInfo, (stream, &status, NULL, ret, NULL, NULL, NULL));

	if (r == 0 && status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		*ret = NULL;
	return r;
}

#endif
