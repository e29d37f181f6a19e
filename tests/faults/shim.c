/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into a program, makes the Nth of its libc calls fail as shim.h says.
 *
 * It counts the calls that the project's own code makes, and those of libraries below it where the library
 * reports such a failure. The definitions here precede libc's for all callers and pass calls on to a
 * sanitizer's definition, if there is one, or to libc's. A failing call does nothing, except that close
 * closes.
 */
#include "shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

/* The callers whose calls can fail. */
enum whose {
	WHOSE_OWN, /* the program and libtmaclient */
	WHOSE_ALL, /* these and the libraries that they use */
};

static struct shim_plan *plan;

/* ---- When --------------------------------------------------------------------------------------------- */

__attribute__((constructor)) static void open_plan(void)
{
	const char *path = getenv("FAULTS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *shared;

	if (!path)
		return;
	shared = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		_exit(125);
	close(fd);
	plan = shared;
}

extern void *__interceptor_malloc(size_t size) __attribute__((weak));

/* Sanitizers, the loader and the stand-in driver are not under test; nor is libc if a sanitizer calls it. */
static bool is_counted(const char *object, enum whose whose)
{
	static const char *const libraries[] = { "libuv", "libmsgpack", "libsystemd", "libc." };
	const char *slash = strrchr(object, '/');
	const char *name = slash ? slash + 1 : object;

	if (strncmp(name, "lib", 3) && strncmp(name, "ld-", 3))
		return true;
	if (!strncmp(name, "libtmaclient", 12))
		return true;
	for (size_t i = 0; whose == WHOSE_ALL && i < sizeof libraries / sizeof *libraries; i++)
		if (!strncmp(name, libraries[i], strlen(libraries[i])))
			return strcmp(libraries[i], "libc.") || !__interceptor_malloc;
	return false;
}

/* Counts a call. Returns the error that it has to fail with, or 0. */
static int fault(const char *call, enum shim_class class, enum whose whose, const void *caller,
                 const int errors[3])
{
	uint64_t number;
	Dl_info info;
	int error;

	if (!plan || !(plan->classes & class) || !dladdr(caller, &info) || !is_counted(info.dli_fname, whose))
		return 0;
	number = atomic_fetch_add(&plan->calls, 1) + 1;
	if (plan->first == 0 || number < plan->first || number - plan->first >= plan->n)
		return 0;
	error = errors[plan->variant] ? errors[plan->variant] : errors[0];
	if (atomic_fetch_add(&plan->failed, 1) == 0)
		snprintf(plan->what, sizeof plan->what, "%s: %s, called at %.60s+0x%lx", call,
		         strerrorname_np(error), info.dli_fname,
		         (unsigned long)((const char *)caller - (const char *)info.dli_fbase));
	return error;
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *data, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void *__interceptor_calloc(size_t n, size_t size) __attribute__((weak));
extern void *__interceptor_realloc(void *data, size_t size) __attribute__((weak));
extern void *__interceptor_aligned_alloc(size_t align, size_t size) __attribute__((weak));

static bool no_memory(const char *call, const void *caller)
{
	static const int errors[3] = { ENOMEM };
	int error = fault(call, SHIM_MEMORY, WHOSE_ALL, caller, errors);

	if (error)
		errno = error;
	return error;
}

EXPORT void *malloc(size_t size)
{
	if (no_memory("malloc", CALLER))
		return NULL;
	return __interceptor_malloc ? __interceptor_malloc(size) : __libc_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
	if (no_memory("calloc", CALLER))
		return NULL;
	return __interceptor_calloc ? __interceptor_calloc(n, size) : __libc_calloc(n, size);
}

EXPORT void *realloc(void *data, size_t size)
{
	if (no_memory("realloc", CALLER))
		return NULL;
	return __interceptor_realloc ? __interceptor_realloc(data, size) : __libc_realloc(data, size);
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
	if (no_memory("aligned_alloc", CALLER))
		return NULL;
	return __interceptor_aligned_alloc ? __interceptor_aligned_alloc(align, size)
	                                   : __libc_memalign(align, size);
}

/* ---- The rest ----------------------------------------------------------------------------------------- */

/* Defines a call that passes on to a sanitizer's definition, or else to the next library's. `failed` is what
 * a failing call returns. */
#define DEFINE(type, name, params, args, whose, failed, ...)                                   \
	extern type __interceptor_##name params __attribute__((weak));                         \
	static type next_##name params                                                         \
	{                                                                                      \
		static type(*next) params;                                                     \
                                                                                               \
		if (!next)                                                                     \
			next = __interceptor_##name ? __interceptor_##name                     \
			                            : (type(*) params)dlsym(RTLD_NEXT, #name); \
		return next args;                                                              \
	}                                                                                      \
	EXPORT type name params                                                                \
	{                                                                                      \
		static const int errors[3] = { __VA_ARGS__ };                                  \
		int error = plan ? fault(#name, SHIM_SYSTEM, whose, CALLER, errors) : 0;       \
                                                                                               \
		if (!error)                                                                    \
			return next_##name args;                                               \
		errno = error;                                                                 \
		return failed;                                                                 \
	}

DEFINE(void *, mmap, (void *a, size_t b, int c, int d, int e, off_t f), (a, b, c, d, e, f), WHOSE_OWN,
       MAP_FAILED, ENOMEM, EACCES)
DEFINE(int, madvise, (void *a, size_t b, int c), (a, b, c), WHOSE_OWN, -1, ENOMEM, EAGAIN, EINVAL)
DEFINE(int, memfd_create, (const char *a, unsigned b), (a, b), WHOSE_OWN, -1, EMFILE, EINVAL)
DEFINE(int, ftruncate, (int a, off_t b), (a, b), WHOSE_OWN, -1, ENOMEM, EINTR)
DEFINE(int, fallocate, (int a, int b, off_t c, off_t d), (a, b, c, d), WHOSE_OWN, -1, ENOSPC, EOPNOTSUPP)
DEFINE(int, fstat, (int a, struct stat *b), (a, b), WHOSE_OWN, -1, EIO)
DEFINE(int, lstat, (const char *a, struct stat *b), (a, b), WHOSE_OWN, -1, EACCES)
DEFINE(int, stat, (const char *a, struct stat *b), (a, b), WHOSE_OWN, -1, EACCES)
DEFINE(int, fstatfs, (int a, struct statfs *b), (a, b), WHOSE_OWN, -1, EIO)
DEFINE(int, chmod, (const char *a, mode_t b), (a, b), WHOSE_OWN, -1, EPERM)
DEFINE(int, fchmod, (int a, mode_t b), (a, b), WHOSE_OWN, -1, EPERM)
DEFINE(int, rename, (const char *a, const char *b), (a, b), WHOSE_OWN, -1, EXDEV, EACCES)
DEFINE(int, linkat, (int a, const char *b, int c, const char *d, int e), (a, b, c, d, e), WHOSE_OWN, -1,
       EEXIST, ENOENT)
DEFINE(int, access, (const char *a, int b), (a, b), WHOSE_OWN, -1, ENOENT)
DEFINE(int, mkostemp, (char *a, int b), (a, b), WHOSE_OWN, -1, EACCES)
DEFINE(ssize_t, readlink, (const char *a, char *b, size_t c), (a, b, c), WHOSE_OWN, -1, EIO)
DEFINE(ssize_t, read, (int a, void *b, size_t c), (a, b, c), WHOSE_OWN, -1, EIO, EINTR)
DEFINE(ssize_t, pread, (int a, void *b, size_t c, off_t d), (a, b, c, d), WHOSE_OWN, -1, EIO, EINTR)
DEFINE(ssize_t, write, (int a, const void *b, size_t c), (a, b, c), WHOSE_OWN, -1, ENOSPC, EINTR)
DEFINE(ssize_t, pwrite, (int a, const void *b, size_t c, off_t d), (a, b, c, d), WHOSE_OWN, -1, ENOSPC, EIO,
       EINTR)
DEFINE(FILE *, fopen, (const char *a, const char *b), (a, b), WHOSE_OWN, NULL, EMFILE)
DEFINE(DIR *, opendir, (const char *a), (a), WHOSE_OWN, NULL, EMFILE)

DEFINE(int, socket, (int a, int b, int c), (a, b, c), WHOSE_OWN, -1, EMFILE)
DEFINE(int, bind, (int a, const struct sockaddr *b, socklen_t c), (a, b, c), WHOSE_OWN, -1, EADDRINUSE,
       EACCES)
DEFINE(int, listen, (int a, int b), (a, b), WHOSE_OWN, -1, EADDRINUSE)
DEFINE(int, connect, (int a, const struct sockaddr *b, socklen_t c), (a, b, c), WHOSE_OWN, -1, EAGAIN, EINTR,
       ECONNREFUSED)
DEFINE(int, accept4, (int a, struct sockaddr *b, socklen_t *c, int d), (a, b, c, d), WHOSE_OWN, -1, EMFILE,
       ECONNABORTED, EINTR)
DEFINE(int, getsockopt, (int a, int b, int c, void *d, socklen_t *e), (a, b, c, d, e), WHOSE_OWN, -1, ENOBUFS)
DEFINE(int, setsockopt, (int a, int b, int c, const void *d, socklen_t e), (a, b, c, d, e), WHOSE_OWN, -1,
       ENOMEM)
DEFINE(int, shutdown, (int a, int b), (a, b), WHOSE_OWN, -1, ENOTCONN)
DEFINE(int, poll, (struct pollfd * a, nfds_t b, int c), (a, b, c), WHOSE_OWN, -1, ENOMEM, EINTR)

DEFINE(int, epoll_create1, (int a), (a), WHOSE_ALL, -1, EMFILE, ENOMEM)
DEFINE(int, eventfd, (unsigned a, int b), (a, b), WHOSE_ALL, -1, EMFILE, ENFILE)
DEFINE(int, pipe2, (int a[2], int b), (a, b), WHOSE_ALL, -1, EMFILE, ENFILE)
DEFINE(ssize_t, getrandom, (void *a, size_t b, unsigned c), (a, b, c), WHOSE_OWN, -1, ENOSYS)

/* ---- Those of another form ---------------------------------------------------------------------------- */

#define NEXT(next, name)                                              \
	do                                                            \
		if (!next)                                            \
			next = (typeof(next))dlsym(RTLD_NEXT, #name); \
	while (0)

/* Defines a call with one further, optional argument. */
#define DEFINE_OPEN(type, name, params, args, last, whose, ...)                          \
	EXPORT type name params                                                          \
	{                                                                                \
		static const int errors[3] = { __VA_ARGS__ };                            \
		static type(*next) params;                                               \
		int error = plan ? fault(#name, SHIM_SYSTEM, whose, CALLER, errors) : 0; \
		va_list list;                                                            \
		void *more;                                                              \
                                                                                         \
		NEXT(next, name);                                                        \
		va_start(list, last);                                                    \
		more = va_arg(list, void *);                                             \
		va_end(list);                                                            \
		if (!error)                                                              \
			return next args;                                                \
		errno = error;                                                           \
		return -1;                                                               \
	}

DEFINE_OPEN(int, open, (const char *a, int b, ...), (a, b, more), b, WHOSE_OWN, EMFILE, EACCES)
DEFINE_OPEN(int, ioctl, (int a, unsigned long b, ...), (a, b, more), b, WHOSE_OWN, ENOTTY)
DEFINE_OPEN(int, fcntl, (int a, int b, ...), (a, b, more), b, WHOSE_OWN, EBADF, EINVAL)

/* A peer once reported as gone stays gone. */
static int lose_peer(int sock, int error)
{
	if (error == EPIPE || error == ECONNRESET)
		next_shutdown(sock, SHUT_RDWR);
	return error;
}

#define DEFINE_SOCKET(name, params, args, ...)                                                             \
	EXPORT ssize_t name params                                                                         \
	{                                                                                                  \
		static const int errors[3] = { __VA_ARGS__ };                                              \
		static ssize_t(*next) params;                                                              \
		int error = plan ? lose_peer(a, fault(#name, SHIM_SYSTEM, WHOSE_OWN, CALLER, errors)) : 0; \
                                                                                                           \
		NEXT(next, name);                                                                          \
		if (!error)                                                                                \
			return next args;                                                                  \
		errno = error;                                                                             \
		return -1;                                                                                 \
	}

DEFINE_SOCKET(recvmsg, (int a, struct msghdr *b, int c), (a, b, c), ECONNRESET, EINTR, EAGAIN)
DEFINE_SOCKET(sendmsg, (int a, const struct msghdr *b, int c), (a, b, c), EPIPE, EAGAIN, ENOBUFS)
DEFINE_SOCKET(send, (int a, const void *b, size_t c, int d), (a, b, c, d), EPIPE, EAGAIN, ENOBUFS)

/* The descriptor is closed even if the call fails. */
EXPORT int close(int fd)
{
	static const int errors[3] = { EIO };
	static int (*next)(int fd);
	int error = plan ? fault("close", SHIM_SYSTEM, WHOSE_OWN, CALLER, errors) : 0;
	int r;

	NEXT(next, close);
	r = next(fd);
	if (!error)
		return r;
	errno = error;
	return -1;
}

/* Only adding an entry takes memory. */
EXPORT int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
	static const int errors[3] = { ENOMEM, ENOSPC };
	static int (*next)(int epoll, int what, int fd, struct epoll_event *event);
	int r, error;

	NEXT(next, epoll_ctl);
	r = next(epoll, what, fd, event);
	if (r < 0 || what != EPOLL_CTL_ADD || !plan)
		return r;
	error = fault("epoll_ctl", SHIM_SYSTEM, WHOSE_ALL, CALLER, errors);
	if (!error)
		return r;
	next(epoll, EPOLL_CTL_DEL, fd, event);
	errno = error;
	return -1;
}

extern int __interceptor_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                                        void *arg) __attribute__((weak));

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	static const int errors[3] = { EAGAIN };
	static int (*next)(pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
	int error = plan ? fault("pthread_create", SHIM_SYSTEM, WHOSE_ALL, CALLER, errors) : 0;

	if (error)
		return error;
	if (__interceptor_pthread_create)
		return __interceptor_pthread_create(thread, attr, run, arg);
	NEXT(next, pthread_create);
	return next(thread, attr, run, arg);
}
