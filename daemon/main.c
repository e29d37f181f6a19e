/* SPDX-License-Identifier: Apache-2.0 */
/* The main function of tmad, which names the engines of this build. */
#include "tmad.h"

int main(int argc, char **argv)
{
	static const struct engine_openers openers = {
		.cpu = engine_cpu_open,
#ifdef HAVE_CUDA
		.cuda = engine_cuda_open,
		.cuda_count = engine_cuda_count,
#endif
	};

	return tmad_main(argc, argv, &openers);
}
