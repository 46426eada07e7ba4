/* Products of packed matrices with integer activations, in terms of vector_*.h.
 *
 * A panel is 16 rows: all code registers of its blocks, then the small pieces. Panels start where 16 rows
 * of the file started, so some lie 32 bytes off a 64-byte boundary; those put their first piece in front,
 * and the code registers are aligned in both cases. */

#ifndef TILES
#define TILES 0 /* level_amx.c has tile registers */
#endif

enum { CHUNK_TOKENS = 64, MAX_STEPS = 32 };

typedef struct {
    const uint8_t *codes, *pieces;
    const uint8_t *first; /* piece 0 */
} panel_view;

INLINE panel_view view_panel(const packed_type *type, const uint8_t *panel, int64_t blocks) {
    panel_view v;
    int lead = ((uintptr_t)panel & 63) == 32 ? 32 : 0;
    v.codes = panel + lead;
    v.pieces = v.codes + blocks * type->registers * 64 - lead;
    v.first = lead ? panel : v.pieces;
    return v;
}

INLINE const uint16_t *piece(const panel_view *v, int64_t index) {
    return (const uint16_t *)(index ? v->pieces + 32 * index : v->first);
}

/* The inner loop of one register: USE(codes) gets four inputs' codes of 16 rows, in step order. */
#define EACH_FIELD(BITS, REGISTER, USE)                                    \
    for (int field_ = 0; field_ < 8 / (BITS); field_++) {                  \
        USE(v_field(REGISTER, field_ * (BITS), (1 << (BITS)) - 1));        \
    }

/* Unpack a block of 16 rows to one code a byte, [steps][16 rows][4 inputs]. */
INLINE void unpack_block(const packed_type type, const uint8_t *codes, const uint16_t *extra, uint8_t *out) {
    if (type.bits) {
        for (int r = 0; r < type.registers; r++) {
            V packed = v_load(codes + 64 * r);
#define STORE(CODES) (v_store(out, (CODES)), out += 64)
            EACH_FIELD(type.bits, packed, STORE)
#undef STORE
        }
        return;
    }
    for (int r = 0; r < 6; r++) { /* trits: step = input / 4 of the file's order */
        V b = v_load(codes + 64 * r);
        int base = r < 4 ? r : 20 + (r - 4), stride = r < 4 ? 4 : 2;
        for (int n = 0; n < 5; n++) {
            v_store(out + 64 * (base + n * stride), v_digit(b));
            b = v_triple(b);
        }
    }
    V b = v_pairs((const uint8_t *)extra);
    v_store(out + 64 * 30, v_digit(b));
    v_store(out + 64 * 31, v_digit(v_triple(v_triple(b))));
}

/* One block's contribution to 16 rows, from the exact integer sums. */
INLINE F block_term(const packed_type type, A dots, F scale, const uint16_t *minimum, float x_scale, int32_t sum) {
    if (type.step == 2) dots = a_scale(dots, 1);
    if (type.zero) dots = a_minus(dots, type.zero * sum);
    F x = f_set(x_scale);
    F term = f_mul(f_int(dots), f_mul(scale, x));
    if (minimum) term = f_add(term, f_mul(f_set((float)sum), f_mul(f_half(minimum), x)));
    return term;
}

/* `count` tokens of one unpacked block, from `token` on, all in one tile; y [count][16] is added to. */
INLINE void tile_block(const packed_type type, int parts, int count, const uint8_t *unpacked, F scale,
                       const uint16_t *minimum, const activations *x, int64_t token, int64_t block, float *y) {
    A high[TILE_TOKENS], low[TILE_TOKENS];
    const int8_t *q = x->units + (token / TILE_TOKENS * x->inputs * TILE_TOKENS + token % TILE_TOKENS * 4 +
                                  block * type.group * TILE_TOKENS) * parts;
    UNROLL
    for (int t = 0; t < count; t++) high[t] = low[t] = a_zero();
    for (int s = 0; s < type.group / 4; s++, q += 4 * TILE_TOKENS * parts) {
        V w = v_load(unpacked + 64 * s);
        UNROLL
        for (int t = 0; t < count; t++) {
            high[t] = a_dot(high[t], w, q + 4 * parts * t, type.largest);
            if (parts == 2) low[t] = a_dot(low[t], w, q + 4 * parts * t + 4, type.largest);
        }
    }
    UNROLL
    for (int t = 0; t < count; t++) {
        int64_t at = (token + t) * x->blocks + block;
        A dots = a_total(high[t], type.largest);
        if (parts == 2) dots = a_add(a_scale(dots, 8), a_total(low[t], type.largest));
        F term = block_term(type, dots, scale, minimum, x->scales[at], x->sums[at]);
        f_store(y + 16 * t, f_add(f_load(y + 16 * t), term));
    }
}

/* `token` is the first of a tile. */
INLINE void panel_many(const packed_type type, int parts, const panel_view *v, const activations *x, int64_t token,
                       int64_t tokens, float *y) {
    uint8_t unpacked[MAX_STEPS * 64];
    const int step = parts == 2 ? STEP_TOKENS_16 : STEP_TOKENS_8;
    for (int64_t b = 0; b < x->blocks; b++) {
        const uint16_t *extra = type.pieces == 2 ? piece(v, 2 * b + 1) : NULL;
        F scale = f_half(piece(v, type.pieces * b));
        prefetch(v->codes + (b + 1) * type.registers * 64);
        unpack_block(type, v->codes + b * type.registers * 64, extra, unpacked);
        if (!type.bits) extra = NULL;
        int64_t t = 0;
        for (; t + step <= tokens; t += step)
            tile_block(type, parts, step, unpacked, scale, extra, x, token + t, b, y + 16 * t);
        for (; step > 2 && t + 2 <= tokens; t += 2)
            tile_block(type, parts, 2, unpacked, scale, extra, x, token + t, b, y + 16 * t);
        for (; t < tokens; t++) tile_block(type, parts, 1, unpacked, scale, extra, x, token + t, b, y + 16 * t);
    }
}

/* How the weights of one token are read. Panels that go together share what is read of the activations, where the cores
 * bind and registers allow it. Types of two bits keep the memory busy with one, with its weights asked for further ahead
 * than the processor would guess (docs/performance.md has what was measured). */
enum { NEAR_BYTES = 8192, FAR_BYTES = 20480 };
INLINE int asks_far(const packed_type type) { return SIDE > 1 && type.bits == 2; }
INLINE int panels_together(const packed_type type) { return asks_far(type) ? 1 : SIDE; }

/* One token and `side` panels, `panel_bytes` apart, which share what is read of the activations; y [side][16]. Codes go
 * from memory to the dot product without a detour. The run of panels ends at `end`. */
INLINE void panels_one(const packed_type type, int parts, int side, const uint8_t *panel, int64_t panel_bytes,
                       const uint8_t *end, const activations *x, float *y) {
    const int far = asks_far(type);
    const int64_t code_bytes = 64 * type.registers, distance = (far ? FAR_BYTES : NEAR_BYTES) / code_bytes / side;
    const int chains = CHAINS / side;
    const int8_t *q = x->units;
    panel_view v[SIDE];
    F sums[SIDE];
    UNROLL
    for (int p = 0; p < side; p++) v[p] = view_panel(&type, panel + p * panel_bytes, x->blocks), sums[p] = f_set(0.0f);
    /* Asked for are the codes and pieces of the block that lies `distance` ahead: often in the next panels. Far ahead,
     * what lies behind the run is left alone, and panels that are here already asked for instead. */
    int64_t soon = distance % x->blocks;
    const uint8_t *then = v[0].codes + distance / x->blocks * side * panel_bytes;
    if (far && then >= end) then = v[0].codes;
    for (int64_t b = 0; b < x->blocks; b++, q += type.group * parts) {
        A high[SIDE][CHAINS], low[SIDE][CHAINS]; /* apart, so that one product need not wait for the one before */
        UNROLL
        for (int p = 0; p < side; p++) {
            UNROLL
            for (int c = 0; c < chains; c++) high[p][c] = low[p][c] = a_zero();
            prefetch_once(then + p * panel_bytes + x->blocks * code_bytes + soon * 32 * type.pieces);
        }
#define DOT(K, CODES, INPUT)                                                                          \
    do {                                                                                              \
        const X high_ = x_four(q + (INPUT) * parts), low_ = x_four(q + (INPUT) * parts + 4 * parts - 4); \
        UNROLL                                                                                        \
        for (int p = 0; p < side; p++) {                                                              \
            V w_ = CODES;                                                                             \
            high[p][(K) % chains] = a_dot_four(high[p][(K) % chains], w_, high_, type.largest);       \
            if (parts == 2) low[p][(K) % chains] = a_dot_four(low[p][(K) % chains], w_, low_, type.largest); \
        }                                                                                             \
    } while (0)
        UNROLL
        for (int r = 0; r < type.registers; r++) {
            V packed[SIDE];
            UNROLL
            for (int p = 0; p < side; p++) {
                prefetch_once(then + p * panel_bytes + soon * code_bytes + 64 * r);
                packed[p] = v_load(v[p].codes + b * code_bytes + 64 * r);
            }
            if (type.bits) {
                const int fields = type.bits ? 8 / type.bits : 1;
                UNROLL
                for (int n = 0; n < fields; n++)
                    DOT(r * fields + n, v_field(packed[p], n * type.bits, (1 << type.bits) - 1), 4 * (r * fields + n));
            } else { /* five trits a byte; the digits of 16 bytes follow each other in the file, or those of 8 */
                const int base = r < 4 ? 4 * r : 80 + 4 * (r - 4), stride = r < 4 ? 16 : 8;
                UNROLL
                for (int n = 0; n < 5; n++) {
                    DOT(n, v_digit(packed[p]), base + n * stride);
                    for (int p = 0; p < side; p++) packed[p] = v_triple(packed[p]);
                }
            }
        }
        if (!type.bits) {
            V trits[SIDE];
            for (int p = 0; p < side; p++) trits[p] = v_pairs((const uint8_t *)piece(&v[p], 2 * b + 1));
            DOT(0, v_digit(trits[p]), 120);
            DOT(1, v_digit(v_triple(v_triple(trits[p]))), 124);
        }
#undef DOT
        UNROLL
        for (int p = 0; p < side; p++) {
            A dots = a_total(high[p][0], type.largest), lows = a_total(low[p][0], type.largest);
            UNROLL
            for (int c = 1; c < chains; c++) {
                dots = a_add(dots, a_total(high[p][c], type.largest));
                lows = a_add(lows, a_total(low[p][c], type.largest));
            }
            if (parts == 2) dots = a_add(a_scale(dots, 8), lows);
            const uint16_t *minimum = type.bits && type.pieces == 2 ? piece(&v[p], 2 * b + 1) : NULL;
            F scale = f_half(piece(&v[p], type.pieces * b));
            sums[p] = f_add(sums[p], block_term(type, dots, scale, minimum, x->scales[b], x->sums[b]));
        }
        if (++soon == x->blocks) {
            soon = 0, then += side * panel_bytes;
            if (far && then >= end) then = v[0].codes;
        }
    }
    UNROLL
    for (int p = 0; p < side; p++) f_store(y + 16 * p, sums[p]);
}

#if TILES
#include "wide.h"
#endif

INLINE void packed_of(const packed_type type, int parts, const packed_matrix *m, const activations *x, float *out,
                      int64_t first, int64_t last) {
#if TILES
    if (x->tile == WIDE_TOKENS) {
        wide_of(type, parts, m, x, out, first, last);
        return;
    }
#endif
    const int64_t panel_bytes = 16 * x->blocks * type.file_bytes, whole = m->rows / 16;
    float y[CHUNK_TOKENS * 16];
    if (x->tile == 1) {
        const uint8_t *start = m->panels + first * panel_bytes, *end = m->panels + last * panel_bytes;
        const int side = panels_together(type);
        int64_t panel = first;
        for (int64_t i = 0; asks_far(type) && i < FAR_BYTES; i += 64) prefetch_once(start + i);
        for (; panel + side <= last && panel + side <= whole; panel += side)
            panels_one(type, parts, side, m->panels + panel * panel_bytes, panel_bytes, end, x, out + 16 * panel);
        for (; panel < last; panel++) {
            const uint8_t *at = panel < whole ? m->panels + panel * panel_bytes : m->tail;
            panels_one(type, parts, 1, at, panel_bytes, end, x, y);
            memcpy(out + 16 * panel, y, sizeof(float) * (size_t)(panel < whole ? 16 : m->rows % 16));
        }
        return;
    }
    for (int64_t token = 0; token < x->tokens; token += CHUNK_TOKENS) {
        const int64_t tokens = x->tokens - token < CHUNK_TOKENS ? x->tokens - token : CHUNK_TOKENS;
        for (int64_t panel = first; panel < last; panel++) {
            panel_view v = view_panel(&type, panel < whole ? m->panels + panel * panel_bytes : m->tail, x->blocks);
            memset(y, 0, sizeof(float) * 16 * (size_t)tokens);
            panel_many(type, parts, &v, x, token, tokens, y);
            float *to = out + token * m->rows + 16 * panel;
            for (int64_t t = 0; t < tokens; t++, to += m->rows) {
                if (panel < whole) f_store(to, f_load(y + 16 * t));
                else memcpy(to, y + 16 * t, sizeof(float) * (size_t)(m->rows % 16));
            }
        }
    }
}

/* Products with panels first .. last - 1. */
#if !TYPES_SHARE_CODE
/* One function a type and precision, so that everything above is compiled with constants. */
#define PACKED_FUNCTION(NAME, PARTS)                                                                             \
    static void packed_##NAME##_##PARTS(const packed_matrix *m, const activations *x, float *out, int64_t first, \
                                        int64_t last) {                                                          \
        const packed_type type = TYPE_##NAME;                                                                    \
        packed_of(type, PARTS, m, x, out, first, last);                                                          \
    }
#define PACKED_FUNCTIONS(NAME) PACKED_FUNCTION(NAME, 1) PACKED_FUNCTION(NAME, 2)
#define PACKED_CASE(NAME)                                                       \
    case NAME:                                                                  \
        if (x->parts == 2) packed_##NAME##_2(m, x, out, first, last);           \
        else packed_##NAME##_1(m, x, out, first, last);                         \
        break

PACKED_FUNCTIONS(Q1_0)
PACKED_FUNCTIONS(Q2_0)
PACKED_FUNCTIONS(PQ2_0)
PACKED_FUNCTIONS(PTQ1_0)
PACKED_FUNCTIONS(Q4_0)
PACKED_FUNCTIONS(Q4_1)
PACKED_FUNCTIONS(Q8_0)

static void packed(const packed_matrix *m, const activations *x, float *out, int64_t first, int64_t last) {
    switch (m->id) {
        PACKED_CASE(Q1_0);
        PACKED_CASE(Q2_0);
        PACKED_CASE(PQ2_0);
        PACKED_CASE(PTQ1_0);
        PACKED_CASE(Q4_0);
        PACKED_CASE(Q4_1);
        PACKED_CASE(Q8_0);
        case PACKED_TYPES: break;
    }
}
#else
static void packed(const packed_matrix *m, const activations *x, float *out, int64_t first, int64_t last) {
    if (x->parts == 2) packed_of(packed_types[m->id], 2, m, x, out, first, last);
    else packed_of(packed_types[m->id], 1, m, x, out, first, last);
}
#endif
