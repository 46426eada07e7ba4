/* Matrices of float weights, with ragged inputs and at any address, against the contract and between levels. */
#include <string.h>

#include "compare.h"

static const int sizes[] = {4, 2, 2};

static float slow_weight(enum dense_id id, const uint8_t *at) {
    uint32_t bits;
    uint16_t half;
    float value;
    memcpy(&half, at, 2);
    if (id == DENSE_F16) return slow_from_half(half);
    bits = (uint32_t)half << 16;
    memcpy(&value, id == DENSE_F32 ? (const void *)at : (const void *)&bits, 4);
    return value;
}

/* Sixteen lanes, then the tree. */
static float slow_product(enum dense_id id, const uint8_t *row, const float *x, int64_t inputs) {
    float lanes[16] = {0};
    for (int64_t i = 0; i < inputs; i++) lanes[i % 16] = lanes[i % 16] + slow_weight(id, row + i * sizes[id]) * x[i];
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] = lanes[l] + lanes[l + half];
    return lanes[0];
}

static uint8_t *new_weights(enum dense_id id, int64_t count, int offset, enum flavour flavour) {
    uint8_t *weights = memory(count * sizes[id], offset);
    for (int64_t i = 0; i < count; i++) {
        float value = random_float(flavour);
        uint32_t bits;
        uint16_t half = random_half(flavour);
        memcpy(&bits, &value, 4);
        if (id == DENSE_BF16) half = (uint16_t)(bits >> 16);
        memcpy(weights + i * sizes[id], id == DENSE_F32 ? (const void *)&bits : (const void *)&half, (size_t)sizes[id]);
    }
    return weights;
}

static void one_product(enum dense_id id, int64_t inputs, int64_t rows, int64_t tokens) {
    const int offset = (int)random_below(64);
    const enum flavour flavour = random_below(4) ? PLAIN : random_flavour();
    uint8_t *weights = new_weights(id, rows * inputs, offset, flavour);
    float *x = random_floats(tokens * inputs, flavour), *slow = floats(tokens * rows);
    dense_matrix m = {id, rows, inputs, weights};
    int64_t split = random_below(rows + 1);
    describe("dense type %d, %d inputs, %d rows, %d tokens, at %d", (int)id, (int)inputs, (int)rows, (int)tokens, offset);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t r = 0; r < rows; r++)
            slow[t * rows + r] = slow_product(id, weights + r * inputs * sizes[id], x + t * inputs, inputs);
    EACH_LEVEL(n) {
        float *out = floats(tokens * rows), *row = floats(rows);
        usable[n]->dense(&m, x, tokens, out, 0, split);
        usable[n]->dense(&m, x, tokens, out, split, rows);
        expect_same(n, out, slow, tokens * rows, FLOATS, "differs from the contract");
        usable[n]->dense(&m, x + (tokens - 1) * inputs, 1, row, 0, rows);
        expect_same(n, row, slow + (tokens - 1) * rows, rows, FLOATS, "one token differs from the same among many");
    }
    end_case();
}

void compare_dense(void) {
    static const int64_t inputs[] = {1, 15, 16, 17, 31, 100, 263, 1040}, rows[] = {1, 2, 7, 33}, tokens[] = {1, 2, 3, 5, 18};
    for (int id = DENSE_F32; id <= DENSE_BF16; id++)
        for (int i = 0; i < COUNT_OF(inputs); i++)
            for (int r = 0; r < COUNT_OF(rows); r++)
                for (int t = 0; t < COUNT_OF(tokens); t++)
                    one_product((enum dense_id)id, inputs[i], rows[r], tokens[t]);
}
