/* SPDX-License-Identifier: Apache-2.0 */
/* A turn takes two switches: into the fiber and back. On x86-64 and aarch64 the switch is written in assembly
 * and saves the registers that the calling convention requires a callee to keep; elsewhere, or with
 * FIBER_UCONTEXT, it uses ucontext. */
#include "fiber.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif

#ifdef FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(FIBER_UCONTEXT)
#define FIBER_UCONTEXT 1
#endif

#define GUARD_BYTES (64 << 10)
#define SLOT_BYTES  (FIBER_STACK_BYTES + GUARD_BYTES)

#ifdef FIBER_UCONTEXT
#include <ucontext.h>
typedef ucontext_t fiber_context;
#else
typedef void *fiber_context; /* the saved stack pointer; registers are saved on the stack */
#endif

struct fiber {
	fiber_context context;
	unsigned char *stack;
	void (*entry)(void *argument);
	void *argument;
	void *fake_stack; /* AddressSanitizer's fake stack */
	void *shadow;     /* ThreadSanitizer's fiber */
	bool parked;      /* its entry has returned; it waits in fiber_main for the next one */
};

struct fiber_set {
	struct fiber *fibers;
	uint32_t n;
	struct fiber *running;
	fiber_context resumer;
	const void *resumer_stack; /* bounds of the resumer's stack, for AddressSanitizer */
	size_t resumer_bytes;
	void *resumer_shadow;
};

void fiber_main(struct fiber_set *set) __attribute__((noreturn));
static void context_init(struct fiber_set *set, struct fiber *fiber);
static void context_switch(fiber_context *save, fiber_context *to);

/* ---- Stacks ---------------------------------------------------------------------------------------- */

struct fiber_set *fiber_set_new(void)
{
	return calloc(1, sizeof(struct fiber_set));
}

void fiber_set_free(struct fiber_set *set)
{
	if (!set)
		return;
	for (uint32_t i = 0; i < set->n; i++) {
		munmap(set->fibers[i].stack - GUARD_BYTES, SLOT_BYTES);
#ifdef FIBER_TSAN
		if (set->fibers[i].shadow)
			__tsan_destroy_fiber(set->fibers[i].shadow);
#endif
	}
	free(set->fibers);
	free(set);
}

bool fiber_set_reserve(struct fiber_set *set, uint32_t n)
{
	struct fiber *fibers;

	if (n <= set->n)
		return true;
	fibers = realloc(set->fibers, n * sizeof(*fibers));
	if (!fibers)
		return false;
	set->fibers = fibers;
	for (uint32_t i = 0; i < set->n; i++)
		/* A context need not survive being moved, so the fiber starts from scratch. */
		fibers[i].parked = false;
	while (set->n < n) {
		unsigned char *slot =
		    mmap(NULL, SLOT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (slot == MAP_FAILED)
			return false;
		if (mprotect(slot + GUARD_BYTES, FIBER_STACK_BYTES, PROT_READ | PROT_WRITE) < 0) {
			munmap(slot, SLOT_BYTES);
			return false;
		}
		fibers[set->n++] = (struct fiber){ .stack = slot + GUARD_BYTES };
	}
	return true;
}

/* ---- A fiber's life -------------------------------------------------------------------------------- */

void fiber_start(struct fiber_set *set, uint32_t i, void (*entry)(void *argument), void *argument)
{
	struct fiber *fiber = &set->fibers[i];

	assert(i < set->n && !set->running);
	fiber->entry = entry;
	fiber->argument = argument;
	fiber->fake_stack = NULL;
	if (fiber->parked) {
		fiber->parked = false;
		return;
	}
#ifdef FIBER_ASAN
	__asan_unpoison_memory_region(fiber->stack, FIBER_STACK_BYTES);
#endif
#ifdef FIBER_TSAN
	if (fiber->shadow)
		__tsan_destroy_fiber(fiber->shadow);
	fiber->shadow = __tsan_create_fiber(0);
#endif
	context_init(set, fiber);
}

void fiber_resume(struct fiber_set *set, uint32_t i)
{
	struct fiber *fiber = &set->fibers[i];
#ifdef FIBER_ASAN
	void *fake_stack = NULL;

	__sanitizer_start_switch_fiber(&fake_stack, fiber->stack, FIBER_STACK_BYTES);
#endif
#ifdef FIBER_TSAN
	set->resumer_shadow = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(fiber->shadow, 0);
#endif
	assert(!set->running);
	set->running = fiber;
	context_switch(&set->resumer, &fiber->context);
	set->running = NULL;
#ifdef FIBER_ASAN
	__sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
}

/* Tells the sanitizers that the fiber switches away. If it has ended, its fake stack is released. */
static void leave(struct fiber_set *set, struct fiber *fiber, bool ended)
{
#ifdef FIBER_ASAN
	__sanitizer_start_switch_fiber(ended ? NULL : &fiber->fake_stack, set->resumer_stack,
	                               set->resumer_bytes);
#endif
#ifdef FIBER_TSAN
	__tsan_switch_to_fiber(set->resumer_shadow, 0);
#endif
	(void)set;
	(void)fiber;
	(void)ended;
}

static void arrive(struct fiber_set *set, struct fiber *fiber)
{
#ifdef FIBER_ASAN
	__sanitizer_finish_switch_fiber(fiber->fake_stack, &set->resumer_stack, &set->resumer_bytes);
#endif
	(void)set;
	(void)fiber;
}

void fiber_yield(struct fiber_set *set)
{
	struct fiber *fiber = set->running;

	leave(set, fiber, false);
	context_switch(&fiber->context, &set->resumer);
	arrive(set, fiber);
}

/* The first function on a fiber's stack; it never returns, as no frame lies below it. A fiber whose entry has
 * returned is restarted here, because a new fiber costs ThreadSanitizer nearly a MiB of zeroed memory. */
void fiber_main(struct fiber_set *set)
{
	for (;;) {
		struct fiber *fiber = set->running;

		arrive(set, fiber);
		fiber->entry(fiber->argument);
		leave(set, fiber, true);
		fiber->parked = true;
		context_switch(&fiber->context, &set->resumer);
	}
}

/* ---- The switch ------------------------------------------------------------------------------------ */

#ifdef FIBER_UCONTEXT

static void ucontext_main(unsigned int low, unsigned int high)
{
	fiber_main((struct fiber_set *)((uintptr_t)low | (uintptr_t)((uint64_t)high << 32)));
}

static void context_init(struct fiber_set *set, struct fiber *fiber)
{
	uint64_t address = (uintptr_t)set;

	getcontext(&fiber->context);
	fiber->context.uc_stack.ss_sp = fiber->stack;
	fiber->context.uc_stack.ss_size = FIBER_STACK_BYTES;
	fiber->context.uc_link = NULL;
	makecontext(&fiber->context, (void (*)(void))ucontext_main, 2, (unsigned int)address,
	            (unsigned int)(address >> 32));
}

static void context_switch(fiber_context *save, fiber_context *to)
{
	swapcontext(save, to);
}

#else

/* fiber_jump(save, to) pushes the kept registers, stores the stack pointer in *save, and continues on the
 * stack at to. fiber_first is where the first jump to a new fiber returns to; a callee-saved register then
 * holds the fiber's set. */
void fiber_jump(void **save, void *to);
void fiber_first(void);

#if defined(__x86_64__)

#define FIRST_WORDS 7 /* r15 r14 r13 r12 rbx rbp and the return address */
#define FIRST_ROOM  9 /* leaves the stack pointer a multiple of 16 once they are popped */

__asm__(".text\n"
        ".globl fiber_jump\n"
        ".hidden fiber_jump\n"
        ".type fiber_jump, @function\n"
        "fiber_jump:\n"
        "	pushq %rbp\n"
        "	pushq %rbx\n"
        "	pushq %r12\n"
        "	pushq %r13\n"
        "	pushq %r14\n"
        "	pushq %r15\n"
        "	movq %rsp, (%rdi)\n"
        "	movq %rsi, %rsp\n"
        "	popq %r15\n"
        "	popq %r14\n"
        "	popq %r13\n"
        "	popq %r12\n"
        "	popq %rbx\n"
        "	popq %rbp\n"
        "	ret\n"
        ".size fiber_jump, . - fiber_jump\n"
        ".globl fiber_first\n"
        ".hidden fiber_first\n"
        ".type fiber_first, @function\n"
        "fiber_first:\n"
        "	movq %rbx, %rdi\n"
        "	xorl %ebp, %ebp\n"
        "	call fiber_main\n"
        ".size fiber_first, . - fiber_first\n");

static void fill_first(void **words, struct fiber_set *set)
{
	words[4] = set;
	words[6] = (void *)fiber_first;
}

#else /* aarch64 */

#define FIRST_WORDS 20 /* x19 to x30, d8 to d15 */
#define FIRST_ROOM  FIRST_WORDS

__asm__(".text\n"
        ".globl fiber_jump\n"
        ".hidden fiber_jump\n"
        ".type fiber_jump, %function\n"
        "fiber_jump:\n"
        "	sub sp, sp, #160\n"
        "	stp x19, x20, [sp, #0]\n"
        "	stp x21, x22, [sp, #16]\n"
        "	stp x23, x24, [sp, #32]\n"
        "	stp x25, x26, [sp, #48]\n"
        "	stp x27, x28, [sp, #64]\n"
        "	stp x29, x30, [sp, #80]\n"
        "	stp d8, d9, [sp, #96]\n"
        "	stp d10, d11, [sp, #112]\n"
        "	stp d12, d13, [sp, #128]\n"
        "	stp d14, d15, [sp, #144]\n"
        "	mov x9, sp\n"
        "	str x9, [x0]\n"
        "	mov sp, x1\n"
        "	ldp x19, x20, [sp, #0]\n"
        "	ldp x21, x22, [sp, #16]\n"
        "	ldp x23, x24, [sp, #32]\n"
        "	ldp x25, x26, [sp, #48]\n"
        "	ldp x27, x28, [sp, #64]\n"
        "	ldp x29, x30, [sp, #80]\n"
        "	ldp d8, d9, [sp, #96]\n"
        "	ldp d10, d11, [sp, #112]\n"
        "	ldp d12, d13, [sp, #128]\n"
        "	ldp d14, d15, [sp, #144]\n"
        "	add sp, sp, #160\n"
        "	ret\n"
        ".size fiber_jump, . - fiber_jump\n"
        ".globl fiber_first\n"
        ".hidden fiber_first\n"
        ".type fiber_first, %function\n"
        "fiber_first:\n"
        "	mov x0, x19\n"
        "	bl fiber_main\n"
        ".size fiber_first, . - fiber_first\n");

static void fill_first(void **words, struct fiber_set *set)
{
	words[0] = set;
	words[11] = (void *)fiber_first;
}

#endif

/* Prepares the stack as fiber_jump would have left it. */
static void context_init(struct fiber_set *set, struct fiber *fiber)
{
	void **words = (void **)(fiber->stack + FIBER_STACK_BYTES) - FIRST_ROOM;

	for (int i = 0; i < FIRST_WORDS; i++)
		words[i] = NULL;
	fill_first(words, set);
	fiber->context = words;
}

static void context_switch(fiber_context *save, fiber_context *to)
{
	fiber_jump(save, *to);
}

#endif
