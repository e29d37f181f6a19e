/* A table entry for a kernel that this file compiled. After the kernels: their KERNEL is not needed any more.
 */
#ifndef TESTS_SOFTGPU_HOST_HH
#define TESTS_SOFTGPU_HOST_HH

extern "C" {
#include "tests/softgpu/model/table.h"
}

#undef KERNEL

namespace
{

template <typename ARGS, void (*KERNEL_FUNCTION)(ARGS)> void run_thread(const void *args)
{
	KERNEL_FUNCTION(*static_cast<const ARGS *>(args));
}

} // namespace

#define HOST_KERNEL(name, args) { #name, sizeof(struct args), run_thread<struct args, name> },

#endif
