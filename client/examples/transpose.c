/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes a 3 x 4 matrix in memory that both sides map. */
#include <stdio.h>
#include <tmaclient.h>

enum { ROWS = 3, COLUMNS = 4, BYTES = ROWS * COLUMNS * sizeof(float) };

static int transpose(tma_client *client)
{
	struct tma_tensor src = {
		.dtype = TMA_FLOAT32,
		.rank = 2,
		.shape = { ROWS, COLUMNS },
	};
	struct tma_tensor dst = {
		.dtype = TMA_FLOAT32,
		.rank = 2,
		.shape = { COLUMNS, ROWS },
	};
	const int perm[] = { 1, 0 };
	float *source, *result;
	int r;

	r = tma_region_create_kind(client, TMA_REGION_MEMFD, BYTES,
	                           &src.region);
	if (r == 0)
		r = tma_region_create_kind(client, TMA_REGION_MEMFD, BYTES,
		                           &dst.region);
	if (r < 0)
		return r;

	source = tma_region_data(src.region);
	for (int i = 0; i < ROWS * COLUMNS; i++)
		source[i] = (float)i;
	r = tma_transpose(client, &dst, &src, perm);
	if (r < 0)
		return r;

	result = tma_region_data(dst.region);
	for (int i = 0; i < COLUMNS; i++, result += ROWS)
		printf("%4g %4g %4g\n", result[0], result[1], result[2]);
	printf("moved by %s\n", tma_last_result(client)->path);
	return 0;
}

int main(void)
{
	tma_client *client = tma_new();
	int r = client ? tma_connect(client, NULL) : TMA_NO_MEMORY;

	if (r == 0)
		r = transpose(client);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", tma_status_name(r),
		        client ? tma_last_error(client) : "");
	tma_free(client); /* and everything that belongs to it */
	return r < 0;
}
