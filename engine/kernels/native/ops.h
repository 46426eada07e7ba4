/* The float operations of the contract, in terms of vector_*.h and of loops over sixteen lanes that any
 * compiler turns into vectors. Each product and each sum is rounded once. */

#define ROUND_MAGIC 12582912.0f /* 1.5 * 2^23: adding and taking it off rounds to an integer, ties to even */

INLINE float canon_exp(float x) {
    float b = x < -87.0f ? -87.0f : x;
    b = b > 88.0f ? 88.0f : b;
    b = x == x ? b : 0.0f;
    float power = (b * 1.4426950408889634f + ROUND_MAGIC) - ROUND_MAGIC;
    float r = (b - power * 0.693359375f) - power * (float)(0.6931471805599453 - 0.693359375);
    float y = (float)(1.0 / 5040);
    y = y * r + (float)(1.0 / 720);
    y = y * r + (float)(1.0 / 120);
    y = y * r + (float)(1.0 / 24);
    y = y * r + (float)(1.0 / 6);
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)power + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    y = y * scale;
    y = x < -87.0f ? 0.0f : y;
    return x == x ? y : x;
}

INLINE float canon_sigmoid(float x) {
    float e = canon_exp(x < 0.0f ? x : -x);
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

INLINE float canon_softplus(float x) {
    float e = canon_exp(x < 0.0f ? x : -x);
    float z = e / (2.0f + e), square = z * z;
    float s = (float)(2.0 / 15);
    s = s * square + (float)(2.0 / 13);
    s = s * square + (float)(2.0 / 11);
    s = s * square + (float)(2.0 / 9);
    s = s * square + (float)(2.0 / 7);
    s = s * square + (float)(2.0 / 5);
    s = s * square + (float)(2.0 / 3);
    s = s * square + 2.0f;
    float y = (x > 0.0f ? x : 0.0f) + s * z;
    return x > 20.0f ? x : y;
}

/* Up to 16 floats, the rest zeros. */
INLINE F f_part(const float *p, int64_t count) {
    float lanes[16] = {0};
    memcpy(lanes, p, sizeof(float) * (size_t)count);
    return f_load(lanes);
}

/* Sum of products of two vectors, or of squares when b is a. */
INLINE float lane_dot(const float *a, const float *b, int64_t count) {
    F sum = f_set(0.0f);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) sum = f_add(sum, f_mul(f_load(a + i), f_load(b + i)));
    if (i < count) sum = f_add(sum, f_mul(f_part(a + i, count - i), f_part(b + i, count - i)));
    return f_fold(sum);
}

INLINE float lane_total(const float *a, int64_t count) {
    F sum = f_set(0.0f);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) sum = f_add(sum, f_load(a + i));
    if (i < count) sum = f_add(sum, f_part(a + i, count - i));
    return f_fold(sum);
}

/* Where a block's position takes its input from, so that the bytes of one unit meet the codes of one unpacked
 * step: runs of `order` inputs interleaved by 4 bytes, or (16) the halves of a block of nibbles. */
INLINE int input_of(int order, int position) {
    int i = position & 3;
    if (order == 4) return (position & ~15) + 4 * i + ((position >> 2) & 3);
    if (order == 8) return (position & ~31) + 8 * i + ((position >> 2) & 7);
    if (order == 16) return 16 * ((position >> 2) & 1) + 4 * (position >> 3) + i;
    return position;
}

INLINE void quantise_runs(const float *x, int group, int order, int run, activations *a, int64_t first, int64_t last) {
    const float limit = a->parts == 2 ? 32512.0f : 127.0f;
    const int64_t tiles = (a->tokens + a->tile - 1) / a->tile;
    int source[128];
    int32_t q[128];
    for (int p = 0; p < group; p++) source[p] = input_of(order, p);
    x += first * a->inputs;
    for (int64_t n = first * a->blocks; n < last * a->blocks; n++, x += group) {
        uint32_t largest = 0;
        for (int i = 0; i < group; i++) {
            uint32_t magnitude;
            memcpy(&magnitude, x + i, 4);
            magnitude &= 0x7fffffff;
            largest = magnitude > largest ? magnitude : largest;
        }
        float top;
        memcpy(&top, &largest, 4);
        float inverse = limit / top;
        int finite = largest < 0x7f800000, usable = finite && inverse <= 3.402823466e38f;
        a->scales[n] = usable ? top / limit : finite ? 0.0f : (float)NAN;
        int32_t sum = 0;
        for (int i = 0; i < group; i++) {
            float value = usable ? (x[i] * inverse + ROUND_MAGIC) - ROUND_MAGIC : 0.0f;
            q[i] = (int32_t)value;
            sum += q[i];
        }
        a->sums[n] = sum;
        int64_t token = n / a->blocks, block = n % a->blocks, tile = token / a->tile, stride = run * a->tile * a->parts;
        int64_t before = run == 4 ? tile * a->blocks + block : block * tiles + tile;
        int8_t *unit = a->units + (before * group * a->tile + token % a->tile * run) * a->parts;
        for (int p = 0; p < group; p += run, unit += stride)
            for (int i = 0; i < run; i++) {
                int32_t value = q[source[p + i]], high = (value + 128) >> 8;
                if (a->parts == 1) {
                    unit[i] = (int8_t)value;
                } else {
                    unit[i] = (int8_t)high;
                    unit[run + i] = (int8_t)(value - 256 * high);
                }
            }
    }
}

static void quantise(const float *x, int group, int order, activations *a, int64_t first, int64_t last) {
#if TILES
    if (a->tile == WIDE_TOKENS) {
        if (group < LONGEST_RUN) quantise_runs(x, group, order, 32, a, first, last);
        else quantise_runs(x, group, order, LONGEST_RUN, a, first, last);
        return;
    }
#endif
    quantise_runs(x, group, order, 4, a, first, last);
}

/* x += add (where given), then out = x * (1 / sqrt(mean(x * x) + epsilon)) * weight. */
static void rms_norm(float *x, const float *add, const float *weight, float epsilon, int64_t tokens, int64_t width,
                     float *out) {
    for (int64_t t = 0; t < tokens; t++, x += width, out += width) {
        if (add) {
            for (int64_t i = 0; i < width; i++) x[i] = x[i] + add[i];
            add += width;
        }
        float factor = 1.0f / sqrtf(lane_dot(x, x, width) / (float)width + epsilon);
        for (int64_t i = 0; i < width; i++) out[i] = (x[i] * factor) * weight[i];
    }
}

/* Turn the pairs (first[i * step], second[i * step]). */
INLINE void rotate_pairs(float *first, int64_t step, float *second, int64_t pairs, const float *cosines,
                         const float *sines) {
    for (int64_t i = 0; i < pairs; i++) {
        const float a = first[i * step], b = second[i * step];
        first[i * step] = a * cosines[i] - b * sines[i];
        second[i * step] = a * sines[i] + b * cosines[i];
    }
}

INLINE void one_head(const float *in, int64_t dim, const float *norm, float epsilon, const rope_rows *rope, int64_t t,
                     float *out) {
    if (norm) {
        float factor = 1.0f / sqrtf(lane_dot(in, in, dim) / (float)dim + epsilon);
        for (int64_t i = 0; i < dim; i++) out[i] = (in[i] * factor) * norm[i];
    } else {
        memcpy(out, in, sizeof(float) * (size_t)dim);
    }
    const float *c = rope->cosines + t * rope->pairs, *s = rope->sines + t * rope->pairs;
    if (rope->adjacent) rotate_pairs(out, 2, out + 1, rope->pairs, c, s);
    else rotate_pairs(out, 1, out + rope->pairs, rope->pairs, c, s);
}

static void heads(const head_view *x, const float *norm, float epsilon, const rope_rows *rope, float *out) {
    for (int64_t t = 0; t < x->tokens; t++)
        for (int64_t h = 0; h < x->heads; h++, out += x->dim)
            one_head(x->data + t * x->token_stride + h * x->head_stride, x->dim, norm, epsilon, rope, t, out);
}

INLINE void to_half(const float *in, int64_t count, uint16_t *out) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) f_to_half(out + i, f_load(in + i));
    for (; i < count; i++) out[i] = float_to_half(in[i]);
}

/* As heads, but rounded to fp16; without rope only the rounding. */
static void heads_half(const head_view *x, const float *norm, float epsilon, const rope_rows *rope, uint16_t *out) {
    float head[MAX_DIM];
    for (int64_t t = 0; t < x->tokens; t++)
        for (int64_t h = 0; h < x->heads; h++, out += x->dim) {
            const float *in = x->data + t * x->token_stride + h * x->head_stride;
            if (rope) {
                one_head(in, x->dim, norm, epsilon, rope, t, head);
                in = head;
            }
            to_half(in, x->dim, out);
        }
}

#include "attention.h"

#include "delta_net.h"

static void silu_product(const float *gate, const float *up, int64_t count, float *out) {
    for (int64_t i = 0; i < count; i++) out[i] = (gate[i] * canon_sigmoid(gate[i])) * up[i];
}

static void sigmoid_product(const head_view *gate, const float *values, float *out) {
    for (int64_t t = 0; t < gate->tokens; t++)
        for (int64_t h = 0; h < gate->heads; h++, values += gate->dim, out += gate->dim) {
            const float *g = gate->data + t * gate->token_stride + h * gate->head_stride;
            for (int64_t i = 0; i < gate->dim; i++) out[i] = canon_sigmoid(g[i]) * values[i];
        }
}

static void hadamard(const float *x, const int64_t *order, const float *before, const float *after, int64_t tokens,
                     int64_t width, int64_t block, float *out) {
    const float factor = (float)(1.0 / sqrt((double)block));
    for (int64_t t = 0; t < tokens; t++, x += width, out += width) {
        for (int64_t i = 0; i < width; i++) {
            float value = x[order ? order[i] : i];
            out[i] = before ? value * before[i] : value;
        }
        int64_t half = 1;
        if (block >= 16) { /* the first four distances within sixteen lanes */
            for (int64_t i = 0; i < width; i += 16) {
                F lanes = f_butterfly(f_butterfly(f_load(out + i), 1), 2);
                f_store(out + i, f_butterfly(f_butterfly(lanes, 4), 8));
            }
            half = 16;
        }
        for (; half < block; half *= 2)
            for (int64_t j = 0; j < width; j += 2 * half)
                for (int64_t i = j; i < j + half; i++) {
                    float a = out[i], b = out[i + half];
                    out[i] = a + b;
                    out[i + half] = a - b;
                }
        for (int64_t i = 0; i < width; i++) {
            float value = out[i] * factor;
            out[i] = after ? value * after[i] : value;
        }
    }
}

INLINE F f_weights(enum dense_id id, const void *row, int64_t i) {
    if (id == DENSE_F16) return f_half((const uint16_t *)row + i);
    if (id == DENSE_F32) return f_load((const float *)row + i);
    return f_bfloat((const char *)row + 2 * i);
}

INLINE void dense_of(enum dense_id id, const dense_matrix *m, const float *x, int64_t tokens, float *out,
                     int64_t first, int64_t last) {
    const size_t size = id == DENSE_F32 ? 4 : 2;
    const int64_t whole = m->inputs / 16 * 16, rest = m->inputs - whole;
    for (int64_t row = first; row < last; row++) {
        const char *w = (const char *)m->weights + (size_t)(row * m->inputs) * size;
        char tail[64] = {0};
        memcpy(tail, w + (size_t)whole * size, (size_t)rest * size);
        for (int64_t t = 0; t < tokens; t++) {
            const float *in = x + t * m->inputs;
            F sum = f_set(0.0f);
            for (int64_t i = 0; i < whole; i += 16) sum = f_add(sum, f_mul(f_weights(id, w, i), f_load(in + i)));
            if (rest) sum = f_add(sum, f_mul(f_weights(id, tail, 0), f_part(in + whole, rest)));
            out[t * m->rows + row] = f_fold(sum);
        }
    }
}

static void dense(const dense_matrix *m, const float *x, int64_t tokens, float *out, int64_t first, int64_t last) {
    if (m->id == DENSE_F32) dense_of(DENSE_F32, m, x, tokens, out, first, last);
    else if (m->id == DENSE_F16) dense_of(DENSE_F16, m, x, tokens, out, first, last);
    else dense_of(DENSE_BF16, m, x, tokens, out, first, last);
}

/* Read everything once, for measuring the memory's speed. */
static uint64_t read_all(const uint8_t *data, int64_t nbytes) {
    enum { AHEAD = 32768 };
    uint64_t x[8] = {0};
    for (int64_t i = 0; i + 64 <= nbytes; i += 64) {
        uint64_t line[8];
        memcpy(line, data + i, 64);
        prefetch(data + i + AHEAD);
        for (int k = 0; k < 8; k++) x[k] ^= line[k];
    }
    return x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7];
}

const level LEVEL = {LEVEL_NAME, packed,       dense,       quantise,     rms_norm,        heads,    heads_half,
                     attention,  delta_inputs, delta_heads, silu_product, sigmoid_product, hadamard, read_all,
                     TILES};
