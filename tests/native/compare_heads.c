/* Heads seen through strides: norm, rotation, rounding to fp16, gated products. */
#include <stddef.h>

#include "compare.h"

typedef struct {
    int64_t tokens, heads, dim;
    head_view view;
} head_case;

/* Heads with gaps between them and between tokens. */
static head_case new_heads(int64_t tokens, int64_t heads, int64_t dim, enum flavour flavour) {
    int64_t head_stride = dim + random_below(3) * 5;
    int64_t token_stride = heads * head_stride + random_below(3) * 7;
    head_case c = {tokens, heads, dim, {NULL, tokens, heads, dim, token_stride, head_stride}};
    c.view.data = random_floats((tokens - 1) * token_stride + (heads - 1) * head_stride + dim, flavour);
    return c;
}

static void rotation(head_case c, int with_norm, int64_t pairs, int adjacent) {
    const int64_t count = c.tokens * c.heads * c.dim;
    float *norm = with_norm ? random_floats(c.dim, PLAIN) : NULL;
    float *cosines = random_floats(c.tokens * pairs, PLAIN);
    float *sines = random_floats(c.tokens * pairs, PLAIN);
    rope_rows rope = {cosines, sines, pairs, adjacent};
    describe("heads, %d tokens, %d of dimension %d, norm %d, %d pairs, adjacent %d", (int)c.tokens, (int)c.heads,
             (int)c.dim, with_norm, (int)pairs, adjacent);
    uint16_t *slow = memory(2 * count, 0);
    EACH_LEVEL(n) {
        float *out = floats(count);
        uint16_t *halves = memory(2 * count, 0);
        usable[n]->heads(&c.view, norm, 1e-5f, &rope, out);
        usable[n]->heads_half(&c.view, norm, 1e-5f, &rope, halves);
        compare(n, 0, out, count, FLOATS);
        for (int64_t i = 0; n == 0 && i < count; i++) slow[i] = slow_to_half(out[i]);
        expect_same(n, halves, slow, count, HALVES, "halves differ from the rounded heads");
    }
    end_case();
}

static void rounding(head_case c) {
    const int64_t count = c.tokens * c.heads * c.dim;
    uint16_t *slow = memory(2 * count, 0), *to = slow;
    describe("halves of %d tokens, %d heads of dimension %d", (int)c.tokens, (int)c.heads, (int)c.dim);
    for (int64_t t = 0; t < c.tokens; t++)
        for (int64_t h = 0; h < c.heads; h++)
            for (int64_t i = 0; i < c.dim; i++)
                *to++ = slow_to_half(c.view.data[t * c.view.token_stride + h * c.view.head_stride + i]);
    EACH_LEVEL(n) {
        uint16_t *halves = memory(2 * count, 0);
        usable[n]->heads_half(&c.view, NULL, 0.0f, NULL, halves);
        expect_same(n, halves, slow, count, HALVES, "differ from the definition");
    }
    end_case();
}

static void gated(head_case c) {
    const int64_t count = c.tokens * c.heads * c.dim;
    float *values = random_floats(count, PLAIN);
    describe("sigmoid_product, %d tokens, %d heads of dimension %d", (int)c.tokens, (int)c.heads, (int)c.dim);
    EACH_LEVEL(n) {
        float *out = floats(count);
        usable[n]->sigmoid_product(&c.view, values, out);
        compare(n, 0, out, count, FLOATS);
    }
    end_case();
}

void compare_heads(void) {
    static const int64_t dims[] = {2, 16, 18, 34, 64, 80, 128, 256, 1024};
    for (int d = 0; d < COUNT_OF(dims); d++)
        for (int round = 0; round < 4; round++) {
            const int64_t tokens = random_between(1, 4);
            const int64_t heads = random_between(1, 5);
            const enum flavour flavour = round == 3 ? WILD : round == 2 ? HARSH : PLAIN;
            for (int options = 0; options < 4; options++) {
                int64_t pairs = random_below(2) ? dims[d] / 2 : random_between(0, dims[d] / 2);
                rotation(new_heads(tokens, heads, dims[d], flavour), options & 1, pairs, options / 2);
            }
            rounding(new_heads(tokens, heads, dims[d], flavour));
            gated(new_heads(tokens, heads, dims[d], flavour));
        }
}
