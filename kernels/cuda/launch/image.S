/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' fatbin, as nvcc wrote it, in the read-only data: from cuda_image to cuda_image_end. */
	.section .rodata
	.balign 64
	.globl cuda_image
	.hidden cuda_image
	.type cuda_image, %object
cuda_image:
	.incbin "kernels/cuda/kernels.fatbin"
	.size cuda_image, . - cuda_image
	.globl cuda_image_end
	.hidden cuda_image_end
cuda_image_end:

	.section .note.GNU-stack, "", %progbits
