#include "conformance_judge.h"

#include <stdio.h>
#include <string.h>

#define TOLD_EACH 3

/* "dim stride": each field that a rule names, once. */
static void name_fields(const struct tensor_map_rules *rules, char *ret, size_t size)
{
	size_t used = 0;

	*ret = '\0';
	for (int i = 0; i < rules->n && used < size - 1; i++) {
		char field[24];

		snprintf(field, sizeof field, "%.*s ", (int)strcspn(rules->text[i], "[:"), rules->text[i]);
		if (strstr(ret, field))
			continue;
		snprintf(ret + used, size - used, "%s", field);
		used = strlen(ret);
	}
}

static bool is_news(struct judge *judge, const char *kind)
{
	int i = 0;

	while (i < judge->n_kinds && strcmp(judge->kinds[i].fields, kind))
		i++;
	if (i == sizeof judge->kinds / sizeof judge->kinds[0])
		return false;
	if (i == judge->n_kinds)
		strcpy(judge->kinds[judge->n_kinds++].fields, kind);
	return judge->kinds[i].told++ < TOLD_EACH;
}

bool judge_map(struct judge *judge, const struct draw *draw, uint64_t address, CUresult result)
{
	struct tensor_map_rules rules;
	bool legal = tensor_map_check(&draw->layout, address, &rules) == 0;
	char kind[sizeof judge->kinds[0].fields], text[512];

	if (legal == (result == CUDA_SUCCESS)) {
		judge->legal += legal;
		judge->illegal += !legal;
		return legal;
	}
	judge->apart++;
	name_fields(&rules, kind, sizeof kind);
	if (!is_news(judge, kind))
		return false;
	draw_print(draw, text, sizeof text);
	if (legal)
		printf("# the driver refuses what breaks no rule, with result %d [%s]\n", result, text);
	else
		printf("# the driver takes what breaks %d, the first being: %s [%s]\n", rules.n,
		       rules.text[0], text);
	return false;
}
