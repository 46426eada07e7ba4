/* AVX-512 F, BW, VL and DQ (Skylake-X and newer). */
#include "kernels.h"
#if defined(__x86_64__) || defined(_M_X64)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")
#endif
#include <immintrin.h>

#include "common.h"
#include "types.h"
#define AVX512_VNNI 0
#include "vector_avx512.h"
#include "packed.h"

#define LEVEL level_avx512
#define LEVEL_NAME "avx512"
#include "ops.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
