/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the watcher with more words than one sleep takes, and on a kernel without futex_waitv. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/host/memory.h"
#include "rig.h"
#include "words.h"

#define FUTEX_WAITV 449

struct many_row {
	char name[24];
	int streams;
	uint32_t words; /* words of one sleep */
	int refused;    /* error that futex_waitv returns; 0: it works */
};

ParameterizedTestParameters(watcher, many)
{
	static struct many_row rows[] = {
		{ "one", 1, 127, 0 },
		{ "as many as it takes", 127, 127, 0 },
		{ "one more", 128, 127, 0 },
		{ "300", 300, 127, 0 },
		{ "300, three at a time", 300, 3, 0 },
		{ "naps", 100, 0, 0 },
		{ "an old kernel", 100, 127, ENOSYS },
		{ "a filter", 100, 127, EPERM },
	};
	return cr_make_param_array(struct many_row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* Makes futex_waitv fail in this thread and in those that it starts. */
static void refuse(int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_WAITV, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = 4, .filter = filter };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		cr_skip_test("no filter of system calls can be had");
	cr_assert_eq(syscall(FUTEX_WAITV, NULL, 0, 0, NULL, 0), -1);
	cr_assert_eq(errno, error);
}

/* Each stream waits for a word of its own. The words are set in another order, and each releases its own job
 * alone. */
ParameterizedTest(struct many_row *row, watcher, many)
{
	enum { MOST = 300 };
	static struct work work[MOST];
	struct engine_stream *stream[MOST];
	if (row->refused)
		refuse(row->refused);
	open_engine_words(1, 0, row->words);
	struct engine_memory *dst = new_memory(4096), *src = new_memory(4096);
	struct engine_memory *words = new_memory(MOST * 64);
	for (int i = 0; i < row->streams; i++) {
		stream[i] = engine_stream_new(engine, &owner);
		work_init(&work[i], 32, true, dst, src);
		work[i].job.wait = (struct engine_point){ words, (uint64_t)i * 64, 1 };
		work[i].job.wait_until_ns = UINT64_MAX;
		engine_submit(engine, stream[i], &work[i].job);
	}
	for (int n = 0; n < row->streams; n++) {
		int i = n * 37 % row->streams; /* visits each stream once, as both numbers are coprime */
		cr_assert_eq(n_done, (size_t)n, "%s", row->name);
		word_set(words, (uint64_t)i * 64, 1);
		wait_done((size_t)n + 1);
		cr_assert_eq(done[n], &work[i].job, "%s: stream %d", row->name, i);
		cr_assert_eq(work[i].job.status, 0, "%s: stream %d", row->name, i);
	}
	for (int i = 0; i < row->streams; i++)
		engine_stream_free(engine, stream[i]);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, words);
	close_engine();
}

/* One word is changed and woken all the time without reaching its value, and another one reaches it. */
Test(watcher, a_word_that_stirs)
{
	static struct work stirred, other;
	open_engine_words(1, 0, 127);
	struct engine_stream *a = engine_stream_new(engine, &owner), *b = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(4096), *src = new_memory(4096), *words = new_memory(4096);
	work_init(&stirred, 32, true, dst, src);
	stirred.job.wait = (struct engine_point){ words, 0, 1000000 };
	stirred.job.wait_until_ns = UINT64_MAX;
	engine_submit(engine, a, &stirred.job);
	work_init(&other, 32, true, dst, src);
	other.job.wait = (struct engine_point){ words, 8, 1 };
	other.job.wait_until_ns = UINT64_MAX;
	engine_submit(engine, b, &other.job);
	for (uint64_t i = 1; i < 20000; i++)
		word_set(words, 0, i);
	word_set(words, 8, 1);
	wait_done(1);
	cr_assert_eq(done[0], &other.job);
	word_set(words, 0, 1000000);
	wait_done(2);
	cr_assert_eq(stirred.job.status, 0);
	engine_stream_free(engine, a);
	engine_stream_free(engine, b);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, words);
	close_engine();
}
