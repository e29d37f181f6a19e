/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' images (kernels/cuda/device/Makemodule.am) are read-only data, from image_NAME to image_NAME_end. */
#define QUOTED(file) #file
#define UNIT(name) \
	.balign 64; \
	.globl image_##name, image_##name##_end; \
	.hidden image_##name, image_##name##_end; \
	.type image_##name, %object; \
image_##name:; \
	.incbin QUOTED(kernels/cuda/device/name.image); \
	.size image_##name, . - image_##name; \
image_##name##_end:;

	.section .rodata
#include "kernels.def"

	.section .note.GNU-stack, "", %progbits
