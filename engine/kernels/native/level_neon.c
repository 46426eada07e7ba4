/* 64-bit ARM with the dot product instructions. */
#include "kernels.h"
#if defined(__aarch64__) || defined(_M_ARM64)
#if defined(__clang__)
#ifndef __ARM_FEATURE_DOTPROD
#define __ARM_FEATURE_DOTPROD 1 /* before version 16 arm_neon.h goes by this alone, not by the attribute */
#endif
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#include <arm_neon.h>

#include "common.h"
#include "types.h"
#include "vector_neon.h"
#include "packed.h"

#define LEVEL level_neon
#define LEVEL_NAME "neon"
#include "ops.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
