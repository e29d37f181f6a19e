/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a table entry for a kernel that the including file has compiled. To be included after the kernels,
 * since it redefines KERNEL. */
#ifndef TESTS_SOFTGPU_HOST_HH
#define TESTS_SOFTGPU_HOST_HH

extern "C" {
#include "tests/softgpu/model/table.h"
}

#undef KERNEL
#undef for

namespace
{

template <auto KERNEL_FUNCTION> struct host_kernel;

template <typename BOUND, typename ARGS, void (*KERNEL_FUNCTION)(BOUND, ARGS)>
struct host_kernel<KERNEL_FUNCTION> {
	static constexpr uint32_t threads = BOUND::threads;
	static constexpr const char *file = BOUND::file;

	static void run_thread(const void *args)
	{
		KERNEL_FUNCTION(BOUND(), *static_cast<const ARGS *>(args));
	}
};

} // namespace

#define HOST_KERNEL(name, args) \
	{ #name, sizeof(struct args), host_kernel<name>::threads, host_kernel<name>::run_thread },

#endif
