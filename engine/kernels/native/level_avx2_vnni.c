/* AVX2 with the 256-bit AVX-VNNI dot product (Alder Lake, Zen 5 and newer). */
#include "kernels.h"
#if HAS_AVX_VNNI
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif
#include <immintrin.h>

#include "common.h"
#include "types.h"
#define AVX_VNNI 1
#include "vector_avx2.h"
#include "packed.h"

#define LEVEL level_avx2_vnni
#define LEVEL_NAME "avx2-vnni"
#include "ops.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
