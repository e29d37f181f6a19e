/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: on the files of its corpus, and on inputs that its mutator makes from
 * them or from nothing. PROGRAM FILE... runs only these files. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define MOST_BYTES 65536
#define MOST_FILES 1024

struct input {
	size_t size;
	uint8_t data[MOST_BYTES];
};

static struct input input;
static uint64_t changes = 1; /* random state of LLVMFuzzerMutate */

/* Changes, removes or inserts one to four bytes. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
	for (uint64_t times = 1 + oracle_random(&changes) % 4; times && max_size; times--) {
		size_t at = size ? oracle_random(&changes) % size : 0;
		uint8_t byte = (uint8_t)oracle_random(&changes);

		switch (size ? oracle_random(&changes) % 4 : 0) {
		case 0:
			if (size == max_size)
				break;
			memmove(data + at + 1, data + at, size++ - at);
			data[at] = byte;
			break;
		case 1:
			memmove(data + at, data + at + 1, --size - at);
			break;
		case 2:
			data[at] ^= (uint8_t)(1u << byte % 8);
			break;
		default:
			data[at] = byte;
		}
	}
	return size;
}

/* Copies the input to an allocation of its exact size, so that a sanitizer detects an access out of
 * bounds. */
static void run(const struct input *in)
{
	uint8_t *exact = malloc(in->size ? in->size : 1);

	if (!exact)
		tap_bail_out("no memory");
	memcpy(exact, in->data, in->size);
	LLVMFuzzerTestOneInput(exact, in->size);
	free(exact);
}

/* Prints the name first: a finding ends the process, so the last name in the log is that of its input. */
static bool run_file(const char *directory, const char *name)
{
	char path[4096];
	FILE *file;

	tap_note("%s", name);
	snprintf(path, sizeof path, "%s%s%s", directory, *directory ? "/" : "", name);
	file = fopen(path, "rbe");
	if (!file)
		return false;
	input.size = fread(input.data, 1, sizeof input.data, file);
	fclose(file);
	run(&input);
	return true;
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void run_corpus(const char *directory)
{
	struct dirent **entries;
	int n = scandir(directory, &entries, is_visible, alphasort);
	bool all = n > 0;

	for (int i = 0; i < n; i++) {
		all = run_file(directory, entries[i]->d_name) && all;
		free(entries[i]);
	}
	if (n > 0)
		free(entries);
	tap_case(all, "corpus: %d inputs of %s", n, strrchr(directory, '/') + 1);
}

/* Each input is either entirely new, or the previous one changed once more. */
static void run_mutations(const char *target, long n)
{
	uint64_t random = 1;

	input.size = 0;
	for (long i = 0; i < n; i++) {
		if (oracle_random(&random) % 16 == 0)
			input.size = 0;
		input.size = LLVMFuzzerCustomMutator(input.data, input.size, sizeof input.data / 8,
		                                     (unsigned)oracle_random(&random));
		run(&input);
	}
	tap_case(true, "mutations: %ld inputs generated for %s", n, target);
}

int main(int argc, char **argv)
{
	const char *source = getenv("TEST_SRCDIR");
	char directory[4096];

	for (int i = 1; i < argc; i++)
		if (!run_file("", argv[i]))
			tap_bail_out("%s cannot be read", argv[i]);
	if (argc > 1)
		return 0;
	snprintf(directory, sizeof directory, "%s/tests/fuzz/corpus/" FUZZ_TARGET, source ? source : ".");
	run_corpus(directory);
	run_mutations(FUZZ_TARGET, tap_portion(FUZZ_MADE));
	return tap_end();
}
