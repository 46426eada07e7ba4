/* A few small products by two levels: the least that a level must get right before this process relies on it. */
#include "common.h"

enum { ROWS = 48, INPUTS = 256, TOKENS = 19, MOST_BYTES = ROWS * INPUTS / 32 * 34, MOST_BLOCKS = INPUTS / 32 };

static uint32_t next(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

/* Random blocks with scales and minimums between 2^-7 and 2^-5, then panels of them. */
static void fill(enum packed_id id, uint8_t *panels, uint8_t *rows) {
    const packed_type *type = &packed_types[id];
    uint32_t state = 1;
    for (int i = 0; i < ROWS * INPUTS / type->group; i++) {
        uint8_t *block = panels + i * type->file_bytes;
        for (int j = 0; j < type->file_bytes; j++) block[j] = (uint8_t)(next(&state) >> 24);
        block[type->scale_at + 1] = (uint8_t)(0x20 | (block[type->scale_at + 1] & 0x87));
        if (type->bits && type->extra_at >= 0)
            block[type->extra_at + 1] = (uint8_t)(0x20 | (block[type->extra_at + 1] & 0x87));
    }
    repack(id, panels, INPUTS, 0, ROWS / 16, rows);
}

static void multiply(const level *l, const packed_matrix *m, int parts, const float *x, float *out) {
    int8_t units[(TOKENS + WIDE_TOKENS) * INPUTS * 2];
    float scales[TOKENS * MOST_BLOCKS];
    int32_t sums[TOKENS * MOST_BLOCKS];
    const packed_type *type = &packed_types[m->id];
    activations a = {TOKENS, INPUTS, INPUTS / type->group, tile_tokens(l, TOKENS), parts, units, scales, sums};
    l->quantise(x, type->group, type->order, &a, 0, TOKENS);
    l->packed(m, &a, out, 0, ROWS / 16);
}

int levels_agree(const level *a, const level *b) {
    static const int parts[] = {1, 2};
    uint8_t panels[MOST_BYTES], rows[MOST_BYTES];
    float x[TOKENS * INPUTS], first[TOKENS * ROWS], second[TOKENS * ROWS];
    uint32_t state = 2;
    for (int i = 0; i < TOKENS * INPUTS; i++) x[i] = (float)((int32_t)next(&state) / 65536);
    for (int id = 0; id < PACKED_TYPES; id++) {
        packed_matrix m = {(enum packed_id)id, ROWS, INPUTS, panels, NULL};
        fill(m.id, panels, rows);
        for (int n = 0; n < 2; n++) {
            multiply(a, &m, parts[n], x, first);
            multiply(b, &m, parts[n], x, second);
            if (memcmp(first, second, sizeof first)) return 0;
        }
    }
    return 1;
}
