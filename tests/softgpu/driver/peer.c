/* SPDX-License-Identifier: Apache-2.0 */
/* Peer access: what a pair of devices supports, and what a context has enabled. Access is enabled in one
 * direction, and only for memory that belongs to a context (range.c). */
#include "call.h"
#include "softgpu.h"

static CUresult can_access(int *ret, CUdevice device, CUdevice peer)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(device) || !device_exists(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*ret = device != peer && device_can_access(device, peer);
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *ret, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(from) || !device_exists(to) || from == to)
		return CUDA_ERROR_INVALID_DEVICE;
	switch (attribute) {
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
		*ret = link_rank(from, to);
		return CUDA_SUCCESS;
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
		*ret = device_can_access(from, to);
		return CUDA_SUCCESS;
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
		*ret = device_can_access(from, to) && link_between(from, to) > LINK_PCIE;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Sets *ret to the device of handle, which has to be a live context of another device than the current
 * one's. */
static CUresult find_peer(int *ret, CUcontext handle)
{
	const struct context *context = context_find(handle);
	if (!context || context->refs == 0 || context->ordinal == context_current()->ordinal)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret = context->ordinal;
	return call_stuck(*ret);
}

static CUresult allow(struct context *context, int peer)
{
	if (!device_can_access(context->ordinal, peer))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (context->peers & device_bit(peer))
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	context->peers |= device_bit(peer);
	return CUDA_SUCCESS;
}

static CUresult enable(CUcontext handle, unsigned int flags)
{
	int peer;
	CUresult result = find_peer(&peer, handle);
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return result ?: allow(context_current(), peer);
}

static CUresult disable(CUcontext handle)
{
	int peer;
	CUresult result = find_peer(&peer, handle);
	if (result != CUDA_SUCCESS)
		return result;
	if (!(context_current()->peers & device_bit(peer)))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	context_current()->peers &= (device_set)~device_bit(peer);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *ret, CUdevice device, CUdevice peer)
{
	return leave(enter(ENTRY_cuDeviceCanAccessPeer) ?: can_access(ret, device, peer));
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int *ret, CUdevice_P2PAttribute attribute, CUdevice from,
                                         CUdevice to)
{
	return leave(enter(ENTRY_cuDeviceGetP2PAttribute) ?: get_attribute(ret, attribute, from, to));
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	return leave(enter(ENTRY_cuCtxEnablePeerAccess) ?: enable(peer, flags));
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
	return leave(enter(ENTRY_cuCtxDisablePeerAccess) ?: disable(peer));
}
