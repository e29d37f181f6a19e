/* SPDX-License-Identifier: Apache-2.0 */
/* What each entry point needs before it is carried out. */
#include "call.h"

enum needs entry_needs(enum entry entry)
{
	switch (entry) {
	case ENTRY_cuInit:
	case ENTRY_cuDriverGetVersion:
	case ENTRY_cuGetErrorName:
	case ENTRY_cuGetErrorString:
		return NEEDS_NOTHING;
	case ENTRY_cuCtxGetCurrent:
	case ENTRY_cuDeviceGetCount:
	case ENTRY_cuDeviceGet:
	case ENTRY_cuDeviceGetName:
	case ENTRY_cuDeviceGetUuid:
	case ENTRY_cuDeviceGetAttribute:
	case ENTRY_cuDeviceTotalMem:
	case ENTRY_cuDeviceGetPCIBusId:
	case ENTRY_cuDeviceGetByPCIBusId:
	case ENTRY_cuDeviceCanAccessPeer:
	case ENTRY_cuDeviceGetP2PAttribute:
	case ENTRY_cuCtxGetId:
	case ENTRY_cuStreamGetCtx:
	case ENTRY_cuCtxPushCurrent:
	case ENTRY_cuCtxPopCurrent:
	case ENTRY_cuThreadExchangeStreamCaptureMode:
	case ENTRY_cuUserObjectCreate:
	case ENTRY_cuUserObjectRelease:
	case ENTRY_cuGraphRetainUserObject:
	case ENTRY_cuGraphDestroy:
	case ENTRY_cuGraphExecDestroy:
		return NEEDS_INIT;
	case ENTRY_cuDevicePrimaryCtxRetain:
	case ENTRY_cuDevicePrimaryCtxRelease:
	case ENTRY_cuCtxCreate:
	case ENTRY_cuCtxDestroy:
	case ENTRY_cuCtxSetCurrent:
		return NEEDS_HEALTH;
	default:
		return NEEDS_CONTEXT;
	}
}

bool entry_is_unsafe(enum entry entry)
{
	switch (entry) {
	case ENTRY_cuMemAlloc:
	case ENTRY_cuMemFree:
	case ENTRY_cuMemHostRegister:
	case ENTRY_cuMemHostUnregister:
	case ENTRY_cuMemHostAlloc:
	case ENTRY_cuMemFreeHost:
	case ENTRY_cuCtxCreate:
	case ENTRY_cuCtxDestroy:
	case ENTRY_cuIpcOpenMemHandle:
	case ENTRY_cuIpcCloseMemHandle:
	case ENTRY_cuMemPoolCreate:
	case ENTRY_cuMemPoolDestroy:
	case ENTRY_cuModuleLoadData:
	case ENTRY_cuModuleUnload:
	case ENTRY_cuEventQuery:
	case ENTRY_cuEventSynchronize:
	case ENTRY_cuStreamQuery:
	case ENTRY_cuStreamSynchronize:
	case ENTRY_cuCtxSynchronize:
		return true;
	default:
		return false;
	}
}
