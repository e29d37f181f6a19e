/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the driver table: the message if there is no driver or one that is too old, and what results mean. */
#include "kernels/cuda/driver/driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "soft.h"

/* ---- Another process, with another libcuda.so.1 ------------------------------------------------------- */

enum library { LIBRARY_SOFTGPU, LIBRARY_NONE, LIBRARY_NO_LIBRARY, LIBRARY_STRANGER };

struct child_row {
	char name[40];
	enum library library;
	char variable[64]; /* environment variable, NAME=VALUE */
	char argument[16];
	char says[2][96]; /* parts of what the child prints */
};

/* Makes a folder with the row's libcuda.so.1, so that the driver of a machine that has one is never
 * loaded. */
static void make_library(char *folder, enum library library)
{
	char path[64];
	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
	if (library == LIBRARY_NO_LIBRARY)
		close(open(path, O_WRONLY | O_CREAT, 0600));
	if (library == LIBRARY_STRANGER)
		cr_assert_eq(symlink("/lib64/ld-linux-x86-64.so.2", path), 0);
}

static void remove_library(const char *folder)
{
	char path[64];
	snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
	unlink(path);
	rmdir(folder);
}

static void run_child(char *ret, size_t size, const struct child_row *row)
{
	char folder[] = "/tmp/unit-cuda-XXXXXX", environment[128], command[64];
	snprintf(environment, sizeof environment, "%s", row->variable);
	if (row->library != LIBRARY_SOFTGPU) {
		make_library(folder, row->library);
		snprintf(environment, sizeof environment, "LD_LIBRARY_PATH=%s", folder);
	}
	snprintf(command, sizeof command, "open_device %s", row->argument);
	cr_expect_eq(soft_child(ret, size, environment, command), 0, "%s: the child crashed: %s", row->name,
	             ret);
	if (row->library != LIBRARY_SOFTGPU)
		remove_library(folder);
}

ParameterizedTestParameters(driver, child)
{
	static struct child_row rows[] = {
		{ .name = "found",
		  .library = LIBRARY_SOFTGPU,
		  .says = { "OK: 0 softgpu GPU-50f79000-", " 9.0" } },
		{ .name = "not a library",
		  .library = LIBRARY_NO_LIBRARY,
		  .says = { "UNSUPPORTED: ",
		            "libcuda.so.1: file too short; is the NVIDIA driver installed?" } },
		{ .name = "a library without the driver",
		  .library = LIBRARY_STRANGER,
		  .says = { "UNSUPPORTED: libcuda.so.1: ", "lacks cuGetProcAddress_v2 of CUDA 12.0" } },
		{ .name = "too old a driver",
		  .library = LIBRARY_SOFTGPU,
		  .variable = "SOFTGPU_DRIVER_VERSION=12040",
		  .says = { "UNSUPPORTED: libcuda.so.1: the driver supports CUDA 12.4 and lacks ",
		            "cuEventElapsedTime of CUDA 12.8; install a newer one" } },
		{ .name = "no GPU",
		  .library = LIBRARY_SOFTGPU,
		  .variable = "SOFTGPU_DEVICES=0",
		  .says = { "UNSUPPORTED: cuInit: ", "the NVIDIA driver finds no GPU" } },
		{ .name = "the second",
		  .library = LIBRARY_SOFTGPU,
		  .variable = "SOFTGPU_DEVICES=2",
		  .argument = "1",
		  .says = { "OK: 1 softgpu GPU-50f79001-" } },
		{ .name = "cuInit fails",
		  .library = LIBRARY_SOFTGPU,
		  .variable = "SOFTGPU_FAIL=1 SOFTGPU_FAIL_WITH=803",
		  .says = { "UNSUPPORTED: cuInit(0): ", "(this driver does not say what it means)" } },
	};
	return cr_make_param_array(struct child_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct child_row *row, driver, child)
{
	char text[1024];
	run_child(text, sizeof text, row);
	for (int i = 0; i < 2; i++)
		cr_expect(strstr(text, row->says[i]), "%s: '%s' is not in '%s'", row->name, row->says[i],
		          text);
}

/* This runs only where no driver is installed. */
Test(driver, none)
{
	const struct child_row row = { .name = "none", .library = LIBRARY_NONE };
	char text[1024];
	run_child(text, sizeof text, &row);
	if (strncmp(text, "OK", 2) == 0 || !strstr(text, "libcuda.so.1"))
		cr_skip("this machine has a driver");
	cr_expect_str_eq(text, "UNSUPPORTED: libcuda.so.1: cannot open shared object file: No such file or "
	                       "directory; is the NVIDIA driver installed?\n");
}

/* ---- Entry points ------------------------------------------------------------------------------------ */

static const char *const names[] = {
#define DRIVER(name, version) #name,
#include "kernels/cuda/driver/driver.def"
};

/* The message names the missing entry point, and the table is left as if it had never been opened. */
Test(driver, each_entry_point_missing)
{
	static const struct driver closed;
	char wanted[80];
	struct error err;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		setenv("SOFTGPU_WITHOUT", names[i], 1);
		cr_expect_eq(driver_open(&err), STATUS_UNSUPPORTED, "%s: %s", names[i], err.message);
		snprintf(wanted, sizeof wanted, " lacks %s of CUDA ", names[i]);
		cr_expect(strstr(err.message, wanted), "%s: %s", names[i], err.message);
		cr_expect_eq(memcmp(&driver, &closed, sizeof closed), 0, "%s", names[i]);
	}
	unsetenv("SOFTGPU_WITHOUT");
	cr_expect_eq(driver_open(&err), 0, "%s", err.message);
	driver_close();
}

Test(driver, opens_once)
{
	struct error err;
	cr_assert_eq(driver_open(&err), 0, "%s", err.message);
	void *library = driver.library;
	cr_expect_str_eq(getenv("CUDA_MODULE_LOADING"), "EAGER");
	setenv("SOFTGPU_FAIL", "1", 1);
	cr_expect_eq(driver_open(&err), 0, "the second open called cuInit");
	cr_expect_eq(driver.library, library);
	driver_close();
	driver_close();
	cr_expect_null(driver.library);
}

Test(driver, leaves_a_module_loading_that_was_chosen)
{
	struct error err;
	setenv("CUDA_MODULE_LOADING", "LAZY", 1);
	cr_assert_eq(driver_open(&err), 0, "%s", err.message);
	cr_expect_str_eq(getenv("CUDA_MODULE_LOADING"), "LAZY");
	driver_close();
}

/* ---- Results ------------------------------------------------------------------------------------------ */

struct result_row {
	char name[40];
	CUresult result;
	int status;
	int sticky;
};

#define ROW(result_, status_, sticky_)                                                    \
	{                                                                                 \
		.name = #result_, .result = result_, .status = status_, .sticky = sticky_ \
	}
#define LOST(result) ROW(result, STATUS_DEVICE_LOST, 1)

ParameterizedTestParameters(driver, results)
{
	static struct result_row rows[] = {
		ROW(CUDA_SUCCESS, 0, 0),
		ROW(CUDA_ERROR_OUT_OF_MEMORY, STATUS_NO_MEMORY, 0),
		ROW(CUDA_ERROR_INVALID_VALUE, STATUS_INVALID_ARGUMENT, 0),
		ROW(CUDA_ERROR_INVALID_HANDLE, STATUS_INVALID_ARGUMENT, 0),
		ROW(CUDA_ERROR_NOT_SUPPORTED, STATUS_UNSUPPORTED, 0),
		ROW(CUDA_ERROR_NO_BINARY_FOR_GPU, STATUS_UNSUPPORTED, 0),
		ROW(CUDA_ERROR_NOT_READY, STATUS_DEVICE, 0),
		ROW(CUDA_ERROR_MAP_FAILED, STATUS_DEVICE, 0),
		ROW(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, STATUS_DEVICE, 0),
		LOST(CUDA_ERROR_DEINITIALIZED),
		LOST(CUDA_ERROR_DEVICE_UNAVAILABLE),
		LOST(CUDA_ERROR_ECC_UNCORRECTABLE),
		LOST(CUDA_ERROR_NVLINK_UNCORRECTABLE),
		LOST(CUDA_ERROR_CONTAINED),
		LOST(CUDA_ERROR_ILLEGAL_ADDRESS),
		LOST(CUDA_ERROR_LAUNCH_TIMEOUT),
		LOST(CUDA_ERROR_CONTEXT_IS_DESTROYED),
		LOST(CUDA_ERROR_ASSERT),
		LOST(CUDA_ERROR_HARDWARE_STACK_ERROR),
		LOST(CUDA_ERROR_ILLEGAL_INSTRUCTION),
		LOST(CUDA_ERROR_MISALIGNED_ADDRESS),
		LOST(CUDA_ERROR_INVALID_ADDRESS_SPACE),
		LOST(CUDA_ERROR_INVALID_PC),
		LOST(CUDA_ERROR_LAUNCH_FAILED),
		LOST(CUDA_ERROR_TENSOR_MEMORY_LEAK),
		LOST(CUDA_ERROR_MPS_CLIENT_TERMINATED),
		LOST(CUDA_ERROR_EXTERNAL_DEVICE),
		LOST(CUDA_ERROR_UNKNOWN),
	};
	return cr_make_param_array(struct result_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct result_row *row, driver, results)
{
	cr_expect_eq(driver_status(row->result), row->status, "%s: %s", row->name,
	             status_name(driver_status(row->result)));
	cr_expect_eq(driver_is_sticky(row->result), row->sticky, "%s", row->name);
}

Test(driver, says_the_call_and_the_result)
{
	struct error err;
	CUdeviceptr base;
	cr_assert_eq(driver_open(&err), 0, "%s", err.message);
	cr_expect_eq(driver_call(&err, cuMemGetAddressRange, (&base, NULL, 0)), STATUS_DEVICE);
	cr_expect_str_eq(err.message,
	                 "cuMemGetAddressRange(&base, NULL, 0): CUDA_ERROR_INVALID_CONTEXT (there is no "
	                 "such context, or none is current)");
	cr_expect_eq(err.status, STATUS_DEVICE);
	cr_expect_eq(driver_fail(&err, (CUresult)12345, "cuLater()"), STATUS_DEVICE);
	cr_expect_str_eq(err.message, "cuLater(): an unknown error (this driver does not say what it means)");
	driver_close();
}
