/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the engines of unit_process_cuda, which run on the stand-in driver. */
#include "rig.h"

const struct engine_process_opener rig_openers[] = { { "cuda", engine_cuda_open }, { NULL, NULL } };
