/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses between the engines of this build, and opens those of several devices side by side, each in a
 * process of its own (process.h says why). One that is alone is opened in this process, which takes less time
 * for each request. */
#include "engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/observe/log.h"
#include "kernels/process/process.h"

#define NAME_BYTES 64 /* of a device, as it is named */

/* An engine on its way. */
struct opening {
	char name[NAME_BYTES];
	struct engine_options options;
	struct engine *engine; /* NULL: it did not open */
	struct error why;
};

/* ---- Names of devices ---------------------------------------------------------------------------------- */

/* The next of a list, in name; NULL: it is too long. *list is what follows, NULL at the end. */
static const char *next_name(const char **list, char name[NAME_BYTES])
{
	const size_t len = strcspn(*list, ",");

	if (len >= NAME_BYTES)
		return NULL;
	memcpy(name, *list, len);
	name[len] = '\0';
	*list = (*list)[len] ? *list + len + 1 : NULL;
	return name;
}

static bool is_all(const char *devices)
{
	return !devices || !strcmp(devices, "all");
}

int engines_check_devices(const char *devices, struct error *err)
{
	char name[NAME_BYTES];
	int n = 0;

	for (const char *list = devices; list && !is_all(devices); n++)
		if (!next_name(&list, name) || !*name || !strcmp(name, "all") || n == ENGINES_MOST)
			return error_set(
			    err, STATUS_INVALID_ARGUMENT,
			    "it takes all, or at most %d ordinals and UUIDs of GPUs separated by "
			    "commas",
			    ENGINES_MOST);
	return 0;
}

/* ---- Several ------------------------------------------------------------------------------------------- */

/* A device by two names is used once. */
static void drop_same(struct opening *openings, int i)
{
	struct opening *own = &openings[i];

	for (int j = 0; j < i && own->engine; j++) {
		const struct engine *other = openings[j].engine;

		if (!other || !*other->uuid || strcasecmp(other->uuid, own->engine->uuid) != 0)
			continue;
		engine_close(own->engine);
		own->engine = NULL;
		error_set(&own->why, STATUS_INVALID_ARGUMENT, "it is the same device as %s",
		          openings[j].name);
	}
}

static int take_opened(struct chosen_engines *ret, struct opening *openings, int n, struct error *err)
{
	for (int i = 0; i < n; i++) {
		if (openings[i].engine && engine_process_await(openings[i].engine, &openings[i].why) < 0)
			openings[i].engine = NULL;
		drop_same(openings, i);
		if (openings[i].engine)
			ret->engine[ret->n++] = openings[i].engine;
	}
	if (ret->n == 0) {
		*err = openings[0].why;
		return err->status;
	}
	for (int i = 0; i < n; i++)
		if (!openings[i].engine)
			log_line(LOG_LEVEL_WARNING, "device %s is not used: %s", openings[i].name,
			         openings[i].why.message);
	return 0;
}

static int open_single(struct chosen_engines *ret, engine_open_fn *open, const struct engine_options *options,
                       struct error *err)
{
	int r = open(&ret->engine[0], options, err);

	ret->n = r == 0;
	return r;
}

/* Of several devices one can be used: its engine moves into this process. */
static int open_remaining(struct chosen_engines *ret, engine_open_fn *open,
                          const struct engine_options *options, struct error *err)
{
	struct engine_options own = *options;
	char uuid[sizeof ret->engine[0]->uuid];

	memcpy(uuid, ret->engine[0]->uuid, sizeof uuid);
	own.device = uuid;
	engine_close(ret->engine[0]);
	return open_single(ret, open, &own, err);
}

/* names: NULL: by ordinal. */
static int open_several(struct chosen_engines *ret, engine_open_fn *open, const char *names, int n,
                        const struct engine_options *options, struct error *err)
{
	struct opening *openings = calloc((size_t)n, sizeof *openings);
	int r;

	if (!openings)
		return error_set(err, STATUS_NO_MEMORY, "no memory to open %d devices", n);
	for (int i = 0; i < n; i++) {
		openings[i].options = *options;
		if (names)
			next_name(&names, openings[i].name);
		else
			snprintf(openings[i].name, sizeof openings[i].name, "%d", i);
		openings[i].options.device = openings[i].name;
		if (engine_process_start(&openings[i].engine, "cuda", &openings[i].options,
		                         &openings[i].why) < 0)
			openings[i].engine = NULL;
	}
	r = take_opened(ret, openings, n, err);
	free(openings);
	return r == 0 && ret->n == 1 ? open_remaining(ret, open, options, err) : r;
}

/* ---- The choice ---------------------------------------------------------------------------------------- */

static int count_names(const char *devices)
{
	int n = 1;

	for (const char *at = devices; (at = strchr(at, ',')); at++)
		n++;
	return n;
}

static int open_cuda(struct chosen_engines *ret, const struct engine_openers *openers,
                     const struct engine_options *options, struct error *err)
{
	struct engine_options any = *options;
	int n = 1;

	if (!openers->cuda)
		return error_set(err, STATUS_UNSUPPORTED, "this build has the cpu engine only");
	if (!is_all(options->device)) {
		n = count_names(options->device);
		return n > 1 ? open_several(ret, openers->cuda, options->device, n, options, err)
		             : open_single(ret, openers->cuda, options, err);
	}
	any.device = NULL;
	if (openers->cuda_count)
		n = openers->cuda_count(err);
	if (n < 0)
		return n;
	return n > 1 ? open_several(ret, openers->cuda, NULL, n < ENGINES_MOST ? n : ENGINES_MOST, &any, err)
	             : open_single(ret, openers->cuda, &any, err);
}

static int open_any(struct chosen_engines *ret, const struct engine_openers *openers,
                    const struct engine_options *options, struct error *err)
{
	struct error why;

	if (open_cuda(ret, openers, options, &why) == 0)
		return 0;
	snprintf(ret->note, sizeof ret->note, "%s", why.message);
	return open_single(ret, openers->cpu, options, err);
}

int engines_open(struct chosen_engines *ret, const struct engine_openers *openers, enum engine_choice choice,
                 const struct engine_options *options, struct error *err)
{
	struct error why;
	int r;

	*ret = (struct chosen_engines){ 0 };
	switch (choice) {
	case ENGINE_CHOICE_CPU:
		return open_single(ret, openers->cpu, options, err);
	case ENGINE_CHOICE_CUDA:
		r = open_cuda(ret, openers, options, &why);
		return r < 0 ? error_set(err, r, "--engine=cuda: %s", why.message) : 0;
	case ENGINE_CHOICE_AUTO:
		break;
	}
	return open_any(ret, openers, options, err);
}
