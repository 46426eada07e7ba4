/* AMX int8 (Sapphire Rapids and newer) where 16 tokens or more meet a packed matrix; all else is AVX-512 with VNNI. */
#include "kernels.h"
#if HAS_AMX
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8,prefer-vector-width=512")
#endif
#include <immintrin.h>

#include "common.h"
#include "types.h"
#define AVX512_VNNI 1
#include "vector_avx512.h"
#include "tiles.h"
#define TILES 1
#include "packed.h"

#define LEVEL level_amx
#define LEVEL_NAME "amx"
#include "ops.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
