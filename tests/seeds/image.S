/* SPDX-License-Identifier: Apache-2.0 */
/* The seeds' fatbin, as nvcc wrote it. */
	.section .rodata
	.balign 64
	.globl seeds_image
	.hidden seeds_image
	.type seeds_image, %object
seeds_image:
	.incbin "tests/seeds/seeds.fatbin"
	.size seeds_image, . - seeds_image

	.section .note.GNU-stack, "", %progbits
