/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed memory against a real tmad: what the library seals for a service that asks for it, what it leaves
 * alone, and how sealed memory moves to the next service. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define BYTES 8192

static struct process service;
static tma_client *client;

static void start(const char *argument)
{
	client = rig_start(&service, argument);
}

static void setup(void)
{
	start("--trust-own-uid=off");
}

static void teardown(void)
{
	rig_stop(&service, client);
}

TestSuite(library_seal, .fini = teardown, .timeout = 60);

static void restart(void)
{
	process_kill(&service);
	process_start_again(&service, "--trust-own-uid=off");
}

static tma_region *made(size_t size)
{
	tma_region *region = NULL;

	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, size, &region), 0, "%s",
	             tma_last_error(client));
	return region;
}

/* Copies 100 bytes between the starts of two regions. */
static int copy(tma_region *dst, tma_region *src)
{
	struct tma_tensor d = { .region = dst, .dtype = TMA_UINT8, .rank = 1, .shape = { 100 } };
	struct tma_tensor s = { .region = src, .dtype = TMA_UINT8, .rank = 1, .shape = { 100 } };

	return tma_copy(client, &d, &s);
}

static void assert_copies(tma_region *dst, tma_region *src, int byte)
{
	memset(tma_region_data(src), byte, 100);
	cr_assert_eq(copy(dst, src), 0, "%s", tma_last_error(client));
	cr_assert_eq(memcmp(tma_region_data(dst), tma_region_data(src), 100), 0);
}

/* Finds, without the library, this process's descriptor of the file mapped at data. */
static int fd_of(const void *data)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	DIR *fds = opendir("/proc/self/fd");
	unsigned long start, end, inode = 0, wanted = (unsigned long)data;
	struct dirent *entry;
	char line[512];
	int ret = -1;

	while (!inode && fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &start, &end, &inode) != 3 || wanted < start ||
		    wanted >= end)
			inode = 0;
	fclose(maps);
	while (ret < 0 && (entry = readdir(fds))) {
		struct stat st;

		if (fstat(atoi(entry->d_name), &st) == 0 && st.st_ino == inode && st.st_nlink == 0)
			ret = atoi(entry->d_name);
	}
	closedir(fds);
	cr_assert(inode && ret >= 0);
	return ret;
}

static bool is_sealed(tma_region *region)
{
	return fcntl(fd_of(tma_region_data(region)), F_GET_SEALS) & F_SEAL_FUTURE_WRITE;
}

/* Skips the test without userfaultfd of the required kind, since nothing is sealed then. */
static void need_sealing(void)
{
	tma_region *region = made(BYTES), *other = made(BYTES);

	assert_copies(region, other, 1);
	if (!is_sealed(region))
		cr_skip("this kernel cannot hold up writers to files in memory");
	tma_region_release(region);
	tma_region_release(other);
}

/* Returns whether the service seals memory that its users have not sealed, which it does with a device. */
static bool service_seals(void)
{
	return strcmp(process_engine(), "cuda") == 0;
}

/* ---- What is sealed ---------------------------------------------------------------------------------- */

Test(library_seal, what_requests_use_is_sealed, .init = setup)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
	tma_region *dst = made(BYTES), *src = made(BYTES), *unused = made(BYTES);
	int fd;

	need_sealing();
	assert_copies(dst, src, 2);
	cr_assert(is_sealed(dst) && is_sealed(src) && !is_sealed(unused));
	assert_copies(dst, src, 3);
	fd = tma_region_fd(dst);
	cr_assert_eq(fcntl(fd, F_GET_SEALS) & seals, seals);
	cr_assert_eq(mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	cr_assert_eq(errno, EPERM);
	cr_assert_neq(mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
	cr_assert_eq(madvise(tma_region_data(dst), 4096, MADV_REMOVE), -1);
	cr_assert_eq(errno, EPERM, "no holes");
}

/* The ring's memory is no region of the program: it is found by its descriptor alone. */
Test(library_seal, a_ring_is_sealed, .init = setup)
{
	tma_ring *ring = NULL;
	DIR *fds;
	struct dirent *entry;
	int n = 0;

	need_sealing();
	cr_assert_eq(tma_ring_open(client, 64, 0, &ring), 0, "%s", tma_last_error(client));
	fds = opendir("/proc/self/fd");
	while ((entry = readdir(fds))) {
		const int seals = fcntl(atoi(entry->d_name), F_GET_SEALS);

		n += seals > 0 && seals & F_SEAL_FUTURE_WRITE;
	}
	closedir(fds);
	cr_assert_eq(n, 1);
	cr_assert_eq(tma_ring_close(ring), 0);
}

Test(library_seal, what_the_program_shares_is_not_sealed, .init = setup)
{
	tma_region *by_fd = made(BYTES), *by_address = made(BYTES), *twice = made(BYTES), *mine = NULL,
		   *again;
	struct tma_mapping mapping;
	int fd = memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert_eq(ftruncate(fd, BYTES), 0);
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, BYTES, 0, &mine), 0);
	cr_assert_geq(tma_region_fd(by_fd), 0);
	cr_assert_eq(tma_region_map(by_address, &mapping), 0);
	cr_assert_eq(tma_region_from_host_ptr(client, tma_region_data(twice), BYTES, 0, &again), 0, "%s",
	             tma_last_error(client));
	assert_copies(by_fd, by_address, 4);
	cr_assert_eq(copy(mine, twice), 0, "%s", tma_last_error(client));
	cr_assert_eq(copy(again, by_fd), 0, "%s", tma_last_error(client));
	if (service_seals()) {
		cr_assert(is_sealed(by_fd) && is_sealed(by_address) && is_sealed(twice));
		cr_assert(fcntl(fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE);
		return;
	}
	cr_assert(!is_sealed(by_fd) && !is_sealed(by_address) && !is_sealed(twice));
	cr_assert_eq(fcntl(fd, F_GET_SEALS), 0, "the library seals only what it made");
	restart();
	assert_copies(by_fd, by_address, 5);
	cr_assert_eq(copy(mine, twice), 0, "%s", tma_last_error(client));
	cr_assert(!is_sealed(by_fd) && !is_sealed(by_address) && !is_sealed(twice));
}

Test(library_seal, sealed_memory_is_one_region, .init = setup)
{
	tma_region *region = made(BYTES), *other = made(BYTES), *again = NULL;
	char *data = tma_region_data(region);
	const struct {
		const char *name;
		size_t at, size;
		unsigned flags;
	} rows[] = {
		{ "part of it", 1, BYTES - 1, 0 },
		{ "its start", 0, BYTES - 1, 0 },
		{ "for reading", 0, BYTES, TMA_REGION_READ_ONLY },
	};

	need_sealing();
	assert_copies(region, other, 6);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		cr_assert_eq(
		    tma_region_from_host_ptr(client, data + rows[i].at, rows[i].size, rows[i].flags, &again),
		    TMA_PERMISSION, "%s", rows[i].name);
		cr_assert(strstr(tma_last_error(client), "which has sealed it"), "%s: %s", rows[i].name,
		          tma_last_error(client));
		cr_assert_null(again, "%s", rows[i].name);
	}
	cr_assert_eq(tma_region_from_host_ptr(client, data, BYTES, 0, &again), 0, "%s",
	             tma_last_error(client));
	cr_assert_eq(again, region);
	cr_assert_eq(tma_region_release(again), 0);
	assert_copies(region, other, 7);
}

static void setup_trusting(void)
{
	start(NULL);
}

Test(library_seal, a_service_that_trusts_the_user_asks_for_nothing, .init = setup_trusting)
{
	tma_region *dst = made(BYTES), *src = made(BYTES);

	assert_copies(dst, src, 7);
	cr_assert(!is_sealed(dst) && !is_sealed(src));
}

/* Without userfaultfd, sealed memory could not be moved to another file. */
Test(library_seal, without_userfaultfd_nothing_is_sealed, .init = setup)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	tma_region *dst = made(BYTES), *src = made(BYTES);

	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		cr_skip("no system call can be refused here");
	assert_copies(dst, src, 8);
	cr_assert_eq(is_sealed(dst), service_seals());
	cr_assert_eq(is_sealed(src), service_seals());
	restart();
	assert_copies(dst, src, 9);
}

/* ---- The next service -------------------------------------------------------------------------------- */

#define WRITERS   4
#define COUNTERS  64
#define STRIDE    ((size_t)70001 * 8)
#define BIG_BYTES (COUNTERS * STRIDE)

struct writer {
	pthread_t thread;
	uint64_t *words; /* one word in each STRIDE */
	atomic_bool *is_over;
	_Atomic uint64_t n;
};

static void *write_on(void *arg)
{
	struct writer *writer = arg;

	for (uint64_t n = 0; !atomic_load(writer->is_over); atomic_store(&writer->n, ++n)) {
		uint64_t *word = &writer->words[n % COUNTERS * (STRIDE / 8)];

		__atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void wait_for_writes(struct writer *writers)
{
	for (int i = 0; i < WRITERS; i++)
		for (uint64_t before = atomic_load(&writers[i].n);
		     atomic_load(&writers[i].n) < before + 1000;)
			usleep(100);
}

struct user_row {
	char name[32];
	bool is_capable;
};

ParameterizedTestParameters(library_seal, no_write_is_lost_by_a_restart)
{
	static struct user_row rows[] = { { "root", true }, { "without capabilities", false } };

	return cr_make_param_array(struct user_row, rows, sizeof rows / sizeof *rows);
}

/* Threads write continuously, and none of their writes may be lost. */
ParameterizedTest(struct user_row *row, library_seal, no_write_is_lost_by_a_restart, .init = setup)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { { 0 } };
	struct writer writers[WRITERS] = { 0 };
	atomic_bool is_over = false;
	tma_region *big, *small;
	char *start;

	if (!row->is_capable)
		cr_assert_eq(syscall(SYS_capset, &header, data), 0);
	need_sealing();
	big = made(BIG_BYTES);
	small = made(BYTES);
	start = tma_region_data(big);
	assert_copies(small, big, 0);
	for (int i = 0; i < WRITERS; i++) {
		writers[i].words = (uint64_t *)(void *)(start + 128 + 64 * i);
		writers[i].is_over = &is_over;
		cr_assert_eq(pthread_create(&writers[i].thread, NULL, write_on, &writers[i]), 0);
	}
	for (int i = 0; i < 3; i++) {
		int before = fd_of(start);

		wait_for_writes(writers);
		restart();
		cr_assert_eq(tma_ping(client), 0, "%s: %s", row->name, tma_last_error(client));
		cr_assert_eq(fd_of(start), before, "%s: the descriptor has the same number", row->name);
		cr_assert_not(is_sealed(big), "%s: another file", row->name);
		cr_assert_eq(tma_region_data(big), start, "%s", row->name);
		assert_copies(small, big, i + 1);
		cr_assert(is_sealed(big), "%s: sealed again", row->name);
		wait_for_writes(writers);
	}
	atomic_store(&is_over, true);
	for (int i = 0; i < WRITERS; i++) {
		uint64_t n = 0;

		pthread_join(writers[i].thread, NULL);
		for (int j = 0; j < COUNTERS; j++)
			n += writers[i].words[(size_t)j * (STRIDE / 8)];
		cr_assert_eq(n, atomic_load(&writers[i].n), "%s: writer %d", row->name, i);
	}
}

#define SIDE 4096

/* A connection is given up while transforms run: their writes still go to the old file, and the memory moves
 * only after they end. */
Test(library_seal, transforms_of_the_connection_before_end_first, .init = setup)
{
	tma_region *dst = made((size_t)SIDE * SIDE), *src = made((size_t)SIDE * SIDE);
	struct tma_tensor d = { .region = dst, .dtype = TMA_UINT8, .rank = 2, .shape = { SIDE, SIDE } };
	struct tma_tensor s = { .region = src,
		                .dtype = TMA_UINT8,
		                .rank = 2,
		                .shape = { SIDE, SIDE },
		                .strides = (const int64_t[]){ 1, SIDE } };
	const struct tma_transform transpose = { .dst = &d, .src = &s };
	tma_ticket tickets[8];

	need_sealing();
	tma_set_reconnect(client, 60000); /* a slow engine may need seconds to finish those */
	for (int i = 0; i < 5; i++) {
		memset(tma_region_data(dst), 2 * i, (size_t)SIDE * SIDE);
		memset(tma_region_data(src), 2 * i + 1, (size_t)SIDE * SIDE);
		for (int j = 0; j < 8; j++)
			cr_assert_eq(tma_submit(client, &transpose, &tickets[j]), 0, "%s",
			             tma_last_error(client));
		tma_set_timeout(client, 1);
		tma_wait(client, tickets[7], NULL);
		tma_set_timeout(client, -1);
		if (tma_ping(client) == TMA_DISCONNECTED)
			cr_assert_eq(tma_connect(client, service.socket), 0, "%s", tma_last_error(client));
		cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
		for (int j = 0; j < 7; j++)
			tma_wait(client, tickets[j], NULL);
		assert_copies(dst, src, 2 * i + 1);
	}
}

/* A child process that has the memory mapped and writes to it on request. */
struct child {
	pid_t pid;
	int in, out;
};

static void child_start(struct child *child, char *data)
{
	int to[2], from[2];
	char byte;

	cr_assert_eq(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
	child->pid = fork();
	if (child->pid == 0) {
		close(to[1]);
		close(from[0]);
		while (read(to[0], &byte, 1) == 1) {
			*data = byte;
			if (write(from[1], &byte, 1) != 1)
				break;
		}
		_exit(0);
	}
	close(to[0]);
	close(from[1]);
	child->in = to[1];
	child->out = from[0];
}

static void child_write(struct child *child, char byte)
{
	cr_assert_eq(write(child->in, &byte, 1), 1);
	cr_assert_eq(read(child->out, &byte, 1), 1);
}

static void child_end(struct child *child)
{
	close(child->in);
	cr_assert_eq(waitpid(child->pid, NULL, 0), child->pid);
	close(child->out);
}

Test(library_seal, a_forked_child_keeps_the_region_from_moving, .init = setup)
{
	static const char says[] =
	    "connected, but a region of 8192 bytes could not be registered again: another "
	    "process can still write to its memory, which the library had to move, or has "
	    "pinned it; let others use memory that was registered by "
	    "tma_region_register_memfd";
	tma_region *shared = made(BYTES), *other = made(BYTES);
	struct child child;

	need_sealing();
	assert_copies(other, shared, 1);
	child_start(&child, tma_region_data(shared));
	child_write(&child, 7);
	cr_assert_eq(*(char *)tma_region_data(shared), 7);
	tma_region_release(other);
	tma_set_reconnect(client, 100);
	restart();
	cr_assert_eq(tma_ping(client), TMA_BUSY);
	cr_assert_str_eq(tma_last_error(client), says);
	other = made(BYTES);
	cr_assert_eq(copy(other, shared), TMA_BUSY, "%s", tma_last_error(client));
	cr_assert_eq(tma_restore(client), TMA_BUSY, "%s", tma_last_error(client));
	child_end(&child);
	tma_set_reconnect(client, 5000);
	cr_assert_eq(tma_restore(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(*(char *)tma_region_data(shared), 7);
	assert_copies(other, shared, 2);
}

Test(library_seal, what_a_child_wrote_meanwhile_loses_the_region, .init = setup)
{
	tma_region *shared = made(BYTES), *other = made(BYTES);
	struct child child;

	need_sealing();
	assert_copies(other, shared, 1);
	child_start(&child, tma_region_data(shared));
	tma_region_release(other);
	tma_set_reconnect(client, 0);
	restart();
	cr_assert_eq(tma_ping(client), TMA_BUSY, "%s", tma_last_error(client));
	child_write(&child, 7);
	child_end(&child);
	tma_set_reconnect(client, 5000);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(tma_restore(client), TMA_NOT_FOUND);
		cr_assert(strstr(tma_last_error(client), "another process wrote to its memory"), "%s",
		          tma_last_error(client));
	}
	cr_assert_eq(tma_region_release(shared), 0);
	cr_assert_eq(tma_restore(client), 0, "%s", tma_last_error(client));
}

/* Whoever received the descriptor may see the old bytes forever. */
Test(library_seal, a_descriptor_given_away_loses_the_region, .init = setup)
{
	tma_region *region = made(BYTES), *other = made(BYTES);

	need_sealing();
	assert_copies(other, region, 1);
	cr_assert_geq(tma_region_fd(region), 0);
	restart();
	cr_assert_eq(tma_ping(client), TMA_NOT_FOUND);
	cr_assert(strstr(tma_last_error(client), service_seals()
	                                             ? "tma_region_fd or tma_region_map was called"
	                                             : "tma_region_fd was called after a request"),
	          "%s", tma_last_error(client));
	cr_assert_eq(tma_restore(client), TMA_NOT_FOUND);
	cr_assert_eq(tma_region_release(region), 0);
	assert_copies(other, made(BYTES), 2);
}
