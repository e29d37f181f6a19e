/* How many launches the engine makes: the driver's entry point is taken over. */
#ifndef TESTS_UNIT_CUDA_COUNTED_H
#define TESTS_UNIT_CUDA_COUNTED_H

/* Since it was last set to 0. */
extern unsigned n_launches;

/* After the driver has been opened, and before the first launch. */
void count_launches(void);

#endif
