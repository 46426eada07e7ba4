/* Attention of one kv head, in the contract's order: queries and keys as integer vectors, whose products are exact
 * in any order; the exact maximum; lane sums of the weights; values in the order of positions.
 *
 * It goes by tiles of 16 positions: the keys of a tile lie as [pairs of dimensions][16 positions], so that lanes are
 * positions, and up to QUERIES queries meet a tile at a time. Neighbouring kv heads, whose keys and values are
 * neighbours in memory, may go through the positions together. */

/* e^x for x <= 0 or NaN, in 13 significant bits: its product with a half is exact. */
INLINE float attention_weight(float x) {
    float shifted = x * 1.4426950408889634f + ROUND_MAGIC;
    float r = x - (shifted - ROUND_MAGIC) * 0.6931471805599453f;
    float y = 0x1.570b98p-5f;
    y = y * r + 0x1.57e730p-3f;
    y = y * r + 0x1.fffe5ap-2f;
    y = y * r + 0x1.fffb0ep-1f;
    y = y * r + 1.0f;
    y = (y + 3072.0f) - 3072.0f; /* a multiple of 2^-12 */
    uint32_t bits; /* the lowest ones are the power's */
    memcpy(&bits, &shifted, 4);
    bits = (bits + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return x < -44.0f ? 0.0f : y * scale;
}

#ifndef OWN_TRANSPOSE
/* 16 rows of 16 dwords, `stride` dwords apart, to 16 columns of 16. */
INLINE void transpose(const void *rows, int64_t stride, void *columns) {
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++)
            memcpy((char *)columns + 4 * (16 * column + row), (const char *)rows + 4 * (row * stride + column), 4);
}
#endif

enum { AHEAD = 32 }; /* rows */

/* Ask for a row of halves that comes later: rows are too far apart for the processor to guess. */
INLINE void prefetch_row(const uint16_t *row, int64_t count) {
    for (int64_t i = 0; i < count; i += 32) prefetch(row + i);
}

INLINE F f_values(int halves, const void *p, int64_t at) {
    return halves ? f_half((const uint16_t *)p + at) : f_load((const float *)p + at);
}

/* Up to 16 vectors of `dim` floats or halves, `stride` values apart, as integers of length 32,512 and their scales.
 * A pair is the dimensions i and i + 16 of 32; zeros are where no dimension or vector is. Where the scale is NaN, the
 * integers are free. */
INLINE void integer_vectors(int halves, const void *vectors, int64_t stride, int64_t count, int64_t dim, int64_t pairs,
                            int32_t *out, float *scales) {
    LINE_ALIGNED float lanes[16 * 16] = {0}, columns[16 * 16], inverses[16];
    for (int64_t j = 0; j < count; j++) {
        F sum = f_set(0.0f);
        if (halves) prefetch_row((const uint16_t *)vectors + (j + AHEAD) * stride, dim);
        for (int64_t i = 0; i < dim; i += 16) {
            F x = f_values(halves, vectors, j * stride + i);
            sum = f_add(sum, f_mul(x, x));
        }
        f_store(lanes + 16 * j, sum);
    }
    transpose(lanes, 16, columns); /* so that the trees of all are additions of whole registers */
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++) {
            F sum = f_add(f_load(columns + 16 * l), f_load(columns + 16 * (l + half)));
            f_store(columns + 16 * l, sum);
        }
    for (int j = 0; j < 16; j++) {
        const float square = columns[j], length = sqrtf(square);
        const float inverse = 32512.0f / length, scale = length / 32512.0f;
        inverses[j] = square >= 7.888609052e-31f ? inverse : 0.0f; /* 2^-100 */
        scales[j] = square >= 7.888609052e-31f ? scale : 0.0f;
        scales[j] = square <= 3.402823466e38f ? scales[j] : (float)NAN;
    }
    for (int64_t j = 0; j < count; j++) {
        const F inverse = f_set(inverses[j]);
        for (int64_t i = 0; i < dim; i += 32, out += 16) {
            A low = f_round(f_mul(f_values(halves, vectors, j * stride + i), inverse)), high = a_zero();
            if (i + 16 < dim) high = f_round(f_mul(f_values(halves, vectors, j * stride + i + 16), inverse));
            a_store_pairs(out, low, high);
        }
    }
    memset(out, 0, sizeof(int32_t) * (size_t)((16 - count) * pairs));
}

/* The work on one kv head; query n is head n % group of token first + n / group. SEEN(n) positions are visible to it. */
typedef struct {
    const attention_job *job;
    int64_t kv_head, first, last, past, end, group, queries;
    int64_t padded; /* queries rounded up to whole blocks */
    int64_t pairs;  /* of dimensions, in whole transposed squares */
    int32_t *query; /* [padded / QUERIES][pairs][QUERIES] */
    float *query_scales;
    int32_t *keys; /* [pairs][16 positions] */
    int32_t *rows; /* [16 positions][pairs] */
    float *values; /* [SPAN][value_dim] */
    float *scores; /* [tiles][padded][16 positions] */
    float *most;   /* [padded][16 lanes] */
    float *totals; /* [padded][16 lanes] */
    float *mixed;  /* [padded][value_dim] */
} head_work;

#define SEEN(p, n) ((p)->past + (p)->first + (n) / (p)->group + 1)

INLINE float *scores_at(const head_work *p, int64_t position, int64_t n) {
    return p->scores + (position / 16 * p->padded + n) * 16;
}

/* The first query that sees `position`, rounded down to the start of its block of `block` queries. */
INLINE int64_t first_query(const head_work *p, int64_t position, int64_t block) {
    int64_t n = (position - p->past - p->first) * p->group;
    return n < 0 ? 0 : n / block * block;
}

/* Queries beyond the last are zeros. */
static void arrange_queries(const head_work *p) {
    const head_view *view = &p->job->query;
    LINE_ALIGNED float scales[16];
    memset(p->query, 0, sizeof(int32_t) * (size_t)(p->padded * p->pairs));
    memset(p->query_scales, 0, sizeof(float) * (size_t)p->padded);
    for (int64_t n = 0, count; n < p->queries; n += count) { /* heads of one token at a time */
        const int64_t head = n % p->group;
        const float *in = view->data + (p->first + n / p->group) * view->token_stride +
                          (p->kv_head * p->group + head) * view->head_stride;
        count = p->group - head < 16 ? p->group - head : 16;
        integer_vectors(0, in, view->head_stride, count, view->dim, p->pairs, p->rows, scales);
        for (int64_t k = n; k < n + count; k++) {
            int32_t *out = p->query + k / QUERIES * p->pairs * QUERIES + k % QUERIES;
            for (int64_t i = 0; i < p->pairs; i++) out[QUERIES * i] = p->rows[(k - n) * p->pairs + i];
            p->query_scales[k] = scales[k - n] * p->job->scale;
        }
    }
}

/* Keys of 16 positions as integers, zeros for positions from `end` on; their scales. */
static void load_keys(const head_work *p, int64_t position, float *scales) {
    const int64_t dim = p->job->query.dim, stride = p->job->kv_heads * dim, count = p->end - position;
    const uint16_t *keys = p->job->keys + position * stride + p->kv_head * dim;
    integer_vectors(1, keys, stride, count < 16 ? count : 16, dim, p->pairs, p->rows, scales);
    for (int64_t i = 0; i < p->pairs; i += 16) transpose(p->rows + i, p->pairs, p->keys + 16 * i);
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

/* All scores of the tile at `position`, and what they are at most so far. */
static void score_tile(const head_work *p, int64_t position) {
    const int64_t pairs = p->pairs;
    LINE_ALIGNED float scales[16];
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

/* Weights of SPAN positions of one query from `position` on; their lane sums grow. */
INLINE void span_weights(const head_work *p, int64_t position, int64_t n, float *weights) {
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
INLINE void mix_rows(int rows, int vectors, const float *weights, int halves, const void *values, int64_t stride,
                     int64_t count, int64_t dim, int64_t d, float *mixed) {
    F sums[MIXED_ROWS][MIXED_VECTORS];
    UNROLL
    for (int n = 0; n < rows; n++)
        UNROLL
        for (int v = 0; v < vectors; v++) sums[n][v] = f_load(mixed + n * dim + d + 16 * v);
    for (int64_t j = 0; j < count; j++) {
        F value[MIXED_VECTORS];
        if (halves) prefetch_row((const uint16_t *)values + (j + AHEAD) * stride + d, 16 * vectors);
        UNROLL
        for (int v = 0; v < vectors; v++) value[v] = f_values(halves, values, j * stride + d + 16 * v);
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

INLINE void mix_block(int rows, const float *weights, int halves, const void *values, int64_t stride, int64_t count,
                      int64_t dim, float *mixed) {
    int64_t d = 0;
    for (; d + 16 * MIXED_VECTORS <= dim; d += 16 * MIXED_VECTORS)
        mix_rows(rows, MIXED_VECTORS, weights, halves, values, stride, count, dim, d, mixed);
    for (; d < dim; d += 16) mix_rows(rows, 1, weights, halves, values, stride, count, dim, d, mixed);
}

/* Values of SPAN positions from `position` on, by their weights. */
static void mix_span(const head_work *p, int64_t position) {
    const int64_t dim = p->job->value_dim, stride = p->job->kv_heads * dim;
    const uint16_t *values = p->job->values + position * stride + p->kv_head * dim;
    const int64_t here = p->end - position < SPAN ? p->end - position : SPAN;
    LINE_ALIGNED float weights[MIXED_ROWS * SPAN];
    if (p->first == p->last - 1 && p->group <= MIXED_ROWS) { /* one token's heads, all at once */
        for (int64_t n = 0; n < p->queries; n++) span_weights(p, position, n, weights + n * SPAN);
        if (p->queries == MIXED_ROWS) mix_block(MIXED_ROWS, weights, 1, values, stride, here, dim, p->mixed);
        else if (p->queries == 2) mix_block(2, weights, 1, values, stride, here, dim, p->mixed);
        else
            for (int64_t n = 0; n < p->queries; n++)
                mix_block(1, weights + n * SPAN, 1, values, stride, here, dim, p->mixed + n * dim);
        return;
    }
    for (int64_t j = 0; j < here; j++) {
        prefetch_row(values + (j + AHEAD) * stride, dim);
        for (int64_t i = 0; i < dim; i += 16) f_store(p->values + j * dim + i, f_half(values + j * stride + i));
    }
    for (int64_t n = first_query(p, position, MIXED_ROWS); n < p->queries; n += MIXED_ROWS) {
        const int64_t rows = p->queries - n < MIXED_ROWS ? p->queries - n : MIXED_ROWS;
        float *mixed = p->mixed + n * dim;
        for (int64_t k = 0; k < rows; k++) span_weights(p, position, n + k, weights + k * SPAN);
        if (SEEN(p, n) >= position + SPAN && rows == MIXED_ROWS)
            mix_block(MIXED_ROWS, weights, 0, p->values, dim, SPAN, dim, mixed);
        else /* each to the last position that it sees */
            for (int64_t k = 0; k < rows; k++) {
                int64_t seen = SEEN(p, n + k) - position;
                mix_block(1, weights + k * SPAN, 0, p->values, dim, seen < SPAN ? seen : SPAN, dim, mixed + k * dim);
            }
    }
}

static void begin_head(head_work *p, const attention_job *job, int64_t kv_head, int64_t first, int64_t last,
                       float *scratch) {
    const int64_t vdim = job->value_dim;
    p->job = job, p->kv_head = kv_head, p->first = first, p->last = last;
    p->past = job->positions - job->query.tokens, p->end = p->past + last;
    p->group = job->query.heads / job->kv_heads;
    p->queries = (last - first) * p->group;
    p->padded = (p->queries + QUERIES - 1) / QUERIES * QUERIES;
    p->pairs = (job->query.dim + 31) / 32 * 16;
    p->keys = (int32_t *)scratch;
    p->rows = p->keys + 16 * p->pairs;
    p->query = p->rows + 16 * p->pairs;
    p->values = (float *)(p->query + p->padded * p->pairs);
    p->query_scales = p->values + SPAN * vdim;
    p->mixed = p->query_scales + (p->padded + 15) / 16 * 16;
    p->most = p->mixed + p->padded * vdim;
    p->totals = p->most + 16 * p->padded;
    p->scores = p->totals + 16 * p->padded;
    memset(p->mixed, 0, sizeof(float) * (size_t)(p->padded * vdim));
    memset(p->totals, 0, sizeof(float) * (size_t)(p->padded * 16));
    for (int64_t i = 0; i < 16 * p->padded; i++) p->most[i] = -INFINITY;
    arrange_queries(p);
}

/* Tokens first .. last - 1 of `heads` kv heads from `kv_head` on. */
static void attention(const attention_job *job, int64_t kv_head, int64_t heads, int64_t first, int64_t last,
                      float *scratch) {
    head_work work[MOST_HEADS];
    const int64_t vdim = job->value_dim, end = job->positions - job->query.tokens + last;
    for (int64_t h = 0; h < heads; h++)
        begin_head(work + h, job, kv_head + h, first, last, scratch + h * attention_scratch(job, last - first));
    for (int64_t position = 0; position < end; position += 16)
        for (int64_t h = 0; h < heads; h++) score_tile(work + h, position);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t n = 0; n < work[h].queries; n++) {
            float *most = work[h].most + 16 * n;
            for (int l = 1; l < 16; l++) most[0] = most[l] > most[0] ? most[l] : most[0];
        }
    for (int64_t position = 0; position < end; position += SPAN)
        for (int64_t h = 0; h < heads; h++) mix_span(work + h, position);
    for (int64_t h = 0; h < heads; h++) {
        const head_work *p = work + h;
        for (int64_t n = 0; n < p->queries; n++) {
            const float total = f_fold(f_load(p->totals + 16 * n));
            const int64_t head = p->kv_head * p->group + n % p->group;
            float *out = job->out + ((first + n / p->group) * job->query.heads + head) * vdim;
            for (int64_t i = 0; i < vdim; i++) out[i] = p->mixed[n * vdim + i] / total;
        }
    }
}
#undef SEEN
