/* SPDX-License-Identifier: Apache-2.0 */
/* Seals host memory that the library has made, and moves sealed memory to new files.
 *
 * While somebody punches holes into a memfd, whoever touches its pages may sleep. A service therefore touches
 * the files of users that it does not trust with extra care, unless seals prevent punching
 * (region_registered.seal). The library seals a region just before the first request that names it. It does
 * not if the program has asked for the region's descriptor or address before, to share the memory with
 * others. A service whose device uses only sealed memory seals the file by itself
 * (region_registered.must_seal), even if the program shares it. Whether a file is sealed is therefore read
 * from its seals, not from what the library did.
 *
 * Nobody can create a writable mapping of a sealed file. For a later connection, the library therefore copies
 * the bytes to a new file, which takes the place of the sealed one at the same addresses of this process.
 * userfaultfd holds up threads that write to the memory until the new file is in place, so that no write is
 * lost. Writes of other processes would be lost: the region is therefore given up unless the kernel confirms
 * that nobody else can write to the old file, and a hash shows that nobody has. Without userfaultfd, the
 * library seals nothing. It still moves memory that a service has sealed, and gives the region up if the hash
 * shows that a thread wrote meanwhile.
 */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/memory/memfd.h"

/* The kernel may be newer than the headers: these came with Linux 5.1, 5.11 and 5.19. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

#define CLOCK_SLACK_MS 1000
#define NO_STOPPER     INT_MIN /* neither a descriptor nor a negative errno */

static int stopper_new(void);

/* ---- Sealing ----------------------------------------------------------------------------------------- */

/* Returns whether sealed memory could be moved. Asks the kernel once per client, because the answer hardly
 * ever changes. */
static bool can_move(tma_client *client)
{
	if (client->can_move == ANSWER_UNKNOWN) {
		const int fd = stopper_new();

		client->can_move = fd < 0 ? ANSWER_NO : ANSWER_YES;
		if (fd >= 0)
			close(fd);
	}
	return client->can_move == ANSWER_YES;
}

static bool change(tma_region *region, enum sealing from, enum sealing to)
{
	return atomic_compare_exchange_strong(&region->sealing, &from, to);
}

void region_note_seals(tma_region *region, const struct msg_region_registered *done)
{
	const bool seal = done->has & F(region_registered, seal) && done->seal;
	const bool must_seal = done->has & F(region_registered, must_seal) && done->must_seal;

	atomic_store(&region->must_seal, must_seal && atomic_load(&region->sealing) != SEALING_NEVER);
	if (seal || must_seal) {
		region->session = done->session;
		region->asked_ms = clock_ms();
	}
	if (seal)
		change(region, SEALING_ALLOWED, SEALING_ASKED);
}

void region_seal(tma_region *region)
{
	if (!can_move(region->client))
		change(region, SEALING_ASKED, SEALING_ALLOWED);
	else if (change(region, SEALING_ASKED, SEALING_DONE) &&
	         fcntl(region->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) < 0 &&
	         !change(region, SEALING_DONE, SEALING_ALLOWED))
		atomic_store(&region->sealing, SEALING_NEVER);
}

bool region_is_sealed(const tma_region *region)
{
	return atomic_load(&region->must_seal) || atomic_load(&region->sealing) >= SEALING_DONE;
}

/* Does nothing if the service has to seal the file: such a file must still accept seals. */
void region_share(tma_region *region)
{
	if (atomic_load(&region->must_seal))
		return;
	/* Others that get the file must not seal it either. */
	if (change(region, SEALING_ALLOWED, SEALING_NEVER) || change(region, SEALING_ASKED, SEALING_NEVER))
		fcntl(region->fd, F_ADD_SEALS, F_SEAL_SEAL);
}

void region_pin(tma_region *region)
{
	if (atomic_load(&region->must_seal))
		region_give_fd(region);
	else
		region_share(region);
}

void region_give_fd(tma_region *region)
{
	region_share(region);
	change(region, SEALING_ALLOWED, SEALING_GIVEN);
	change(region, SEALING_ASKED, SEALING_GIVEN);
	change(region, SEALING_DONE, SEALING_GIVEN);
}

/* ---- Holding writers up ------------------------------------------------------------------------------ */

/* Returns a userfaultfd that can hold up writers, or a negative errno. If the process may only have one
 * for faults of user mode, a system call that writes to the memory fails with EFAULT in place of being
 * held up. */
static int stopper_new(void)
{
	struct uffdio_api api = { .api = UFFD_API,
		                  .features =
		                      UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return -errno;
	if (ioctl(fd, UFFDIO_API, &api) == 0)
		return fd;
	close(fd);
	return -EINVAL;
}

/* Blocks every thread that writes to the range, from now on until fd is closed. Returns 0 or a negative
 * errno. */
static int stop_writers(int fd, void *start, size_t size)
{
	struct uffdio_register range = { .range = { (uintptr_t)start, size },
		                         .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect protect = { .range = range.range, .mode = UFFDIO_WRITEPROTECT_MODE_WP };

	return ioctl(fd, UFFDIO_REGISTER, &range) < 0 || ioctl(fd, UFFDIO_WRITEPROTECT, &protect) < 0 ? -errno
	                                                                                              : 0;
}

/* ---- Before the move --------------------------------------------------------------------------------- */

struct earlier {
	const tma_region *region;
	bool has_jobs;
};

/* Sets arg's has_jobs if the first session of the list is the earlier connection and has transforms under
 * way. A service that was restarted counts its ids from 1 again, so the age is compared, too: a session that
 * merely has the same id is younger than the seal. The clocks of the two sides differ by no more than
 * CLOCK_SLACK_MS. */
static int on_sessions(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                       void *arg, struct error *err)
{
	struct earlier *earlier = arg;
	const int64_t age_ms = clock_ms() - earlier->region->asked_ms;
	tma_document *sessions = document_new(reply->document, err);
	const tma_document *first;

	(void)client;
	(void)method;
	if (!sessions)
		return err->status;
	first = tma_document_at(sessions, 0, NULL);
	earlier->has_jobs =
	    (uint64_t)tma_document_int(tma_document_find(first, "session")) == earlier->region->session &&
	    tma_document_int(tma_document_find(first, "age_ms")) >= age_ms - CLOCK_SLACK_MS &&
	    tma_document_int(tma_document_find(first, "jobs")) > 0;
	tma_document_free(sessions);
	return 0;
}

/* Returns BUSY while transforms of the earlier connection may still write to the memory, because they would
 * write to the old file. Returns 0 or the last error otherwise. */
static int check_earlier(tma_region *region, int64_t deadline)
{
	struct earlier earlier = { .region = region };
	const struct msg_session_list params = { .has = F(session_list, after),
		                                 .after = region->session - 1 };
	int rc;

	if (!region->session)
		return 0;
	rc = client_call_until(region->client,
	                       &(struct call){ .method = METHOD_session_list,
	                                       .params = &params,
	                                       .fd = -1,
	                                       .on_reply = on_sessions,
	                                       .arg = &earlier },
	                       deadline);
	if (rc == 0 && earlier.has_jobs)
		rc = client_fail(region->client, STATUS_BUSY,
		                 "transforms of the connection before are still under way in its memory");
	return rc;
}

/* ---- Moving ------------------------------------------------------------------------------------------ */

/* Returns the number of mapped bytes: the region's size, rounded up to whole pages. */
static size_t page_bytes(const tma_region *region)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (region->size + page - 1) / page * page;
}

/* Returns a hash of n words and copies them to `to`, unless that is NULL. Inputs that differ in a single word
 * have different hashes. The loads are atomic because ThreadSanitizer does not know what holds up the threads
 * that write there. */
static uint64_t hash_words(uint64_t *to, const uint64_t *from, size_t n)
{
	uint64_t lanes[4] = { 1, 2, 3, 4 }, hash = 0;

	for (size_t i = 0; i < n; i++) {
		const uint64_t word = __atomic_load_n(&from[i], __ATOMIC_RELAXED);

		if (to)
			to[i] = word;
		lanes[i % 4] = (lanes[i % 4] ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		lanes[i % 4] ^= lanes[i % 4] >> 29;
	}
	for (int i = 0; i < 4; i++)
		hash = (hash ^ lanes[i]) * UINT64_C(0xbf58476d1ce4e5b9);
	return hash;
}

/* Replaces the memory by a copy in another file. All signals are blocked meanwhile, because a handler that
 * writes to the memory would never return. With NO_STOPPER nobody is held up, and leave() finds out whether a
 * thread has written. Returns 0 or a negative errno. */
static int replace(tma_region *region, int stopper, const struct host_file *to)
{
	void *const at = (void *)(uintptr_t)region->address;
	const size_t size = page_bytes(region);
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = stopper == NO_STOPPER ? 0 : stop_writers(stopper, at, size);
	if (r == 0) {
		region->left_hash = hash_words(to->data, at, size / sizeof(uint64_t));
		if (mremap(to->data, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
			r = -errno;
	}
	if (stopper != NO_STOPPER)
		close(stopper); /* This wakes the threads that were held up. */
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

static int fail_move(tma_region *region, int why)
{
	return client_fail(region->client, STATUS_NO_MEMORY,
	                   "its memory, which was sealed, cannot be moved to another file: %s",
	                   strerror(why));
}

static int move(tma_region *region)
{
	const int left_fd = fcntl(region->fd, F_DUPFD_CLOEXEC, 0);
	struct host_file to;
	int rc, r;

	if (left_fd < 0)
		return fail_move(region, errno);
	rc = host_file_make(region->client, region->size, &to);
	if (rc < 0) {
		close(left_fd);
		return rc;
	}
	r = can_move(region->client) ? stopper_new() : NO_STOPPER;
	if (r >= 0 || r == NO_STOPPER)
		r = replace(region, r, &to);
	if (r < 0) {
		munmap(to.data, region->size);
		close(to.fd);
		close(left_fd);
		return fail_move(region, -r);
	}
	region->left_fd = left_fd;
	/* dup3 replaces region->fd atomically: another thread may ask for that descriptor at any time. */
	dup3(to.fd, region->fd, O_CLOEXEC);
	close(to.fd);
	return 0;
}

/* ---- What was left behind ---------------------------------------------------------------------------- */

/* Closes the old file, provided that nobody else has written to it since it was copied; otherwise the region
 * is lost (NOT_FOUND). BUSY: somebody else can still write to it; a service that has not exited yet may have
 * it mapped for a while. */
static int leave(tma_region *region)
{
	const size_t size = page_bytes(region);
	void *map;
	uint64_t hash;

	if (fcntl(region->left_fd, F_ADD_SEALS, F_SEAL_WRITE) < 0)
		return client_fail(
		    region->client, STATUS_BUSY,
		    "another process can still write to its memory, which the library had to move, or has "
		    "pinned it; let others use memory that was registered by tma_region_register_memfd");
	map = mapping_new_private(size, region->left_fd, 0);
	if (map == MAP_FAILED)
		return client_fail(region->client, STATUS_NO_MEMORY,
		                   "%zu bytes of the region cannot be mapped (%s)", region->size,
		                   strerror(errno));
	hash = hash_words(NULL, map, size / sizeof(uint64_t));
	munmap(map, size);
	close(region->left_fd);
	region->left_fd = -1;
	if (hash == region->left_hash)
		return 0;
	region->is_lost = true;
	if (!can_move(region->client))
		return client_fail(region->client, STATUS_NOT_FOUND,
		                   "another thread or process wrote to its memory while the library moved "
		                   "it, which the kernel could not prevent (no userfaultfd)");
	return client_fail(region->client, STATUS_NOT_FOUND,
	                   "another process wrote to its memory while the library moved it; let others use "
	                   "memory that was registered by tma_region_register_memfd");
}

static int refuse_given(tma_region *region)
{
	region->is_lost = true;
	if (atomic_load(&region->must_seal))
		return client_fail(region->client, STATUS_NOT_FOUND,
		                   "the service has sealed its memory, which the library cannot move, "
		                   "because tma_region_fd or tma_region_map was called; make another region");
	return client_fail(region->client, STATUS_NOT_FOUND,
	                   "the library cannot move its memory, because tma_region_fd was called after a "
	                   "request had used the region; call it before");
}

/* Returns whether the file, if the library made it, is sealed. The service may have sealed it. */
static bool has_seals(const tma_region *region)
{
	int seals;

	if (atomic_load(&region->sealing) == SEALING_NEVER)
		return false;
	seals = fcntl(region->fd, F_GET_SEALS);
	return seals >= 0 && seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
}

/* Resets the sealing of the new file, which is unsealed as the old one was at first. Returns false if the old
 * file was given away meanwhile. */
static bool begin_anew(tma_region *region)
{
	return change(region, SEALING_DONE, SEALING_ALLOWED) ||
	       change(region, SEALING_ASKED, SEALING_ALLOWED) ||
	       change(region, SEALING_ALLOWED, SEALING_ALLOWED);
}

int region_move(tma_region *region, int64_t deadline)
{
	int rc = 0;

	if (has_seals(region)) {
		if (atomic_load(&region->sealing) == SEALING_GIVEN)
			return refuse_given(region);
		rc = check_earlier(region, deadline);
		if (rc == 0)
			rc = move(region);
		if (rc == 0 && !begin_anew(region))
			return refuse_given(region);
	}
	return rc == 0 && region->left_fd >= 0 ? leave(region) : rc;
}
