/* Conversions between fp16 and float: all halves, and the floats around each of them. */
#include <math.h>
#include <string.h>

#include "compare.h"

#include "common.h"
#include "vector_portable.h"

float slow_from_half(uint16_t half) {
    int exponent = (half >> 10) & 31, fraction = half & 1023;
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31) value = fraction ? (double)NAN : HUGE_VAL;
    return (float)(half & 0x8000 ? -value : value);
}

/* The magnitude that rounds to `code`; what rounds to 2^16 is infinite. */
static double magnitude_of(uint16_t code) { return code == 0x7c00 ? 65536.0 : (double)slow_from_half(code); }

/* The nearest of all halves by bisection; ties to the even code. */
uint16_t slow_to_half(float value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0, low = 0, high = 0x7c00;
    double x = fabs((double)value);
    if (value != value) return sign | 0x7e00;
    if (x >= 65536.0) return sign | 0x7c00;
    while (high - low > 1) { /* magnitude(low) <= x < magnitude(high) */
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (magnitude_of(middle) <= x) low = middle;
        else high = middle;
    }
    double down = x - magnitude_of(low), up = magnitude_of(high) - x;
    uint16_t nearest = down < up ? low : down > up ? high : low & 1 ? high : low;
    return sign | nearest;
}

/* Every half, and with the next of the same sign the middle and its neighbours; then floats of all kinds. */
static int64_t tricky_floats(float *out) {
    int64_t count = 0;
    for (int code = 0; code < 0x7c00; code++) {
        float here = slow_from_half((uint16_t)code);
        float middle = (float)((magnitude_of((uint16_t)code) + magnitude_of((uint16_t)(code + 1))) / 2);
        float some[] = {here, middle, nextafterf(middle, 0.0f), nextafterf(middle, HUGE_VALF)};
        for (int i = 0; i < COUNT_OF(some); i++) out[count++] = (code + i) % 2 ? -some[i] : some[i];
        for (int i = 1; i < COUNT_OF(some); i++) out[count++] = (code + i) % 2 ? some[i] : -some[i];
    }
    for (int i = 0; i < 20000; i++) out[count++] = random_float(WILD);
    return count / 16 * 16;
}

static void to_half(void) {
    float *all = floats(7 * 0x7c00 + 20000);
    int64_t count = tricky_floats(all);
    uint16_t *slow = memory(2 * count, 0), *plain = memory(2 * count, 0);
    for (int64_t i = 0; i < count; i++) {
        slow[i] = slow_to_half(all[i]);
        plain[i] = float_to_half(all[i]);
    }
    describe("float_to_half");
    expect_same(0, plain, slow, count, HALVES, "differs from the nearest half");
    for (int dim = 16; dim <= 17; dim++) { /* whole vectors, and a rest of one */
        head_view view = {all, count / dim, 1, dim, dim, dim};
        EACH_LEVEL(n) {
            uint16_t *out = memory(2 * count, 0);
            memcpy(out, slow, (size_t)(2 * count));
            memset(out, 0xa5, (size_t)(2 * (count / dim) * dim));
            usable[n]->heads_half(&view, NULL, 0.0f, NULL, out);
            expect_same(n, out, slow, count, HALVES, "heads_half differs from the nearest half");
        }
    }
    end_case();
}

/* Attention over one position gives back its value, once 0 was added to it. */
static void from_half(void) {
    enum { HEADS = 256, DIM = 256 };
    uint16_t *all = memory(2 * HEADS * DIM, 0), *keys = memory(2 * HEADS * 16, 0);
    float *query = floats(HEADS * 16), *slow = floats(HEADS * DIM), *plain = floats(HEADS * DIM);
    for (int i = 0; i < HEADS * DIM; i++) {
        all[i] = (uint16_t)i;
        slow[i] = slow_from_half((uint16_t)i);
        plain[i] = half_to_float((uint16_t)i);
    }
    describe("half_to_float");
    expect_same(0, plain, slow, HEADS * DIM, FLOATS, "differs from the definition");
    memset(query, 0, 4 * HEADS * 16);
    memset(keys, 0, 2 * HEADS * 16);
    slow[0x8000] = 0.0f;
    EACH_LEVEL(n) {
        float *out = floats(HEADS * DIM), *scratch;
        attention_job job = {{query, 1, HEADS, 16, HEADS * 16, 16}, keys, all, 1, HEADS, DIM, 1.0f, out};
        scratch = floats(attention_scratch(&job, 1));
        for (int head = 0; head < HEADS; head++) usable[n]->attention(&job, head, 1, 0, 1, scratch);
        expect_same(n, out, slow, HEADS * DIM, FLOATS, "the value of one position differs from the definition");
    }
    end_case();
}

void compare_halves(void) {
    to_half();
    from_half();
}
