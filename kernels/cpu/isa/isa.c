/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the best instruction set that both this build and this machine have. */
#include "isa.h"

#ifdef __x86_64__
#include <cpuid.h>

/* Returns whether the CPU converts between float16 and float32. Not all supported compilers know this feature
 * by name. */
static bool has_f16c(void)
{
	unsigned a, b, c = 0, d;
	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const struct cpu_isa *cpu_isa_get(enum cpu_isa_level level)
{
	switch (level) {
	case CPU_ISA_PLAIN:
		return &cpu_isa_plain;
#ifdef __x86_64__
	case CPU_ISA_AVX2:
		return __builtin_cpu_supports("avx2") && has_f16c() ? &cpu_isa_avx2 : NULL;
	case CPU_ISA_AVX512:
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
		           ? &cpu_isa_avx512
		           : NULL;
#endif
#ifdef __aarch64__
	case CPU_ISA_NEON:
		return &cpu_isa_neon;
#endif
	default:
		return NULL;
	}
}

const struct cpu_isa *cpu_isa_best(void)
{
	int level = CPU_ISA_LEVELS - 1;
	while (!cpu_isa_get(level))
		level--;
	return cpu_isa_get(level);
}
