/* SPDX-License-Identifier: Apache-2.0 */
/* This embeds the conformance kernels' image. */
	.section .rodata
	.balign 64
	.globl conformance_image
	.hidden conformance_image
	.type conformance_image, %object
conformance_image:
	.incbin "tests/gpu/conformance/conformance.image"
	.size conformance_image, . - conformance_image

	.section .note.GNU-stack, "", %progbits
