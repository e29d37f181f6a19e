/* SPDX-License-Identifier: Apache-2.0 */
/* The seeds' image. */
	.section .rodata
	.balign 64
	.globl seeds_image
	.hidden seeds_image
	.type seeds_image, %object
seeds_image:
	.incbin "tests/seeds/seeds.image"
	.size seeds_image, . - seeds_image

	.section .note.GNU-stack, "", %progbits
