/* Attention of one kv head, in the contract's order: queries and keys as integer vectors, whose products are exact
 * in any order; the exact maximum; lane sums of the weights; values in the order of positions.
 *
 * It goes by tiles of 16 positions: the keys of a tile lie as pairs of dimensions, [dim / 2][16 positions][2], so
 * that lanes are positions, and up to QUERIES queries meet a tile at a time. */

/* A vector (the square of its length is below 2^-100: zeros with scale 0; not finite: zeros with scale NaN) as
 * integers of length 32,512; `dim` floats in `x`, zeros follow up to `width`. Returns its scale. */
INLINE float integer_vector(const float *x, int64_t dim, int64_t width, int16_t *out) {
    const float square = lane_dot(x, x, dim), length = sqrtf(square);
    const int finite = square <= 3.402823466e38f, usable = finite && square >= 7.888609052e-31f;
    const float inverse = usable ? 32512.0f / length : 0.0f;
    for (int64_t i = 0; i < dim; i++) out[i] = usable ? (int16_t)(int32_t)((x[i] * inverse + ROUND_MAGIC) - ROUND_MAGIC) : 0;
    for (int64_t i = dim; i < width; i++) out[i] = 0;
    return usable ? length / 32512.0f : finite ? 0.0f : (float)NAN;
}

/* e^x for x <= 0 or NaN, rounded to 13 significant bits: its product with a half is exact. */
INLINE float attention_weight(float x) {
    float b = x < -44.0f ? -44.0f : x;
    float shifted = b * 1.4426950408889634f + ROUND_MAGIC;
    float r = b - (shifted - ROUND_MAGIC) * 0.6931471805599453f;
    float y = (float)(1.0 / 120);
    y = y * r + (float)(1.0 / 24);
    y = y * r + (float)(1.0 / 6);
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    uint32_t bits; /* the lowest ones are the power's */
    memcpy(&bits, &shifted, 4);
    bits = (bits + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    y = y * scale;
    float spread = y * 2049.0f;
    y = spread - (spread - y);
    return x < -44.0f ? 0.0f : y;
}

#ifndef OWN_TRANSPOSE
/* 16 rows of 16 pairs, `stride` pairs apart, as out[16 * column + row]. */
INLINE void transpose(const int16_t *rows, int64_t stride, int32_t *out) {
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++) memcpy(out + 16 * column + row, rows + 2 * (row * stride + column), 4);
}
#endif

/* The work on one kv head; query n is head n % group of token first + n / group. SEEN(n) positions are visible to it. */
typedef struct {
    const attention_job *job;
    int64_t kv_head, first, past, end, group, queries;
    int64_t padded; /* queries rounded up to whole blocks */
    int64_t width;  /* the dimension rounded up to whole transposed squares */
    int32_t *query; /* pairs [padded / QUERIES][width / 2][QUERIES] */
    float *query_scales;
    int32_t *keys; /* pairs [width / 2][16 positions] */
    int16_t *rows; /* [16 positions][width] */
    float *values; /* [SPAN][value_dim] */
    float *scores; /* [tiles][padded][16 positions] */
    float *most;   /* [padded][16 lanes] */
    float *totals; /* [padded][16 lanes] */
    float *mixed;  /* [padded][value_dim] */
} attention_work;

#define SEEN(p, n) ((p)->past + (p)->first + (n) / (p)->group + 1)

INLINE float *scores_at(const attention_work *p, int64_t position, int64_t n) {
    return p->scores + (position / 16 * p->padded + n) * 16;
}

/* The first query that sees `position`, rounded down to the start of its block of `block` queries. */
INLINE int64_t first_query(const attention_work *p, int64_t position, int64_t block) {
    int64_t n = (position - p->past - p->first) * p->group;
    return n < 0 ? 0 : n / block * block;
}

/* Queries beyond the last are zeros. */
static void arrange_queries(const attention_work *p) {
    const head_view *view = &p->job->query;
    const int64_t pairs = p->width / 2;
    LINE_ALIGNED int16_t integers[MAX_DIM + 32];
    memset(p->query, 0, sizeof(int32_t) * (size_t)(p->padded * pairs));
    for (int64_t n = 0; n < p->queries; n++) {
        const float *in = view->data + (p->first + n / p->group) * view->token_stride +
                          (p->kv_head * p->group + n % p->group) * view->head_stride;
        p->query_scales[n] = integer_vector(in, view->dim, p->width, integers) * p->job->scale;
        int32_t *out = p->query + n / QUERIES * pairs * QUERIES + n % QUERIES;
        for (int64_t i = 0; i < pairs; i++) memcpy(out + QUERIES * i, integers + 2 * i, 4);
    }
    for (int64_t n = p->queries; n < p->padded; n++) p->query_scales[n] = 0.0f;
}

/* Ask for rows `stride` apart: too far for the processor to guess. */
INLINE void prefetch_rows(const uint16_t *rows, int64_t stride, int64_t count, int64_t width) {
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < width; i += 32) prefetch(rows + j * stride + i);
}

/* Keys of 16 positions as integers, zeros for positions from `end` on; their scales. */
static void load_keys(const attention_work *p, int64_t position, float *scales) {
    const int64_t dim = p->job->query.dim, stride = p->job->kv_heads * dim, count = p->end - position;
    const uint16_t *keys = p->job->keys + position * stride + p->kv_head * dim;
    LINE_ALIGNED float row[MAX_DIM];
    if (count > 16) prefetch_rows(keys + 16 * stride, stride, count < 32 ? count - 16 : 16, dim);
    for (int64_t j = 0; j < 16; j++) {
        scales[j] = 0.0f;
        if (j >= count) {
            memset(p->rows + j * p->width, 0, 2 * (size_t)p->width);
            continue;
        }
        for (int64_t i = 0; i < dim; i += 16) f_store(row + i, f_half(keys + j * stride + i));
        scales[j] = integer_vector(row, dim, p->width, p->rows + j * p->width);
    }
    for (int64_t i = 0; i < p->width / 2; i += 16) transpose(p->rows + 2 * i, p->width / 2, p->keys + 16 * i);
}

/* Scores [count][16] of `count` queries against a tile of keys. Fewer queries have more sums apart, so that one product
 * need not wait for the one before. */
INLINE void block_scores(int count, const int32_t *query, const float *query_scales, const int32_t *keys,
                         const float *scales, int64_t pairs, float *scores) {
    P sums[QUERIES];
    const int apart = QUERIES / count;
    UNROLL
    for (int n = 0; n < QUERIES; n++) sums[n] = p_zero();
    for (int64_t i = 0; i < pairs; i += apart) {
        UNROLL
        for (int n = 0; n < QUERIES; n++)
            sums[n] = p_dot(sums[n], keys + 16 * (i + n / count), query + QUERIES * (i + n / count) + n % count);
    }
    UNROLL
    for (int n = 0; n < count; n++) {
        A dots = p_total(sums[n]);
        for (int k = n + count; k < QUERIES; k += count) dots = a_add(dots, p_total(sums[k]));
        f_store(scores + 16 * n, f_mul(f_int(dots), f_mul(f_set(query_scales[n]), f_load(scales))));
    }
}

INLINE void score_all(const attention_work *p) {
    const int64_t pairs = p->width / 2;
    LINE_ALIGNED float scales[16];
    for (int64_t i = 0; i < 16 * p->padded; i++) p->most[i] = -INFINITY;
    for (int64_t position = 0; position < p->end; position += 16) {
        load_keys(p, position, scales);
        int64_t count;
        for (int64_t n = first_query(p, position, QUERIES); n < p->queries; n += count) {
            const int64_t rest = p->queries - n;
            const int32_t *query = p->query + n / QUERIES * pairs * QUERIES + n % QUERIES;
            const float *query_scales = p->query_scales + n;
            float *scores = scores_at(p, position, n), *most = p->most + 16 * n;
            count = rest >= QUERIES - 1 ? QUERIES : rest > QUERIES / 4 ? QUERIES / 2 : QUERIES / 4;
            if (count == QUERIES) block_scores(QUERIES, query, query_scales, p->keys, scales, pairs, scores);
            else if (count == QUERIES / 2) block_scores(QUERIES / 2, query, query_scales, p->keys, scales, pairs, scores);
            else block_scores(FEWEST, query, query_scales, p->keys, scales, pairs, scores);
            if (SEEN(p, n) < position + 16) /* the diagonal: what a query does not see weighs nothing */
                for (int64_t k = 0; k < count; k++)
                    for (int64_t j = 0; j < 16; j++)
                        if (position + j >= SEEN(p, n + k)) scores[16 * k + j] = -INFINITY;
            for (int64_t i = 0; i < 16 * count; i++) most[i] = scores[i] > most[i] ? scores[i] : most[i];
        }
    }
}

/* Weights of SPAN positions of one query from `position` on; their lane sums grow. */
INLINE void span_weights(const attention_work *p, int64_t position, int64_t n, float *weights) {
    const float largest = p->most[16 * n];
    const int64_t seen = SEEN(p, n) < p->end ? SEEN(p, n) : p->end;
    float *totals = p->totals + 16 * n;
    for (int64_t j = 0; j < SPAN && position + j < seen; j += 16) {
        const float *scores = scores_at(p, position + j, n);
        for (int l = 0; l < 16; l++) weights[j + l] = attention_weight(scores[l] - largest);
        f_store(totals, f_add(f_load(totals), f_load(weights + j)));
    }
}

/* mixed[row][dim] += weights[row][j] * values[j][dim], j in order, for `rows` queries. Every product is exact, so a
 * fused addition gives what two roundings would. */
INLINE void mix_rows(int rows, int vectors, const float *weights, const float *values, int64_t count, int64_t dim,
                     int64_t d, float *mixed) {
    F sums[MIXED_ROWS][MIXED_VECTORS];
    UNROLL
    for (int n = 0; n < rows; n++)
        UNROLL
        for (int v = 0; v < vectors; v++) sums[n][v] = f_load(mixed + n * dim + d + 16 * v);
    for (int64_t j = 0; j < count; j++) {
        F value[MIXED_VECTORS];
        UNROLL
        for (int v = 0; v < vectors; v++) value[v] = f_load(values + j * dim + d + 16 * v);
        UNROLL
        for (int n = 0; n < rows; n++) {
            F weight = f_set(weights[n * SPAN + j]);
            UNROLL
            for (int v = 0; v < vectors; v++) sums[n][v] = f_add_exact(sums[n][v], weight, value[v]);
        }
    }
    UNROLL
    for (int n = 0; n < rows; n++)
        UNROLL
        for (int v = 0; v < vectors; v++) f_store(mixed + n * dim + d + 16 * v, sums[n][v]);
}

INLINE void mix_block(int rows, const float *weights, const float *values, int64_t count, int64_t dim, float *mixed) {
    int64_t d = 0;
    for (; d + 16 * MIXED_VECTORS <= dim; d += 16 * MIXED_VECTORS)
        mix_rows(rows, MIXED_VECTORS, weights, values, count, dim, d, mixed);
    for (; d < dim; d += 16) mix_rows(rows, 1, weights, values, count, dim, d, mixed);
}

INLINE void mix_all(const attention_work *p) {
    const int64_t dim = p->job->value_dim, stride = p->job->kv_heads * dim;
    for (int64_t position = 0; position < p->end; position += SPAN) {
        const uint16_t *values = p->job->values + position * stride + p->kv_head * dim;
        const int64_t count = p->end - position;
        if (count > SPAN) prefetch_rows(values + SPAN * stride, stride, count < 2 * SPAN ? count - SPAN : SPAN, dim);
        for (int64_t j = 0; j < SPAN && j < count; j++)
            for (int64_t i = 0; i < dim; i += 16) f_store(p->values + j * dim + i, f_half(values + j * stride + i));
        for (int64_t n = first_query(p, position, MIXED_ROWS); n < p->queries; n += MIXED_ROWS) {
            LINE_ALIGNED float weights[MIXED_ROWS * SPAN];
            const int64_t rows = p->queries - n < MIXED_ROWS ? p->queries - n : MIXED_ROWS;
            float *mixed = p->mixed + n * dim;
            for (int64_t k = 0; k < rows; k++) span_weights(p, position, n + k, weights + k * SPAN);
            if (SEEN(p, n) >= position + SPAN && rows == MIXED_ROWS)
                mix_block(MIXED_ROWS, weights, p->values, SPAN, dim, mixed);
            else if (SEEN(p, n) == SEEN(p, n + 1) && rows == 2) /* the heads of one token */
                mix_block(2, weights, p->values, SEEN(p, n) - position < SPAN ? SEEN(p, n) - position : SPAN, dim, mixed);
            else /* each to the last position that it sees */
                for (int64_t k = 0; k < rows; k++) {
                    int64_t seen = SEEN(p, n + k) - position;
                    mix_block(1, weights + k * SPAN, p->values, seen < SPAN ? seen : SPAN, dim, mixed + k * dim);
                }
        }
    }
}

/* Tokens first .. last - 1 of one kv head. */
static void attention(const attention_job *job, int64_t kv_head, int64_t first, int64_t last, float *scratch) {
    const int64_t vdim = job->value_dim;
    attention_work p;
    p.job = job, p.kv_head = kv_head, p.first = first;
    p.past = job->positions - job->query.tokens, p.end = p.past + last;
    p.group = job->query.heads / job->kv_heads;
    p.queries = (last - first) * p.group;
    p.padded = (p.queries + QUERIES - 1) / QUERIES * QUERIES;
    p.width = (job->query.dim + 31) / 32 * 32;
    p.keys = (int32_t *)scratch;
    p.rows = (int16_t *)(p.keys + 8 * p.width);
    p.query = (int32_t *)(p.rows + 16 * p.width);
    p.values = (float *)(p.query + p.padded * p.width / 2);
    p.query_scales = p.values + SPAN * vdim;
    p.mixed = p.query_scales + (p.padded + 15) / 16 * 16;
    p.most = p.mixed + p.padded * vdim;
    p.totals = p.most + 16 * p.padded;
    p.scores = p.totals + 16 * p.padded;
    memset(p.mixed, 0, sizeof(float) * (size_t)(p.padded * vdim));
    memset(p.totals, 0, sizeof(float) * (size_t)(p.padded * 16));
    arrange_queries(&p);
    score_all(&p);
    for (int64_t n = 0; n < p.queries; n++)
        for (int l = 1; l < 16; l++)
            if (p.most[16 * n + l] > p.most[16 * n]) p.most[16 * n] = p.most[16 * n + l];
    mix_all(&p);
    for (int64_t n = 0; n < p.queries; n++) {
        const float total = f_fold(f_load(p.totals + 16 * n));
        float *out = job->out + ((first + n / p.group) * job->query.heads + kv_head * p.group + n % p.group) * vdim;
        for (int64_t i = 0; i < vdim; i++) out[i] = p.mixed[n * vdim + i] / total;
    }
}
#undef SEEN
