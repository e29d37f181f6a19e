/* SPDX-License-Identifier: Apache-2.0 */
/* The compute kernel's fatbin. */
	.section .rodata
	.balign 64
	.globl compute_image
	.hidden compute_image
	.type compute_image, %object
compute_image:
	.incbin "tests/gpu/bench/compute.fatbin"
	.size compute_image, . - compute_image

	.section .note.GNU-stack, "", %progbits
