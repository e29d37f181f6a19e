/* SPDX-License-Identifier: Apache-2.0 */
/* The first bytes of a message, before all of it has come: whether it is a request, and its msgid. */
#include "rpc.h"

/* A non-negative integer at *pos, which moves behind it. */
static enum rpc_head read_uint(const uint8_t *data, size_t len, size_t *pos, uint64_t *ret)
{
	size_t size;

	if (*pos >= len)
		return RPC_HEAD_SHORT;
	if (data[*pos] < 0x80) {
		*ret = data[(*pos)++];
		return RPC_HEAD_REQUEST;
	}
	if (data[*pos] < 0xcc || data[*pos] > 0xd3)
		return RPC_HEAD_OTHER;
	size = (size_t)1 << (data[*pos] & 3);
	if (len - *pos <= size)
		return RPC_HEAD_SHORT;
	*ret = 0;
	for (size_t i = 1; i <= size; i++)
		*ret = *ret << 8 | data[*pos + i];
	if (data[*pos] >= 0xd0 && *ret >> (8 * size - 1)) /* a negative one */
		return RPC_HEAD_OTHER;
	*pos += 1 + size;
	return RPC_HEAD_REQUEST;
}

/* An array of four, which may be said in three ways, then its type, 0, then the msgid. */
enum rpc_head rpc_find_msgid(const uint8_t *data, size_t len, uint32_t *ret)
{
	size_t pos = 1, more = 0;
	uint64_t type, msgid;
	enum rpc_head r;

	if (len == 0)
		return RPC_HEAD_SHORT;
	if (data[0] == 0xdc || data[0] == 0xdd)
		more = data[0] == 0xdc ? 2 : 4;
	else if (data[0] != 0x94)
		return RPC_HEAD_OTHER;
	for (; pos <= more; pos++) {
		if (pos >= len)
			return RPC_HEAD_SHORT;
		if (data[pos] != (pos == more ? 4 : 0))
			return RPC_HEAD_OTHER;
	}
	r = read_uint(data, len, &pos, &type);
	if (r == RPC_HEAD_REQUEST && type != 0)
		return RPC_HEAD_OTHER;
	if (r == RPC_HEAD_REQUEST)
		r = read_uint(data, len, &pos, &msgid);
	if (r != RPC_HEAD_REQUEST)
		return r;
	if (msgid > UINT32_MAX)
		return RPC_HEAD_OTHER;
	*ret = (uint32_t)msgid;
	return r;
}
