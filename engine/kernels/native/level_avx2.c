/* x86-64 with AVX2 and F16C (2013 and newer). */
#include "kernels.h"
#if defined(__x86_64__) || defined(_M_X64)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC target("avx2,fma,f16c")
#endif
#include <immintrin.h>

#include "common.h"
#include "types.h"
#define AVX_VNNI 0
#include "vector_avx2.h"
#include "packed.h"

#define LEVEL level_avx2
#define LEVEL_NAME "avx2"
#include "ops.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
