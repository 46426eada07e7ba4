/* Packed matrices: repacking, rows, integer activations and products, against a direct reading of the file's
 * blocks and between levels; one token against many; panels in one run against several. */
#include <math.h>
#include <string.h>

#include "compare.h"

/* The file's blocks, written down anew: weight = steps * scale + minimum. */
typedef struct {
    const char *name;
    int group, nbytes, scale_at, minimum_at, order;
} file_block;

static const file_block file_blocks[PACKED_TYPES] = {
    {"Q1_0", 128, 18, 0, -1, 8}, {"Q2_0", 64, 18, 0, -1, 4},  {"PQ2_0", 128, 34, 0, -1, 4}, {"PTQ1_0", 128, 28, 26, -1, 1},
    {"Q4_0", 32, 18, 0, -1, 16}, {"Q4_1", 32, 20, 0, 2, 16}, {"Q8_0", 32, 34, 0, -1, 1},
};

/* Trit `n` of a byte that holds five of them as the fraction byte / 256, most significant first. */
static int trit(uint8_t byte, int n) {
    static const int power[] = {3, 9, 27, 81, 243};
    return byte * power[n] / 256 % 3;
}

static int steps_of(enum packed_id id, const uint8_t *block, int i) {
    switch (id) {
        case Q1_0: return (block[2 + i / 8] >> i % 8) & 1 ? 1 : -1;
        case Q2_0:
        case PQ2_0: return ((block[2 + i / 4] >> 2 * (i % 4)) & 3) - 1;
        case PTQ1_0:
            if (i < 80) return trit(block[i % 16], i / 16) - 1;
            if (i < 120) return trit(block[16 + i % 8], (i - 80) / 8) - 1;
            return trit(block[24 + i % 2], (i - 120) / 2) - 1;
        case Q4_0: return (i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4) - 8;
        case Q4_1: return i < 16 ? block[4 + i] & 15 : block[4 + i - 16] >> 4;
        case Q8_0: return block[2 + i] < 128 ? block[2 + i] : block[2 + i] - 256;
        case PACKED_TYPES: break;
    }
    return 0;
}

static float half_at(const uint8_t *block, int at) {
    return slow_from_half((uint16_t)(block[at] | block[at + 1] << 8));
}

/* A matrix as the file has it, and the same in panels. */
typedef struct {
    enum packed_id id;
    const file_block *type;
    int64_t rows, blocks;
    uint8_t *raw;
    packed_matrix packed;
} matrix;

static void set_half(uint8_t *at, uint16_t half) {
    at[0] = half & 255;
    at[1] = (uint8_t)(half >> 8);
}

static const uint8_t extremes[] = {0x00, 0xff, 0x7f, 0x80};

static matrix new_matrix(enum packed_id id, int64_t rows, int64_t blocks, int offset, enum flavour flavour) {
    matrix m = {id, &file_blocks[id], rows, blocks, NULL, {id, rows, blocks * file_blocks[id].group, NULL, NULL}};
    const int64_t row_bytes = blocks * m.type->nbytes, nbytes = rows * row_bytes, whole = rows / 16;
    m.raw = memory(nbytes, 0);
    for (int64_t i = 0; i < nbytes; i++) m.raw[i] = (uint8_t)random_bits();
    for (int64_t r = 0; r < rows; r++) { /* the largest sums are those of equal codes */
        int64_t extreme = random_below(8);
        if (extreme < COUNT_OF(extremes)) memset(m.raw + r * row_bytes, extremes[extreme], (size_t)row_bytes);
    }
    for (int64_t b = 0; b < rows * blocks; b++) {
        uint8_t *block = m.raw + b * m.type->nbytes;
        set_half(block + m.type->scale_at, random_half(flavour));
        if (m.type->minimum_at >= 0) set_half(block + m.type->minimum_at, random_half(flavour));
        if (id == Q8_0) block[2 + random_below(32)] = 0x80;
    }
    uint8_t *rows_memory = memory(16 * row_bytes, 0);
    m.packed.panels = memory(nbytes, offset);
    memcpy(m.packed.panels, m.raw, (size_t)nbytes);
    repack(id, m.packed.panels, m.packed.inputs, 0, whole / 2, rows_memory);
    repack(id, m.packed.panels, m.packed.inputs, whole / 2, whole, rows_memory);
    if (rows % 16) {
        m.packed.tail = memory(16 * row_bytes, 0);
        memset(m.packed.tail, 0, (size_t)(16 * row_bytes));
        memcpy(m.packed.tail, m.raw + 16 * whole * row_bytes, (size_t)(rows % 16 * row_bytes));
        repack(id, m.packed.tail, m.packed.inputs, 0, 1, rows_memory);
    }
    return m;
}

static void check_rows(const matrix *m) {
    float *out = floats(m->packed.inputs), *slow = floats(m->packed.inputs);
    for (int64_t row = 0; row < m->rows; row += 1 + random_below(5)) {
        for (int64_t i = 0; i < m->packed.inputs; i++) {
            const uint8_t *block = m->raw + (row * m->blocks + i / m->type->group) * m->type->nbytes;
            slow[i] = (float)steps_of(m->id, block, (int)(i % m->type->group)) * half_at(block, m->type->scale_at);
            if (m->type->minimum_at >= 0) slow[i] = slow[i] + half_at(block, m->type->minimum_at);
        }
        select_row(&m->packed, row, out);
        expect_same(0, out, slow, m->packed.inputs, FLOATS, "select_row differs from the file's row");
    }
}

/* Rows of activations, most of them moderate; some blocks are what a scale can fail on. */
static float *new_inputs(int64_t tokens, int64_t inputs, int group) {
    static const float magnitudes[] = {0.0f, 1e-45f, 1e-37f, 3e-36f, 1e30f, 3.4e38f};
    float *x = random_floats(tokens * inputs, PLAIN);
    for (int64_t t = 0; t < tokens; t++) {
        int64_t kind = random_below(8), block = random_below(inputs / group);
        float *at = x + t * inputs + block * group, factor = magnitudes[random_below(COUNT_OF(magnitudes))];
        int64_t one = random_below(group), rare = random_below(8);
        if (kind == 0)
            for (int i = 0; i < group; i++) at[i] = factor * (float)random_between(-4, 4) / 4.0f;
        if (kind == 1) at[one] = random_float(HARSH);
        if (kind == 2 && rare < 2) at[one] = rare ? HUGE_VALF : NAN;
        if (kind == 3) { /* the largest bytes of one sign: 127, or 127 and -128 at 16 bits */
            for (int i = 0; i < group; i++) at[i] = rare % 2 ? -32384.0f : 32384.0f;
            at[one] = 32512.0f;
        }
    }
    return x;
}

static activations new_activations(const level *l, const float *x, int64_t tokens, const matrix *m, int bits) {
    activations a = {tokens, m->packed.inputs, m->blocks, tile_tokens(l, tokens), bits / 8, NULL, NULL, NULL};
    a.units = memory((tokens + a.tile - 1) / a.tile * a.tile * a.inputs * a.parts, 0);
    a.scales = floats(tokens * m->blocks);
    a.sums = memory(4 * tokens * m->blocks, 0);
    int64_t split = tokens / 3;
    l->quantise(x, m->type->group, m->type->order, &a, 0, split);
    l->quantise(x, m->type->group, m->type->order, &a, split, tokens);
    return a;
}

/* One product in the words of the contract; also the block's scale and sum of activations. */
static float slow_product(const matrix *m, int64_t row, const float *x, int bits, const activations *a, int64_t token,
                          int n) {
    const float limit = bits == 16 ? 32512.0f : 127.0f;
    float total = 0.0f;
    for (int64_t b = 0; b < m->blocks; b++, x += m->type->group) {
        const uint8_t *block = m->raw + (row * m->blocks + b) * m->type->nbytes;
        float largest = 0.0f, scale = 0.0f;
        int finite = 1, usable_scale;
        for (int i = 0; i < m->type->group; i++) {
            finite = finite && isfinite(x[i]);
            if (fabsf(x[i]) > largest) largest = fabsf(x[i]);
        }
        usable_scale = finite && largest > 0.0f && isfinite(limit / largest);
        if (usable_scale) scale = largest / limit;
        if (!finite) scale = NAN;
        int64_t dot = 0, sum = 0;
        for (int i = 0; usable_scale && i < m->type->group; i++) {
            int64_t q = (int64_t)nearbyintf(x[i] * (limit / largest));
            dot += q * steps_of(m->id, block, i);
            sum += q;
        }
        float term = (float)dot * (half_at(block, m->type->scale_at) * scale);
        if (m->type->minimum_at >= 0) term = term + (float)sum * (half_at(block, m->type->minimum_at) * scale);
        total = total + term;
        if (row > 0) continue;
        int32_t short_sum = (int32_t)sum;
        expect_same(n, &a->scales[token * m->blocks + b], &scale, 1, FLOATS, "scale of activations");
        expect_same(n, &a->sums[token * m->blocks + b], &short_sum, 4, BYTES, "sum of activations");
    }
    return total;
}

static void check_slowly(const matrix *m, const float *x, int64_t tokens, int bits, const activations *a,
                         const float *out) {
    for (int64_t t = 0; t < tokens; t += 1 + random_below(20))
        for (int64_t row = 0; row < m->rows; row += 1 + random_below(9)) {
            float slow = slow_product(m, row, x + t * m->packed.inputs, bits, a, t, 0);
            expect_same(0, out + t * m->rows + row, &slow, 1, FLOATS, "product differs from the contract");
        }
}

static void one_product(enum packed_id id, int bits, int64_t tokens, int64_t rows, int64_t blocks, int offset) {
    int64_t panels = (rows + 15) / 16;
    enum flavour flavour = random_below(6) ? HARSH : random_below(2) ? PLAIN : WILD;
    matrix m = new_matrix(id, rows, blocks, offset, flavour);
    float *x = new_inputs(tokens, m.packed.inputs, m.type->group);
    int64_t split = random_below(panels + 1), alone = random_below(tokens);
    describe("%s, %d bits, %d tokens, %d rows, %d inputs, panels at %d", m.type->name, bits, (int)tokens, (int)rows,
             (int)m.packed.inputs, offset);
    if (tokens < 4) check_rows(&m);
    EACH_LEVEL(n) {
        activations a = new_activations(usable[n], x, tokens, &m, bits);
        float *out = floats(tokens * rows), *row = floats(rows);
        usable[n]->packed(&m.packed, &a, out, 0, split);
        usable[n]->packed(&m.packed, &a, out, split, panels);
        compare(n, 0, a.scales, tokens * blocks, FLOATS);
        compare(n, 1, a.sums, 4 * tokens * blocks, BYTES);
        compare(n, 2, out, tokens * rows, FLOATS);
        if (n == 0) check_slowly(&m, x, tokens, bits, &a, out);
        activations one = new_activations(usable[n], x + alone * m.packed.inputs, 1, &m, bits);
        usable[n]->packed(&m.packed, &one, row, 0, panels);
        expect_same(n, row, out + alone * rows, rows, FLOATS, "one token differs from the same among many");
        int runs = usable[n] == emulated && tokens >= WIDE_TOKENS ? 2 : 0;
        expect(n, tiles_released() == runs, "tiles are held after a product, or were not used in it");
    }
    end_case();
}

static int64_t few_blocks(int id) { return random_between(1, 128 / file_blocks[id].group + 2); }

void compare_packed(void) {
    static const int64_t tokens[] = {1, 2, 3, 4, 5, 8, 16, 17, 63, 64, 65, 130}, rows[] = {1, 15, 16, 17, 33, 48};
    static const int offsets[] = {0, 32};
    for (int id = 0; id < PACKED_TYPES; id++)
        for (int bits = 8; bits <= 16; bits += 8)
            for (int t = 0; t < COUNT_OF(tokens); t++)
                for (int r = 0; r < COUNT_OF(rows); r++)
                    for (int i = 0; i < COUNT_OF(offsets); i++)
                        one_product((enum packed_id)id, bits, tokens[t], rows[r], few_blocks(id), offsets[i]);
    for (int id = 0; id < PACKED_TYPES; id++) { /* more inputs than are multiplied in one go */
        int64_t blocks = 4096 / file_blocks[id].group + random_between(1, 3);
        one_product((enum packed_id)id, id % 2 ? 8 : 16, 18, 47, blocks, 0);
    }
    for (int i = 0; i < 70; i++) { /* a file may align its data to less than 32 bytes, even to 1 */
        int64_t some = random_between(1, 40), odd = random_between(1, 70), blocks = few_blocks(i % PACKED_TYPES);
        one_product((enum packed_id)(i % PACKED_TYPES), i % 2 ? 8 : 16, some, odd, blocks, (int)random_below(64));
    }
}
