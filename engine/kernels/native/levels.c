/* Which levels this build has, and which of them this processor can run. */
#include "kernels.h"

#include <string.h>

extern const level level_portable;

#if defined(__x86_64__) || defined(_M_X64)
extern const level level_avx2, level_avx2_vnni, level_avx512, level_avx512_vnni, level_amx;
const level *const levels[] = {&level_portable,
                               &level_avx2,
#if HAS_AVX_VNNI
                               &level_avx2_vnni,
#endif
                               &level_avx512,
                               &level_avx512_vnni,
#if HAS_AMX
                               &level_amx,
#endif
};

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
static void cpuid(int leaf, int sub, unsigned r[4]) { __cpuidex((int *)r, leaf, sub); }
static uint64_t enabled_states(void) { return _xgetbv(0); }
#else
#include <cpuid.h>
static void cpuid(int leaf, int sub, unsigned r[4]) { __cpuid_count(leaf, sub, r[0], r[1], r[2], r[3]); }
static uint64_t enabled_states(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}
#endif

enum { EAX, EBX, ECX, EDX };
static int bit(unsigned word, int index) { return (word >> index) & 1; }

#if HAS_AMX
#include <sys/syscall.h>
#include <unistd.h>
enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
/* Linux gives a process tiles when it asks, and then to all of its threads. It may ask again. */
static int have_tiles(void) { return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0; }
#endif

int level_usable(const level *l) {
    unsigned top[4], one[4], seven[4], more[4];
    if (l == &level_portable) return 1;
    cpuid(0, 0, top);
    if (top[EAX] < 7) return 0;
    cpuid(1, 0, one);
    cpuid(7, 0, seven);
    cpuid(7, 1, more);
    if (!bit(one[ECX], 27)) return 0; /* XGETBV is there */
    uint64_t states = enabled_states();
    int avx2 = (states & 6) == 6 && bit(one[ECX], 28) && bit(one[ECX], 12) && bit(one[ECX], 29) && bit(seven[EBX], 5);
    int avx512 = avx2 && (states & 0xe6) == 0xe6 && bit(seven[EBX], 16) && bit(seven[EBX], 17) &&
                 bit(seven[EBX], 30) && bit(seven[EBX], 31);
    if (l == &level_avx2) return avx2;
#if HAS_AVX_VNNI
    if (l == &level_avx2_vnni) return avx2 && seven[EAX] >= 1 && bit(more[EAX], 4);
#endif
    if (l == &level_avx512) return avx512;
    int vnni = avx512 && bit(seven[ECX], 11);
    if (l == &level_avx512_vnni) return vnni;
#if HAS_AMX
    int amx = vnni && bit(seven[EDX], 24) && bit(seven[EDX], 25) && (states & 0x60000) == 0x60000;
    if (l == &level_amx) return amx && have_tiles();
#endif
    return 0;
}

#elif defined(__aarch64__) || defined(_M_ARM64)
extern const level level_neon;
const level *const levels[] = {&level_portable, &level_neon};

#if defined(__linux__)
#include <sys/auxv.h>
enum { HWCAP_DOT_PRODUCT = 1 << 20 };
static int has_dot_product(void) { return (getauxval(AT_HWCAP) & HWCAP_DOT_PRODUCT) != 0; }
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
enum { ARM_V82_DOT_PRODUCT = 43 }; /* PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE */
static int has_dot_product(void) { return IsProcessorFeaturePresent(ARM_V82_DOT_PRODUCT) != 0; }
#elif defined(__APPLE__)
static int has_dot_product(void) { return 1; } /* every Apple processor with 64-bit macOS */
#else
static int has_dot_product(void) { return 0; } /* not asked on other systems */
#endif

int level_usable(const level *l) { return l == &level_portable || (l == &level_neon && has_dot_product()); }

#else
const level *const levels[] = {&level_portable};
int level_usable(const level *l) { return l == &level_portable; }
#endif

const int level_count = (int)(sizeof levels / sizeof levels[0]);

int level_proved(const level *l) {
#if HAS_AMX
    static int agrees = -1;
    if (l == &level_amx) {
        if (agrees < 0) agrees = levels_agree(l, &level_avx512_vnni);
        return agrees;
    }
#endif
    (void)l;
    return 1;
}

int tile_tokens(const level *l, int64_t tokens) {
    if (tokens == 1) return 1;
    return l->wide && tokens >= WIDE_TOKENS ? WIDE_TOKENS : TILE_TOKENS;
}
