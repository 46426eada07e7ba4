/* Between the file's layout of packed weights and panels of 16 rows; see kernels.h and packed.h. */
#include "common.h"
#include "types.h"
#include "vector_portable.h"

const packed_type packed_types[PACKED_TYPES] = {TYPE_Q1_0, TYPE_Q2_0, TYPE_PQ2_0, TYPE_PTQ1_0,
                                                TYPE_Q4_0, TYPE_Q4_1, TYPE_Q8_0};

int64_t panel_bytes(enum packed_id id, int64_t inputs) {
    return 16 * (inputs / packed_types[id].group) * packed_types[id].file_bytes;
}

/* Where a panel keeps its codes and its small piece `index`. */
static uint8_t *codes_of(uint8_t *panel) { return panel + (((uintptr_t)panel & 63) == 32 ? 32 : 0); }
static uint8_t *piece_of(const packed_type *type, uint8_t *panel, int64_t blocks, int64_t index) {
    uint8_t *codes = codes_of(panel);
    if (codes == panel) return codes + blocks * type->registers * 64 + 32 * index;
    return index == 0 ? panel : codes + blocks * type->registers * 64 + 32 * (index - 1);
}

void repack(enum packed_id id, uint8_t *panels, int64_t inputs, int64_t first, int64_t last, uint8_t *rows) {
    const packed_type *type = &packed_types[id];
    const int64_t blocks = inputs / type->group, row_bytes = blocks * type->file_bytes;
    for (int64_t p = first; p < last; p++) {
        uint8_t *panel = panels + p * 16 * row_bytes, *codes = codes_of(panel);
        memcpy(rows, panel, (size_t)(16 * row_bytes));
        for (int64_t b = 0; b < blocks; b++) {
            uint8_t *scales = piece_of(type, panel, blocks, type->pieces * b);
            uint8_t *extras = type->pieces == 2 ? piece_of(type, panel, blocks, 2 * b + 1) : NULL;
            for (int r = 0; r < 16; r++) {
                const uint8_t *block = rows + r * row_bytes + b * type->file_bytes;
                for (int j = 0; j < type->registers; j++)
                    memcpy(codes + (b * type->registers + j) * 64 + 4 * r, block + type->codes_at + 4 * j, 4);
                memcpy(scales + 2 * r, block + type->scale_at, 2);
                if (extras) memcpy(extras + 2 * r, block + type->extra_at, 2);
            }
            if (id == Q8_0) /* unsigned codes: add 128 */
                for (int i = 0; i < type->registers * 64; i++) codes[b * type->registers * 64 + i] ^= 0x80;
        }
    }
}

static int digit_of(uint8_t byte, int n) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    return ((uint8_t)(byte * power[n]) * 3) >> 8;
}

/* Code of one input of a block; `code` are the row's code bytes in file order, `extra` its trit pair. */
static int code_of(const packed_type *type, const uint8_t *code, const uint8_t *extra, int i) {
    if (type->bits == 0) {
        if (i < 80) return digit_of(code[i % 16], i / 16);
        if (i < 120) return digit_of(code[16 + (i - 80) % 8], (i - 80) / 8);
        return digit_of(extra[(i - 120) % 2], (i - 120) / 2);
    }
    if (type->bits == 4) return i < 16 ? code[i] & 15 : code[i - 16] >> 4;
    int each = 8 / type->bits;
    return (code[i / each] >> (i % each * type->bits)) & ((1 << type->bits) - 1);
}

void select_row(const packed_matrix *m, int64_t row, float *out) {
    const packed_type *type = &packed_types[m->id];
    const int64_t blocks = m->inputs / type->group, p = row / 16, r = row % 16;
    uint8_t *panel = p < m->rows / 16 ? m->panels + p * panel_bytes(m->id, m->inputs) : m->tail;
    for (int64_t b = 0; b < blocks; b++) {
        uint8_t code[32];
        uint16_t half;
        for (int j = 0; j < type->registers; j++)
            memcpy(code + 4 * j, codes_of(panel) + (b * type->registers + j) * 64 + 4 * r, 4);
        const uint8_t *extra = type->pieces == 2 ? piece_of(type, panel, blocks, 2 * b + 1) + 2 * r : NULL;
        memcpy(&half, piece_of(type, panel, blocks, type->pieces * b) + 2 * r, 2);
        float scale = half_to_float(half), minimum = 0.0f;
        if (type->bits && extra) {
            memcpy(&half, extra, 2);
            minimum = half_to_float(half);
        }
        for (int i = 0; i < type->group; i++) {
            float value = (float)(type->step * code_of(type, code, extra, i) - type->zero) * scale;
            *out++ = type->bits && extra ? value + minimum : value;
        }
    }
}

int64_t attention_scratch(const attention_job *job, int64_t tokens) {
    const int64_t positions = (job->positions + 15) / 16 * 16, vdim = job->value_dim;
    const int64_t pairs = (job->query.dim + 31) / 32 * 16;
    const int64_t padded = tokens * (job->query.heads / job->kv_heads) + MOST_QUERIES;
    return (32 * pairs + SPAN * vdim + padded * (pairs + 1 + vdim + 32 + positions) + 16 + 15) / 16 * 16;
}
