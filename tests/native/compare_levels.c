/* Proves that all kernel levels of this processor give the same bits, and the pool its promise.
 *
 *     compare_levels [SEED]
 *
 * Prints what differs and exits with 1, or the number of comparisons of each level and a digest of portable's
 * results, which other compilers and processors must give for the same seed, and exits with 0. */
#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPORTS = 20, MOST_BLOCKS = 1024, MOST_SLOTS = 8 };

const level *usable[16], *emulated;
int usable_count;

static uint64_t state;
static char described[256];
static long comparisons[16], differences;
static uint64_t digest = 0xcbf29ce484222325u;
static const void *slots[MOST_SLOTS];
static char *blocks[MOST_BLOCKS];
static int block_count;

void random_seed(uint64_t seed) { state = seed; }

uint64_t random_bits(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t random_below(int64_t count) { return (int64_t)(random_bits() % (uint64_t)count); }
int64_t random_between(int64_t first, int64_t last) { return first + random_below(last - first + 1); }

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

enum flavour random_flavour(void) { return (enum flavour)(random_below(2) ? PLAIN : random_below(FLAVOURS)); }

float random_float(enum flavour flavour) {
    static const float edges[] = {0.0f,    -0.0f,  1e-45f,  -1e-40f, 1.1754944e-38f, 1e-36f,  3e38f,   -3e38f, 88.0f,
                                  88.001f, -87.0f, -87.01f, 20.0f,   20.00001f,      -20.0f,  -103.0f, 65504.0f,
                                  65520.0f, 5.9604645e-8f, 2.9802322e-8f, 1.0f, -1.0f};
    static const float worst[] = {HUGE_VALF, -HUGE_VALF, NAN};
    float plain = (float)(random_below(1 << 24) - (1 << 23)) * float_of((uint32_t)random_between(103, 107) << 23);
    if (flavour == PLAIN || random_below(2)) return plain;
    if (flavour == WILD && random_below(8) == 0) return worst[random_below(COUNT_OF(worst))];
    if (random_below(2)) return edges[random_below(COUNT_OF(edges))];
    uint32_t exponent = (uint32_t)random_below(flavour == WILD ? 256 : 255);
    return float_of((uint32_t)(random_bits() & 0x807fffff) | exponent << 23);
}

uint16_t random_half(enum flavour flavour) {
    uint16_t low = (uint16_t)(random_bits() & 0x83ff);
    if (flavour == WILD) return (uint16_t)random_bits();
    if (flavour == HARSH) {
        int64_t choice = random_below(8);
        if (choice == 0) return low & 0x8000;                                   /* zero */
        if (choice == 1) return low;                                            /* subnormal */
        if (choice == 2) return (uint16_t)(low | random_between(0, 30) << 10); /* any finite */
    }
    return (uint16_t)(low | random_between(10, 16) << 10);
}

#if defined(_WIN32)
#include <malloc.h>
static void *allocate(size_t nbytes) { return _aligned_malloc(nbytes, 64); }
static void release(void *block) { _aligned_free(block); }
#else
static void *allocate(size_t nbytes) {
    void *block;
    return posix_memalign(&block, 64, nbytes) ? NULL : block;
}
static void release(void *block) { free(block); }
#endif

void *memory(int64_t nbytes, int offset) {
    if (block_count == MOST_BLOCKS) {
        fprintf(stderr, "too many blocks of memory in one case\n");
        exit(2);
    }
    size_t whole = (size_t)nbytes + (size_t)offset;
    char *block = allocate(whole ? whole : 1);
    if (block == NULL) {
        fprintf(stderr, "no memory\n");
        exit(2);
    }
    memset(block, 0xa5, whole);
    blocks[block_count++] = block;
    return block + offset;
}

void end_case(void) {
    while (block_count) release(blocks[--block_count]);
}

float *floats(int64_t count) { return memory(4 * count, 0); }

float *random_floats(int64_t count, enum flavour flavour) {
    float *out = floats(count);
    for (int64_t i = 0; i < count; i++) out[i] = random_float(flavour);
    return out;
}

uint16_t *random_halves(int64_t count, enum flavour flavour) {
    uint16_t *out = memory(2 * count, 0);
    for (int64_t i = 0; i < count; i++) out[i] = random_half(flavour);
    return out;
}

void *copy_of(const void *data, int64_t nbytes) {
    void *out = memory(nbytes, 0);
    memcpy(out, data, (size_t)nbytes);
    return out;
}

void describe(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(described, sizeof described, format, arguments);
    va_end(arguments);
}

static void report(int n, const char *what) {
    if (differences++ < MOST_REPORTS) printf("%s: %s: %s", usable[n]->name, described, what);
    if (differences <= MOST_REPORTS) putchar('\n');
}

/* An element's bits; of all NaNs, those of one. */
static uint32_t bits_of(const char *data, enum element element) {
    uint32_t bits = 0;
    for (int i = 0; i < (int)element; i++) bits |= (uint32_t)(uint8_t)data[i] << 8 * i;
    if (element == FLOATS && (bits & 0x7fffffff) > 0x7f800000) return 0x7fc00000;
    if (element == HALVES && (bits & 0x7fff) > 0x7c00) return 0x7e00;
    return bits;
}

static void print_element(char *out, size_t size, const char *data, enum element element) {
    uint32_t bits = bits_of(data, element);
    if (element == FLOATS) snprintf(out, size, "%.9g (%08" PRIx32 ")", (double)float_of(bits), bits);
    else snprintf(out, size, "%0*" PRIx32, 2 * (int)element, bits);
}

void expect_same(int n, const void *data, const void *expected, int64_t count, enum element element,
                 const char *what) {
    const char *a = data, *b = expected;
    comparisons[n]++;
    if (memcmp(a, b, (size_t)(count * (int)element)) == 0) return;
    for (int64_t i = 0; i < count; i++, a += element, b += element) {
        if (bits_of(a, element) == bits_of(b, element)) continue;
        char got[64], wanted[64], line[256];
        print_element(got, sizeof got, a, element);
        print_element(wanted, sizeof wanted, b, element);
        snprintf(line, sizeof line, "%s: element %" PRId64 " is %s, not %s", what, i, got, wanted);
        report(n, line);
        return;
    }
}

void compare(int n, int slot, const void *data, int64_t count, enum element element) {
    if (n) {
        expect_same(n, data, slots[slot], count, element, "differs from portable");
        return;
    }
    slots[slot] = data;
    for (int64_t i = 0; i < count; i++) /* FNV-1a, an element at a time */
        digest = (digest ^ bits_of((const char *)data + i * (int)element, element)) * 0x100000001b3u;
}

void expect(int n, int fact, const char *what) {
    comparisons[n]++;
    if (!fact) report(n, what);
}

int main(int count, char **arguments) {
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    void (*const parts[])(void) = {compare_halves,    compare_packed,     compare_dense,     compare_vectors, compare_heads,
                                   compare_attention, compare_recurrence, compare_agreement, check_pool};
    for (int i = 0; i < level_count; i++)
        if (level_usable(levels[i])) usable[usable_count++] = levels[i];
        else if (emulate(levels[i])) usable[usable_count++] = emulated = levels[i];
    for (int i = 0; i < COUNT_OF(parts); i++) {
        random_seed(seed * 1000 + (uint64_t)i);
        parts[i]();
        end_case();
    }
    EACH_LEVEL(n) printf("%ld comparisons, level %s\n", comparisons[n], usable[n]->name);
    printf("digest %016" PRIx64 "\n", digest);
    if (differences) printf("%ld differences\n", differences);
    return differences != 0;
}
