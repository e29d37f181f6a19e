/* SPDX-License-Identifier: Apache-2.0 */
/* This embeds the compute kernel's image. */
	.section .rodata
	.balign 64
	.globl compute_image
	.hidden compute_image
	.type compute_image, %object
compute_image:
	.incbin "tests/gpu/bench/compute.image"
	.size compute_image, . - compute_image

	.section .note.GNU-stack, "", %progbits
