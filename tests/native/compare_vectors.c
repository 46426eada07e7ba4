/* Operations along one axis: norm, activations and the Hadamard transform. */
#include <stddef.h>
#include <string.h>

#include "compare.h"

static void norm(int64_t tokens, int64_t width, int added) {
    enum flavour flavour = random_flavour();
    float *x = random_floats(tokens * width, flavour), *weight = random_floats(width, PLAIN);
    float *add = added ? random_floats(tokens * width, flavour) : NULL;
    describe("rms_norm, %d tokens, width %d, %s", (int)tokens, (int)width, added ? "with a sum" : "alone");
    EACH_LEVEL(n) {
        float *own = copy_of(x, 4 * tokens * width), *out = floats(tokens * width);
        usable[n]->rms_norm(own, add, weight, 1e-6f, tokens, width, out);
        compare(n, 0, own, tokens * width, FLOATS);
        compare(n, 1, out, tokens * width, FLOATS);
    }
    end_case();
}

static void products(int64_t count) {
    float *gate = random_floats(count, WILD), *up = random_floats(count, random_flavour());
    describe("silu_product, %d numbers", (int)count);
    EACH_LEVEL(n) {
        float *out = floats(count);
        usable[n]->silu_product(gate, up, count, out);
        compare(n, 0, out, count, FLOATS);
    }
    end_case();
}

static float *signs(int64_t count) {
    float *out = floats(count);
    for (int64_t i = 0; i < count; i++) out[i] = random_below(2) ? 1.0f : -1.0f;
    return out;
}

static void transform(int64_t block, int options) {
    const int64_t tokens = random_between(1, 3), blocks = random_between(1, 3), width = block * blocks;
    float *x = random_floats(tokens * width, random_flavour());
    float *before = options & 1 ? signs(width) : NULL, *after = options & 2 ? signs(width) : NULL;
    int64_t *order = options & 4 ? memory(8 * width, 0) : NULL;
    for (int64_t i = 0; order && i < width; i++) { /* a permutation, by Fisher and Yates */
        int64_t other = random_below(i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    describe("hadamard, %d tokens, %d blocks of %d, options %d", (int)tokens, (int)blocks, (int)block, options);
    EACH_LEVEL(n) {
        float *out = floats(tokens * width);
        usable[n]->hadamard(x, order, before, after, tokens, width, block, out);
        compare(n, 0, out, tokens * width, FLOATS);
    }
    end_case();
}

static void reading(int64_t nbytes) {
    uint8_t *data = memory(nbytes, (int)random_below(64));
    for (int64_t i = 0; i < nbytes; i++) data[i] = (uint8_t)random_bits();
    describe("read, %d bytes", (int)nbytes);
    EACH_LEVEL(n) {
        uint64_t *sum = memory(8, 0);
        *sum = usable[n]->read(data, nbytes);
        compare(n, 0, sum, 8, BYTES);
    }
    end_case();
}

void compare_vectors(void) {
    static const int64_t widths[] = {1, 2, 15, 16, 17, 33, 100, 129, 1000};
    for (int w = 0; w < COUNT_OF(widths); w++)
        for (int64_t tokens = 1; tokens <= 3; tokens++) {
            norm(tokens, widths[w], 0);
            norm(tokens, widths[w], 1);
            products(tokens * widths[w]);
        }
    products(20000);
    for (int64_t block = 1; block <= 1024; block *= 2)
        for (int options = 0; options < 8; options++) transform(block, options);
    for (int64_t nbytes = 0; nbytes < 1000; nbytes += 1 + random_below(100)) reading(nbytes);
}
