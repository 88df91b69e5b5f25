/* SPDX-License-Identifier: GPL-2.0 */
/* Memory of the mock GPUs. Functions return 0, or -1 and set errno. */
#ifndef GPU_H
#define GPU_H

#include <stddef.h>

#define GPU_PAGE 65536UL

int gpu_open(unsigned int number);
/* Exactly there; what was there before is unmapped, which frees it. */
int gpu_alloc(int gpu, unsigned long va, size_t length);
/* cudaFree: the mapping stays, and is nobody's memory. */
int gpu_free(int gpu, unsigned long va);
/* Addresses that are reserved and nobody's memory; as gpu_alloc() for what was there. */
int gpu_reserve(unsigned long va, size_t length);

#endif
