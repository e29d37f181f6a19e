/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops in plain C with 16-byte vectors, for any machine. There are no non-temporal stores. */
#include "isa.h"

#define TARGET
#define VECTOR             vec16
#define WIDTH              16
#define GATHER(p, pitch)   load16(p)
#define LANES(p, o, n)     load16((p) + (o)[0])
#define STORE(p, v)        store16(p, v)
#define STREAM(p, v)       store16(p, v)
#define FENCE()            ((void)0)
#define SHUFFLE(v, mask)   shuffle16(v, mask)
#define SHUFFLE16(v, mask) shuffle16(v, mask)
#define LOW1               MERGE_LOW1
#define LOW2               MERGE_LOW2
#define LOW4               MERGE_LOW4
#define LOW8               MERGE_LOW8
#define HIGH1              MERGE_HIGH1
#define HIGH2              MERGE_HIGH2
#define HIGH4              MERGE_HIGH4
#define HIGH8              MERGE_HIGH8
#define CONVERT_WIDTH      16
#define ISA                cpu_isa_plain
#define ISA_NAME           "plain"

static __attribute__((noinline)) vec16 shuffle16(vec16 v, vec16 mask)
{
	vec16 out;
	for (int i = 0; i < 16; i++)
		out[i] = mask[i] & 0x80 ? 0 : v[mask[i] & 15];
	return out;
}

#include "isa_body.h"
