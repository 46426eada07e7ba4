/* Included by every level: standard headers, inlining, exact float rules, and half conversion in C. */
#include <math.h>
#include <string.h>

#include "kernels.h"

#if defined(_MSC_VER) && !defined(__clang__)
#define INLINE static __forceinline
#define LINE_ALIGNED __declspec(align(64))
#pragma fp_contract(off)
#else
#define INLINE static inline __attribute__((always_inline, unused))
#define LINE_ALIGNED __attribute__((aligned(64)))
#endif
/* Before a loop whose accumulators must all be in registers. */
#if defined(__GNUC__)
#define UNROLL _Pragma("GCC unroll 16")
#else
#define UNROLL
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

/* Round to fp16, ties to even, overflow to infinity. */
INLINE uint16_t float_to_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00 | ((bits >> 13) & 0x3ff));
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) { /* subnormal: adding 0.5 lets the float unit round at 2^-24 */
        float magnitude;
        memcpy(&magnitude, &bits, 4);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, 4);
        return (uint16_t)(sign | (bits & 0x7fff));
    }
    bits += 0xfff + ((bits >> 13) & 1);
    return (uint16_t)(sign | ((bits - 0x38000000) >> 13));
}
