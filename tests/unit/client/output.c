/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that an output file appears whole or not at all. */
#include "client/tmactl/npy/output.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

static char directory[] = "/tmp/tmactl-output-XXXXXX";
static char path[64];

static void setup(void)
{
	cr_assert_not_null(mkdtemp(directory));
	snprintf(path, sizeof path, "%s/out", directory);
}

static int entries(void)
{
	DIR *d = opendir(directory);
	int n = -2; /* leaves out . and .. */

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof command, "rm -r %s", directory);
	cr_assert_eq(system(command), 0);
}

TestSuite(output, .init = setup, .fini = teardown);

static void put_file(const char *name, const char *text, mode_t mode)
{
	int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	cr_assert_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void expect_file(const char *name, const char *text, mode_t mode)
{
	char data[64] = { 0 };
	int fd = open(name, O_RDONLY);
	struct stat st;

	cr_assert_geq(fd, 0, "%s", name);
	cr_assert_geq(read(fd, data, sizeof data - 1), 0);
	cr_assert_str_eq(data, text);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_mode & 07777, mode, "%o", st.st_mode);
	close(fd);
}

static void write_output(struct output *o, const char *text)
{
	struct failure f = { 0 };

	cr_assert_eq(output_open(o, path, strlen(text), OUTPUT_REPLACE, NULL, &f), 0, "%s", f.text);
	cr_assert_eq(output_write(o, text, strlen(text), 0, &f), 0, "%s", f.text);
}

Test(output, a_new_file_takes_the_umask)
{
	struct failure f = { 0 };
	struct output o;

	umask(027);
	write_output(&o, "new");
	cr_assert_eq(access(path, F_OK), -1);
	cr_assert_eq(output_commit(&o, &f), 0, "%s", f.text);
	output_deinit(&o);
	expect_file(path, "new", 0640);
	cr_assert_eq(entries(), 1);
}

Test(output, a_file_that_is_there_is_replaced_and_keeps_its_mode)
{
	struct failure f = { 0 };
	struct output o;

	put_file(path, "old", 0604);
	write_output(&o, "new");
	expect_file(path, "old", 0604);
	cr_assert_eq(output_commit(&o, &f), 0, "%s", f.text);
	output_deinit(&o);
	expect_file(path, "new", 0604);
	cr_assert_eq(entries(), 1);
}

Test(output, giving_up_leaves_what_was_there)
{
	struct output o;

	put_file(path, "old", 0600);
	write_output(&o, "half");
	output_deinit(&o);
	expect_file(path, "old", 0600);
	cr_assert_eq(entries(), 1);
}

Test(output, a_link_stays_and_its_target_is_replaced)
{
	struct failure f = { 0 };
	char target[80];
	struct stat st;
	struct output o;

	snprintf(target, sizeof target, "%s/target", directory);
	cr_assert_eq(symlink("target", path), 0);
	write_output(&o, "made"); /* the link dangles */
	cr_assert_eq(output_commit(&o, &f), 0, "%s", f.text);
	output_deinit(&o);
	write_output(&o, "new");
	cr_assert_eq(output_commit(&o, &f), 0, "%s", f.text);
	output_deinit(&o);
	cr_assert_eq(lstat(path, &st), 0);
	cr_assert(S_ISLNK(st.st_mode));
	expect_file(target, "new", st.st_mode ? 0666 & ~umask(0) : 0);
	cr_assert_eq(entries(), 2);
}

Test(output, what_is_no_regular_file_is_refused)
{
	struct failure f = { 0 };
	struct output o;

	cr_assert_eq(output_open(&o, directory, 1, OUTPUT_REPLACE, NULL, &f), -1);
	cr_assert_not_null(strstr(f.text, "is a directory"), "%s", f.text);
	cr_assert_eq(f.code, EXIT_FAILED);
	output_deinit(&o);
	f = (struct failure){ 0 };
	cr_assert_eq(output_open(&o, "/tmp/no/such/directory/out", 1, OUTPUT_REPLACE, NULL, &f), -1);
	cr_assert_not_null(strstr(f.text, "No such file or directory"), "%s", f.text);
	output_deinit(&o);
	cr_assert_eq(symlink("out", path), 0);
	f = (struct failure){ 0 };
	cr_assert_eq(output_open(&o, path, 1, OUTPUT_REPLACE, NULL, &f), -1);
	cr_assert_not_null(strstr(f.text, "symbolic links"), "%s", f.text);
	output_deinit(&o);
}

Test(output, nothing_is_replaced_that_is_to_be_kept)
{
	struct failure f = { 0 };
	struct output o;

	put_file(path, "old", 0600);
	cr_assert_eq(output_open(&o, path, 3, OUTPUT_NO_CLOBBER, NULL, &f), -1);
	cr_assert_not_null(strstr(f.text, "exists"), "%s", f.text);
	output_deinit(&o);
	expect_file(path, "old", 0600);

	/* Another file appears at the path while the new one is written. */
	cr_assert_eq(unlink(path), 0);
	f = (struct failure){ 0 };
	cr_assert_eq(output_open(&o, path, 3, OUTPUT_NO_CLOBBER, NULL, &f), 0, "%s", f.text);
	cr_assert_eq(output_write(&o, "new", 3, 0, &f), 0, "%s", f.text);
	put_file(path, "old", 0600);
	cr_assert_eq(output_commit(&o, &f), -1);
	cr_assert_not_null(strstr(f.text, "exists"), "%s", f.text);
	output_deinit(&o);
	expect_file(path, "old", 0600);
	cr_assert_eq(entries(), 1);

	cr_assert_eq(unlink(path), 0);
	f = (struct failure){ 0 };
	umask(077);
	cr_assert_eq(output_open(&o, path, 3, OUTPUT_NO_CLOBBER, NULL, &f), 0, "%s", f.text);
	cr_assert_eq(output_write(&o, "new", 3, 0, &f), 0, "%s", f.text);
	cr_assert_eq(output_commit(&o, &f), 0, "%s", f.text);
	output_deinit(&o);
	expect_file(path, "new", 0600);
	cr_assert_eq(entries(), 1);
}

/* The rows say where the second of two files that belong together is, what was there before, and whether both
 * are put in place. */
struct pair_row {
	const char *name;
	bool has_first, has_second, second_is_directory;
	enum output_clobber clobber;
	bool second_comes; /* a file appears at the second path meanwhile, which --no-clobber then protects */
	int rc;
};

Test(output, files_that_belong_together_appear_together)
{
	static const struct pair_row rows[] = {
		{ .name = "both are new" },
		{ .name = "both are replaced", .has_first = true, .has_second = true },
		{ .name = "one is replaced", .has_second = true },
		{ .name = "a directory came, and the first is new", .second_is_directory = true, .rc = -1 },
		{ .name = "a directory came, and the first was there",
		  .has_first = true,
		  .second_is_directory = true,
		  .rc = -1 },
		{ .name = "a file came", .clobber = OUTPUT_NO_CLOBBER, .second_comes = true, .rc = -1 },
		{ .name = "both are new, and protected", .clobber = OUTPUT_NO_CLOBBER },
	};
	char second_path[64];

	snprintf(second_path, sizeof second_path, "%s/second", directory);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const struct pair_row *row = &rows[i];
		struct failure f = { 0 };
		struct output first, second;
		struct output *const both[] = { &first, &second };

		unlink(path);
		if (unlink(second_path) < 0)
			rmdir(second_path);
		if (row->has_first)
			put_file(path, "old", 0640);
		if (row->has_second)
			put_file(second_path, "older", 0604);
		cr_assert_eq(output_open(&first, path, 3, row->clobber, NULL, &f), 0, "%s", f.text);
		cr_assert_eq(output_open(&second, second_path, 3, row->clobber, NULL, &f), 0, "%s", f.text);
		cr_assert_eq(output_write(&first, "new", 3, 0, &f), 0, "%s", f.text);
		cr_assert_eq(output_write(&second, "add", 3, 0, &f), 0, "%s", f.text);
		if (row->second_is_directory)
			cr_assert_eq(mkdir(second_path, 0700), 0);
		if (row->second_comes)
			put_file(second_path, "older", 0604);
		cr_assert_eq(output_commit_all(both, 2, &f), row->rc, "%s: %s", row->name, f.text);
		output_deinit(&first);
		output_deinit(&second);
		if (row->rc == 0) {
			expect_file(path, "new", row->has_first ? 0640 : 0644);
			expect_file(second_path, "add", row->has_second ? 0604 : 0644);
		} else if (row->has_first) {
			expect_file(path, "old", 0640);
		} else {
			cr_assert_neq(access(path, F_OK), 0, "%s", row->name);
		}
		if (row->second_comes)
			expect_file(second_path, "older", 0604);
		cr_assert_eq(entries(), row->rc == 0 || row->has_first ? 2 : 1, "%s: %d", row->name,
		             entries());
	}
}

Test(output, one_output_by_two_paths)
{
	char other[128], link_path[64];

	snprintf(other, sizeof other, "%s/../%s/./out", directory, strrchr(directory, '/') + 1);
	snprintf(link_path, sizeof link_path, "%s/link", directory);
	cr_assert_eq(symlink("out", link_path), 0);
	cr_assert(output_is_one(path, path));
	cr_assert(output_is_one(path, other));
	cr_assert(output_is_one(link_path, other));
	cr_assert(output_is_one("-", "/dev/stdout"));
	cr_assert_not(output_is_one(path, "-"));
	cr_assert_not(output_is_one(path, directory));
	snprintf(other, sizeof other, "%s/out2", directory);
	cr_assert_not(output_is_one(path, other));
	snprintf(other, sizeof other, "%s/none/out", directory);
	cr_assert_not(output_is_one(other, other), "there is no such directory");
}

Test(output, root_gives_a_file_back_to_its_owner)
{
	struct failure f = { 0 };
	struct output o;
	struct stat st;

	if (geteuid())
		cr_skip_test("only root gives files away");
	put_file(path, "old", 0600);
	cr_assert_eq(chown(path, 12345, 23456), 0);
	cr_assert_eq(chmod(path, 04640), 0);
	write_output(&o, "new");
	cr_assert_eq(output_commit(&o, &f), 0, "%s", f.text);
	output_deinit(&o);
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq(st.st_uid, 12345);
	cr_assert_eq(st.st_gid, 23456);
	cr_assert_eq(st.st_mode & 07777, 04640, "%o", st.st_mode);
}

Test(output, a_full_disk_names_the_file_and_what_it_needs)
{
	struct failure f = { 0 };
	struct output o = { .fd = open("/dev/full", O_WRONLY), .path = "big.npy", .bytes = 12345 };

	cr_assert_eq(output_write(&o, "x", 1, 0, &f), -1);
	cr_assert_not_null(strstr(f.text, "big.npy: no space: it needs 12345 bytes"), "%s", f.text);
	close(o.fd);
}
