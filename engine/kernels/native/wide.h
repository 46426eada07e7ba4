/* Products of packed matrices with 16 tokens and more, in tile registers.
 *
 * One tile holds a run of inputs of 16 tokens, as quantise has laid them out; another the same inputs of a panel,
 * unpacked: [inputs / 4][16 rows][4 inputs]. Their product is [16 tokens][16 rows] of exact sums. Two panels
 * share the tokens' tiles, which come from the second level cache. */

enum { WIDE_CHUNK = 128, WIDE_SPAN = 4096, BLOCK_BYTES = 16 * 128 }; /* a span of a chunk stays in that cache */

/* Tiles 0 to 3: sums of the first panel with the high and the low parts, then of the second. 4, 5: high and low
 * parts of activations. 6, 7: weights of the panels. */
#define SHAPES(RUN) \
    {1, 0, {0}, {64, 64, 64, 64, RUN, RUN, 64, 64}, {16, 16, 16, 16, 16, 16, (RUN) / 4, (RUN) / 4}}
static const tile_shapes shapes_32 = SHAPES(32), shapes_64 = SHAPES(64);

/* Unpack a block of 16 rows to what its scale multiplies, step * code - zero: a signed byte for every type. */
INLINE void unpack_signed(const packed_type type, const panel_view *v, int64_t block, uint8_t *out) {
    const V zero = _mm512_set1_epi8((char)type.zero);
    unpack_block(type, v->codes + block * type.registers * 64, type.pieces == 2 ? piece(v, 2 * block + 1) : NULL, out);
    for (int s = 0; s < type.group / 4; s++, out += 64) {
        V codes = v_load(out);
        if (type.step == 2) codes = _mm512_add_epi8(codes, codes);
        v_store(out, _mm512_sub_epi8(codes, zero));
    }
}

/* Exact sums of one block of one or two panels with a tile of tokens: [panel][part][16 tokens][16 rows]. */
INLINE void tile_sums(int group, int parts, int panels, const uint8_t *weights, const int8_t *units, int32_t *sums) {
    const int run = group < LONGEST_RUN ? group : LONGEST_RUN;
    tile_zero(0);
    if (parts == 2) tile_zero(1);
    if (panels == 2) tile_zero(2);
    if (panels == 2 && parts == 2) tile_zero(3);
    for (int i = 0; i < group; i += run, units += WIDE_TOKENS * run * parts) {
        tile_load(4, units, run * parts);
        tile_load(6, weights + 16 * i, 64);
        tile_dot(0, 4, 6);
        if (panels == 2) {
            tile_load(7, weights + BLOCK_BYTES + 16 * i, 64);
            tile_dot(2, 4, 7);
        }
        if (parts == 2) {
            tile_load(5, units + run, run * parts);
            tile_dot(1, 5, 6);
            if (panels == 2) tile_dot(3, 5, 7);
        }
    }
    tile_store(0, sums, 64);
    if (parts == 2) tile_store(1, sums + 256, 64);
    if (panels == 2) tile_store(2, sums + 256 * parts, 64);
    if (panels == 2 && parts == 2) tile_store(3, sums + 768, 64);
}

/* Add a block's terms of one panel to y [count][16]. */
INLINE void add_terms(const packed_type type, int parts, int64_t count, const int32_t *sums, F scale,
                      const uint16_t *minimum, const activations *x, int64_t token, int64_t block, float *y) {
    packed_type plain = type; /* step and zero are in the sums already */
    plain.step = 1;
    plain.zero = 0;
    for (int64_t t = 0; t < count; t++, sums += 16, y += 16) {
        int64_t at = (token + t) * x->blocks + block;
        A dots = v_load((const uint8_t *)sums);
        if (parts == 2) dots = a_add(a_scale(dots, 8), v_load((const uint8_t *)(sums + 256)));
        f_store(y, f_add(f_load(y), block_term(plain, dots, scale, minimum, x->scales[at], x->sums[at])));
    }
}

/* Blocks from .. to - 1 of one or two panels with `tokens` tokens from `token` on; y is [panel][WIDE_CHUNK][16]. */
INLINE void wide_blocks(const packed_type type, int parts, int panels, const panel_view *v, const activations *x,
                        int64_t token, int64_t tokens, int64_t from, int64_t to, float *y) {
    LINE_ALIGNED uint8_t weights[2 * BLOCK_BYTES];
    LINE_ALIGNED int32_t sums[4 * 256];
    const int64_t tiles = (x->tokens + WIDE_TOKENS - 1) / WIDE_TOKENS;
    for (int64_t b = from; b < to; b++) {
        const int8_t *units = x->units + (b * tiles + token / WIDE_TOKENS) * WIDE_TOKENS * type.group * parts;
        const uint16_t *minimum[2] = {NULL, NULL};
        F scale[2];
        for (int p = 0; p < panels; p++) {
            prefetch(v[p].codes + (b + 1) * type.registers * 64);
            unpack_signed(type, &v[p], b, weights + p * BLOCK_BYTES);
            scale[p] = f_half(piece(&v[p], type.pieces * b));
            if (type.bits && type.pieces == 2) minimum[p] = piece(&v[p], 2 * b + 1);
        }
        for (int64_t t = 0; t < tokens; t += WIDE_TOKENS, units += WIDE_TOKENS * type.group * parts) {
            int64_t count = tokens - t < WIDE_TOKENS ? tokens - t : WIDE_TOKENS;
            tile_sums(type.group, parts, panels, weights, units, sums);
            for (int p = 0; p < panels; p++)
                add_terms(type, parts, count, sums + 256 * parts * p, scale[p], minimum[p], x, token + t, b,
                          y + (p * WIDE_CHUNK + t) * 16);
        }
    }
}

/* As wide_blocks, with y in the result: what blocks before `from` have given is there. */
INLINE void wide_panels(const packed_type type, int parts, int panels, const packed_matrix *m, const activations *x,
                        int64_t panel, int64_t token, int64_t from, int64_t to, float *out) {
    LINE_ALIGNED float y[2 * WIDE_CHUNK * 16] = {0};
    const int64_t nbytes = 16 * x->blocks * type.file_bytes;
    const int64_t tokens = x->tokens - token < WIDE_CHUNK ? x->tokens - token : WIDE_CHUNK;
    panel_view v[2];
    size_t size[2];
    for (int p = 0; p < panels; p++) {
        int64_t at = panel + p, rows = m->rows - 16 * at;
        v[p] = view_panel(&type, at < m->rows / 16 ? m->panels + at * nbytes : m->tail, x->blocks);
        size[p] = sizeof(float) * (size_t)(rows < 16 ? rows : 16);
    }
    out += token * m->rows + 16 * panel;
    for (int p = 0; p < panels && from > 0; p++)
        for (int64_t t = 0; t < tokens; t++) memcpy(y + (p * WIDE_CHUNK + t) * 16, out + t * m->rows + 16 * p, size[p]);
    wide_blocks(type, parts, panels, v, x, token, tokens, from, to, y);
    for (int p = 0; p < panels; p++)
        for (int64_t t = 0; t < tokens; t++) memcpy(out + t * m->rows + 16 * p, y + (p * WIDE_CHUNK + t) * 16, size[p]);
}

INLINE void wide_of(const packed_type type, int parts, const packed_matrix *m, const activations *x, float *out,
                    int64_t first, int64_t last) {
    const int64_t span = WIDE_SPAN / type.group;
    tile_config(type.group < LONGEST_RUN ? &shapes_32 : &shapes_64);
    for (int64_t token = 0; token < x->tokens; token += WIDE_CHUNK)
        for (int64_t from = 0; from < x->blocks; from += span) {
            int64_t to = from + span < x->blocks ? from + span : x->blocks, panel = first;
            for (; panel + 2 <= last; panel += 2) wide_panels(type, parts, 2, m, x, panel, token, from, to, out);
            if (panel < last) wide_panels(type, parts, 1, m, x, panel, token, from, to, out);
        }
    tile_release();
}
