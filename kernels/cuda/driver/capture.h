/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream capture of the program's means for calls of the driver.
 *
 * While a thread captures a stream, the driver refuses calls that a capture cannot hold, such as allocations
 * and queries, even if they have nothing to do with the captured stream, and the capture is lost. A thread
 * that knows what it does makes such calls between capture_allow and capture_restore.
 */
#ifndef KERNELS_CUDA_DRIVER_CAPTURE_H
#define KERNELS_CUDA_DRIVER_CAPTURE_H

#include "driver.h"

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
