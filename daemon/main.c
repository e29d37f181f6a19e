/* tmad, with the engines of this build. */
#include "tmad.h"

#include <stddef.h>

#ifdef HAVE_CUDA
#define OPEN_CUDA engine_cuda_open
#else
#define OPEN_CUDA NULL
#endif

int main(int argc, char **argv)
{
	static const struct engine_openers openers = { .cpu = engine_cpu_open, .cuda = OPEN_CUDA };

	return tmad_main(argc, argv, &openers);
}
