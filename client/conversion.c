/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes the fields of a conversion. */
#include "client.h"

#include <stdio.h>
#include <string.h>

/* The scale or the bias. */
struct operand {
	const char *name;
	const struct tma_number *number;
	const struct tma_tensor *tensor;
};

static int number_param(tma_client *client, const struct operand *operand, struct msg_operand *ret)
{
	ret->has = F(operand, number);
	if (scalar_from_number(operand->number, &ret->number) < 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "%s.kind: %d is not an enum tma_number_kind", operand->name,
		                   (int)operand->number->kind);
	if (ret->number.kind == SCALAR_COMPLEX)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "%s.kind: a complex number, but it must be real", operand->name);
	return 0;
}

static int tensor_param(tma_client *client, const struct operand *operand, struct msg_operand *ret)
{
	struct msg_tensor tensor;
	int rc = tensor_params(client, operand->tensor, operand->name, &tensor);

	if (rc < 0)
		return rc;
	if (tensor.has & F(tensor, split))
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "%s.split: it is not split; only dst and src are", operand->name);
	ret->has = F(operand, dtype) | F(operand, shape);
	ret->dtype = tensor.dtype;
	ret->shape = tensor.shape;
	if (tensor.has & F(tensor, region)) {
		ret->has |= F(operand, region);
		ret->region = tensor.region;
	}
	if (tensor.has & F(tensor, offset)) {
		ret->has |= F(operand, offset);
		ret->offset = tensor.offset;
	}
	if (tensor.has & F(tensor, strides)) {
		ret->has |= F(operand, strides);
		ret->strides = tensor.strides;
	}
	return 0;
}

/* Encodes the operand. Returns 1 if there is one, 0 if there is none, or the last error. */
static int operand_params(tma_client *client, const struct operand *operand, struct msg_operand *ret)
{
	int rc;

	if (operand->number && operand->tensor)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "%s: a number and a tensor; it is one of them", operand->name);
	if (!operand->number && !operand->tensor)
		return 0;
	rc = operand->number ? number_param(client, operand, ret) : tensor_param(client, operand, ret);
	return rc < 0 ? rc : 1;
}

static int result_params(tma_client *client, const struct tma_tensor *tensor, const char *name,
                         struct msg_tensor *ret)
{
	int rc = tensor_params(client, tensor, name, ret);

	if (rc == 0 && ret->has & F(tensor, split))
		rc = client_fail(client, STATUS_INVALID_ARGUMENT,
		                 "%s.split: it is not split; only dst and src are", name);
	return rc;
}

/* Encodes amax. rank is that of the destination: block has an extent for each of its dimensions. */
static int amax_params(tma_client *client, const struct tma_amax *amax, uint32_t rank, struct msg_amax *ret)
{
	int rc = reserved_check(client, amax->reserved, COUNT(amax->reserved), "amax.reserved");

	if (rc < 0)
		return rc;
	if (!amax->block)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "amax.block is NULL");
	ret->has = F(amax, block);
	ret->block.n = rank;
	memcpy(ret->block.v, amax->block, rank * sizeof *amax->block);
	if (amax->scale) {
		ret->has |= F(amax, scale);
		rc = result_params(client, amax->scale, "amax.scale", &ret->scale);
	}
	if (rc == 0 && amax->inverse) {
		ret->has |= F(amax, inverse);
		rc = result_params(client, amax->inverse, "amax.inverse", &ret->inverse);
	}
	if (amax->power_of_two)
		ret->has |= F(amax, power_of_two);
	ret->power_of_two = amax->power_of_two;
	if (amax->least != 0)
		ret->has |= F(amax, least);
	ret->least = (struct scalar){ .kind = SCALAR_FLOATING, .re = amax->least };
	return rc;
}

int conversion_params(tma_client *client, const struct tma_conversion *conversion, struct msg_transform *ret)
{
	const struct operand scale = { "scale", conversion->scale, conversion->scale_tensor };
	const struct operand bias = { "bias", conversion->bias, conversion->bias_tensor };
	int rc =
	    reserved_check(client, conversion->reserved, COUNT(conversion->reserved), "conversion.reserved");

	if (rc < 0)
		return rc;
	if ((unsigned)conversion->cast >= CAST_COUNT)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "cast: %d is not an enum tma_cast",
		                   (int)conversion->cast);
	ret->has |= F(transform, cast);
	ret->cast = (enum cast)conversion->cast;
	rc = operand_params(client, &scale, &ret->scale);
	if (rc > 0)
		ret->has |= F(transform, scale);
	if (rc >= 0)
		rc = operand_params(client, &bias, &ret->bias);
	if (rc > 0)
		ret->has |= F(transform, bias);
	if (rc < 0 || !conversion->amax)
		return rc < 0 ? rc : 0;
	ret->has |= F(transform, amax);
	return amax_params(client, conversion->amax, ret->dst.shape.n, &ret->amax);
}
