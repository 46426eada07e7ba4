/* Attention of one kv head, in the contract's order: scores by lanes of the head dimension and their tree, the
 * exact maximum, lane sums of the weights, values in the order of positions.
 *
 * A decode step goes position by position. Many tokens go by tiles of 16 positions: with the keys of a tile
 * as [dim][16 positions], lanes are positions, and the tree over the dimension needs no shuffles. Queries are
 * taken QUERIES at a time from [dim][QUERIES], so that a score block is all multiplications and additions. */

/* exp(s - max) in place, and their lane sum; the row is padded with zeros to a multiple of 16. */
INLINE float softmax_weights(float *scores, int64_t count) {
    float most[16], largest = scores[0];
    int64_t whole = count / 16 * 16;
    for (int l = 0; l < 16; l++) most[l] = largest;
    for (int64_t j = 0; j < whole; j += 16)
        for (int l = 0; l < 16; l++) most[l] = scores[j + l] > most[l] ? scores[j + l] : most[l];
    for (int l = 0; l < 16; l++) largest = most[l] > largest ? most[l] : largest;
    for (int64_t j = whole; j < count; j++) largest = scores[j] > largest ? scores[j] : largest;
    for (int64_t j = 0; j < count; j++) scores[j] = canon_exp(scores[j] - largest);
    return lane_total(scores, count);
}

/* out[dim] += weights[j] * values[j][dim], j in order; values has `stride` halves a position. */
INLINE void mix_values(const float *weights, const uint16_t *values, int64_t stride, int64_t count, int64_t dim,
                       float *out) {
    int64_t d = 0;
    for (; d + 64 <= dim; d += 64) {
        F a = f_load(out + d), b = f_load(out + d + 16), c = f_load(out + d + 32), e = f_load(out + d + 48);
        for (int64_t j = 0; j < count; j++) {
            const uint16_t *v = values + j * stride + d;
            F w = f_set(weights[j]);
            a = f_add(a, f_mul(w, f_half(v)));
            b = f_add(b, f_mul(w, f_half(v + 16)));
            c = f_add(c, f_mul(w, f_half(v + 32)));
            e = f_add(e, f_mul(w, f_half(v + 48)));
        }
        f_store(out + d, a), f_store(out + d + 16, b), f_store(out + d + 32, c), f_store(out + d + 48, e);
    }
    for (; d < dim; d += 16) { /* dims are multiples of 16: the wrapper sees to it */
        F a = f_load(out + d);
        for (int64_t j = 0; j < count; j++)
            a = f_add(a, f_mul(f_set(weights[j]), f_half(values + j * stride + d)));
        f_store(out + d, a);
    }
}

/* One token's heads of one kv head. Scratch: the scores of one head. */
INLINE void attend_one(const attention_job *job, int64_t kv_head, int64_t t, float *scratch) {
    const int64_t dim = job->query.dim, group = job->query.heads / job->kv_heads;
    const int64_t seen = job->positions - job->query.tokens + t + 1, stride = job->kv_heads * dim;
    const uint16_t *keys = job->keys + kv_head * dim;
    for (int64_t g = 0; g < group; g++) {
        const int64_t h = kv_head * group + g;
        const float *q = job->query.data + t * job->query.token_stride + h * job->query.head_stride;
        for (int64_t j = 0; j < seen; j++) {
            F sum = f_set(0.0f);
            for (int64_t i = 0; i < dim; i += 16) sum = f_add(sum, f_mul(f_load(q + i), f_half(keys + j * stride + i)));
            scratch[j] = f_fold(sum) * job->scale;
        }
        float total = softmax_weights(scratch, seen);
        float *out = job->out + (t * job->query.heads + h) * job->value_dim;
        memset(out, 0, sizeof(float) * (size_t)job->value_dim);
        mix_values(scratch, job->values + kv_head * job->value_dim, job->kv_heads * job->value_dim, seen,
                   job->value_dim, out);
        for (int64_t i = 0; i < job->value_dim; i++) out[i] = out[i] / total;
    }
}

#ifndef OWN_COLUMNS
/* 16 rows of 16 halves, `stride` apart, as floats out[16 * column + row]. */
INLINE void f_columns(const uint16_t *rows, int64_t stride, float *out) {
    for (int row = 0; row < 16; row++) {
        float line[16];
        f_store(line, f_half(rows + row * stride));
        for (int column = 0; column < 16; column++) out[16 * column + row] = line[column];
    }
}
#endif

/* A prefill's work on one kv head. `padded` is `queries` (tokens times heads of the group) rounded up to whole
 * blocks; SEEN(n) positions are visible to query n. */
typedef struct {
    const attention_job *job;
    int64_t kv_head, first, past, end, group, queries, padded;
    float *query;  /* [padded / QUERIES][dim][QUERIES] */
    float *scores; /* [tiles][padded][16 positions] */
    float *most;   /* [padded][16 lanes] */
    float *totals; /* [padded][16 lanes] */
    float *mixed;  /* [padded][value_dim] */
    float *tile;   /* keys [dim][16], later values [SPAN][value_dim] */
} prefill;

#define SEEN(p, n) ((p)->past + (p)->first + (n) / (p)->group + 1)

INLINE float *scores_at(const prefill *p, int64_t position, int64_t n) {
    return p->scores + (position / 16 * p->padded + n) * 16;
}

/* The first query that sees `position`, rounded down to the start of its block of `block` queries. */
INLINE int64_t first_query(const prefill *p, int64_t position, int64_t block) {
    int64_t n = (position - p->past - p->first) * p->group;
    return n < 0 ? 0 : n / block * block;
}

/* Queries beyond the last are zeros. */
static void arrange_queries(const prefill *p) {
    const head_view *view = &p->job->query;
    memset(p->query, 0, sizeof(float) * (size_t)(p->padded * view->dim));
    for (int64_t n = 0; n < p->queries; n++) {
        const float *in = view->data + (p->first + n / p->group) * view->token_stride +
                          (p->kv_head * p->group + n % p->group) * view->head_stride;
        float *out = p->query + n / QUERIES * view->dim * QUERIES + n % QUERIES;
        for (int64_t i = 0; i < view->dim; i++) out[QUERIES * i] = in[i];
    }
}

/* Ask for rows `stride` apart: too far for the processor to guess. */
INLINE void prefetch_rows(const uint16_t *rows, int64_t stride, int64_t count, int64_t width) {
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < width; i += 32) prefetch(rows + j * stride + i);
}

/* Keys of 16 positions as float32 [dim][16], zeros for positions from `end` on. */
static void load_keys(const prefill *p, int64_t position) {
    const int64_t dim = p->job->query.dim, stride = p->job->kv_heads * dim, count = p->end - position;
    const uint16_t *keys = p->job->keys + position * stride + p->kv_head * dim;
    if (count > 16) prefetch_rows(keys + 16 * stride, stride, count < 32 ? count - 16 : 16, dim);
    for (int64_t i = 0; i < dim; i += 16) {
        if (count >= 16) {
            f_columns(keys + i, stride, p->tile + 16 * i);
        } else {
            uint16_t rows[16 * 16] = {0};
            for (int64_t j = 0; j < count; j++) memcpy(rows + 16 * j, keys + j * stride + i, 32);
            f_columns(rows, 16, p->tile + 16 * i);
        }
    }
}

/* Lane l of QUERIES scores: the products of dims l, l + 16, … in order. */
INLINE void lane_scores(const float *query, const float *keys, int64_t dim, int l, F *sums) {
    UNROLL
    for (int n = 0; n < QUERIES; n++) sums[n] = f_set(0.0f);
    for (int64_t i = l; i < dim; i += 16) {
        F key = f_load(keys + 16 * i);
        UNROLL
        for (int n = 0; n < QUERIES; n++) sums[n] = f_add(sums[n], f_mul(f_set(query[QUERIES * i + n]), key));
    }
}

/* Scores [QUERIES][16] of a block of queries against a tile of keys; the sixteen lanes meet in a tree. */
INLINE void block_scores(const float *query, const float *keys, int64_t dim, float scale, float *out) {
    LINE_ALIGNED float lanes[8][16 * QUERIES];
    for (int l = 0; l < 8; l++) {
        F sums[QUERIES], other[QUERIES];
        lane_scores(query, keys, dim, l, sums);
        lane_scores(query, keys, dim, l + 8, other);
        UNROLL
        for (int n = 0; n < QUERIES; n++) f_store(lanes[l] + 16 * n, f_add(sums[n], other[n]));
    }
    for (int n = 0; n < 16 * QUERIES; n += 16) {
        F half[4];
        UNROLL
        for (int l = 0; l < 4; l++) half[l] = f_add(f_load(lanes[l] + n), f_load(lanes[l + 4] + n));
        F sum = f_add(f_add(half[0], half[2]), f_add(half[1], half[3]));
        f_store(out + n, f_mul(sum, f_set(scale)));
    }
}

/* A known dimension lets the loops be unrolled. */
INLINE void tile_scores(const float *query, const float *keys, int64_t dim, float scale, float *out) {
    if (dim == 128) block_scores(query, keys, 128, scale, out);
    else if (dim == 256) block_scores(query, keys, 256, scale, out);
    else block_scores(query, keys, dim, scale, out);
}

INLINE void score_prefill(const prefill *p) {
    const int64_t dim = p->job->query.dim;
    for (int64_t i = 0; i < 16 * p->padded; i++) p->most[i] = -INFINITY;
    for (int64_t position = 0; position < p->end; position += 16) {
        load_keys(p, position);
        for (int64_t n = first_query(p, position, QUERIES); n < p->padded; n += QUERIES) {
            float *scores = scores_at(p, position, n), *most = p->most + 16 * n;
            tile_scores(p->query + n * dim, p->tile, dim, p->job->scale, scores);
            if (SEEN(p, n) < position + 16) /* the diagonal: what a query does not see weighs nothing */
                for (int64_t k = 0; k < QUERIES; k++)
                    for (int64_t j = 0; j < 16; j++)
                        if (position + j >= SEEN(p, n + k)) scores[16 * k + j] = -INFINITY;
            for (int i = 0; i < 16 * QUERIES; i++) most[i] = scores[i] > most[i] ? scores[i] : most[i];
        }
    }
}

/* Weights exp(s - largest) of SPAN positions of one query from `position` on; their lane sums grow. */
INLINE void span_weights(const prefill *p, int64_t position, int64_t n, float *weights) {
    const float largest = p->most[16 * n];
    const int64_t seen = SEEN(p, n) < p->end ? SEEN(p, n) : p->end;
    float *totals = p->totals + 16 * n;
    for (int64_t j = 0; j < SPAN && position + j < seen; j += 16) {
        const float *scores = scores_at(p, position + j, n);
        for (int l = 0; l < 16; l++) weights[j + l] = canon_exp(scores[l] - largest);
        f_store(totals, f_add(f_load(totals), f_load(weights + j)));
    }
}

/* mixed[row][dim] += weights[row][j] * values[j][dim], j in order, for `rows` queries. */
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
            for (int v = 0; v < vectors; v++) sums[n][v] = f_add(sums[n][v], f_mul(weight, value[v]));
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

INLINE void mix_prefill(const prefill *p) {
    const int64_t dim = p->job->value_dim, stride = p->job->kv_heads * dim;
    for (int64_t position = 0; position < p->end; position += SPAN) {
        const uint16_t *values = p->job->values + position * stride + p->kv_head * dim;
        const int64_t count = p->end - position;
        if (count > SPAN) prefetch_rows(values + SPAN * stride, stride, count < 2 * SPAN ? count - SPAN : SPAN, dim);
        for (int64_t j = 0; j < SPAN && j < count; j++)
            for (int64_t i = 0; i < dim; i += 16) f_store(p->tile + j * dim + i, f_half(values + j * stride + i));
        for (int64_t n = first_query(p, position, MIXED_ROWS); n < p->queries; n += MIXED_ROWS) {
            LINE_ALIGNED float weights[MIXED_ROWS * SPAN];
            float *mixed = p->mixed + n * dim;
            for (int k = 0; k < MIXED_ROWS; k++) span_weights(p, position, n + k, weights + k * SPAN);
            if (SEEN(p, n) >= position + SPAN)
                mix_block(MIXED_ROWS, weights, p->tile, SPAN, dim, mixed);
            else /* each to the last position that it sees */
                for (int64_t k = 0; k < MIXED_ROWS && n + k < p->queries; k++) {
                    int64_t count = SEEN(p, n + k) - position;
                    mix_block(1, weights + k * SPAN, p->tile, count < SPAN ? count : SPAN, dim, mixed + k * dim);
                }
        }
    }
}

/* Tokens first .. last - 1 of one kv head. */
INLINE void attend_many(const attention_job *job, int64_t kv_head, int64_t first, int64_t last, float *scratch) {
    const int64_t dim = job->query.dim, vdim = job->value_dim;
    prefill p;
    p.job = job, p.kv_head = kv_head, p.first = first;
    p.past = job->positions - job->query.tokens, p.end = p.past + last;
    p.group = job->query.heads / job->kv_heads;
    p.queries = (last - first) * p.group;
    p.padded = (p.queries + PADDED_QUERIES - 1) / PADDED_QUERIES * PADDED_QUERIES;
    p.tile = scratch;
    p.query = p.tile + SPAN * (dim > vdim ? dim : vdim);
    p.mixed = p.query + p.padded * dim;
    p.most = p.mixed + p.padded * vdim;
    p.totals = p.most + 16 * p.padded;
    p.scores = p.totals + 16 * p.padded;
    memset(p.mixed, 0, sizeof(float) * (size_t)(p.padded * vdim));
    memset(p.totals, 0, sizeof(float) * (size_t)(p.padded * 16));
    arrange_queries(&p);
    score_prefill(&p);
    for (int64_t n = 0; n < p.padded; n++)
        for (int l = 1; l < 16; l++)
            if (p.most[16 * n + l] > p.most[16 * n]) p.most[16 * n] = p.most[16 * n + l];
    mix_prefill(&p);
    for (int64_t n = 0; n < p.queries; n++) {
        const float total = f_fold(f_load(p.totals + 16 * n));
        float *out = job->out + ((first + n / p.group) * job->query.heads + kv_head * p.group + n % p.group) * vdim;
        for (int64_t i = 0; i < vdim; i++) out[i] = p.mixed[n * vdim + i] / total;
    }
}
#undef SEEN

static void attention(const attention_job *job, int64_t kv_head, int64_t first, int64_t last, float *scratch) {
    if (last - first < MANY_TOKENS)
        for (int64_t t = first; t < last; t++) attend_one(job, kv_head, t, scratch);
    else
        attend_many(job, kv_head, first, last, scratch);
}
