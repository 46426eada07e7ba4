/* Sixteen rows or lanes at a time in plain C: the meaning of the other vector_*.h files.
 *
 *   V  64 bytes: 4 code bytes of each of 16 rows (byte 4 r + i belongs to row r)
 *   A  16 int32 sums, one a row
 *   F  16 floats
 */
typedef struct { uint8_t v[64]; } V;
typedef struct { int32_t v[16]; } A;
typedef struct { float v[16]; } F;
typedef const int8_t *X; /* four activations, for all rows */
typedef A P; /* what p_dot adds up */

enum { STEP_TOKENS_8 = 4, STEP_TOKENS_16 = 2, CHAINS = 2, SIDE = 1, QUERIES = 4, FEWEST = 1, MIXED_ROWS = 2, MIXED_VECTORS = 1 };

/* Plain C is a fifth slower so at one token, but compiles in a quarter of the time and space. */
#define TYPES_SHARE_CODE 1
#undef UNROLL /* then loops over a type's parts have no constant length */
#define UNROLL

#define EACH(i, n) for (int i = 0; i < (n); i++)

INLINE V v_load(const uint8_t *p) { V r; memcpy(r.v, p, 64); return r; }
INLINE void v_store(uint8_t *p, V a) { memcpy(p, a.v, 64); }
INLINE V v_field(V a, int shift, int mask) { V r; EACH(i, 64) r.v[i] = (uint8_t)((a.v[i] >> shift) & mask); return r; }
INLINE V v_triple(V a) { V r; EACH(i, 64) r.v[i] = (uint8_t)(3 * a.v[i]); return r; }
INLINE V v_digit(V a) { V r; EACH(i, 64) r.v[i] = (uint8_t)((a.v[i] >= 86) + (a.v[i] >= 171)); return r; }
/* 16 pairs of bytes x to dwords x | 3 x << 16, bytewise modulo 256 */
INLINE V v_pairs(const uint8_t *p) {
    V r;
    EACH(i, 16) EACH(k, 2) {
        r.v[4 * i + k] = p[2 * i + k];
        r.v[4 * i + 2 + k] = (uint8_t)(3 * p[2 * i + k]);
    }
    return r;
}
INLINE A a_zero(void) { A r; EACH(i, 16) r.v[i] = 0; return r; }
/* Each row's four codes (unsigned, up to `largest`) times four signed activations, added to its sum. */
INLINE A a_dot(A a, V w, const int8_t *q, int largest) {
    (void)largest;
    EACH(i, 16) a.v[i] += w.v[4 * i] * q[0] + w.v[4 * i + 1] * q[1] + w.v[4 * i + 2] * q[2] + w.v[4 * i + 3] * q[3];
    return a;
}
/* The same in two steps, for what meets more than one w. */
INLINE X x_four(const int8_t *q) { return q; }
INLINE A a_dot_four(A a, V w, X x, int largest) { return a_dot(a, w, x, largest); }
/* The int32 sums of what a_dot added up over one block. */
INLINE A a_total(A a, int largest) { (void)largest; return a; }
/* 16 pairs of 16-bit integers times one pair, in the order of the pairs; a sum stays below 2^31. */
INLINE P p_zero(void) { return a_zero(); }
INLINE P p_dot(P a, const int32_t *pairs, const int32_t *pair) {
    int16_t x[32], y[2];
    memcpy(x, pairs, 64);
    memcpy(y, pair, 4);
    EACH(i, 16) a.v[i] += x[2 * i] * y[0] + x[2 * i + 1] * y[1];
    return a;
}
INLINE A p_total(P a) { return a; }
INLINE A a_add(A a, A b) { EACH(i, 16) a.v[i] += b.v[i]; return a; }
INLINE A a_scale(A a, int shift) { EACH(i, 16) a.v[i] = (int32_t)((uint32_t)a.v[i] << shift); return a; }
INLINE A a_minus(A a, int32_t b) { EACH(i, 16) a.v[i] -= b; return a; }
INLINE F f_int(A a) { F r; EACH(i, 16) r.v[i] = (float)a.v[i]; return r; }
INLINE F f_set(float x) { F r; EACH(i, 16) r.v[i] = x; return r; }
INLINE F f_load(const float *p) { F r; memcpy(r.v, p, 64); return r; }
INLINE void f_store(float *p, F a) { memcpy(p, a.v, 64); }
INLINE F f_add(F a, F b) { EACH(i, 16) a.v[i] += b.v[i]; return a; }
INLINE F f_mul(F a, F b) { EACH(i, 16) a.v[i] *= b.v[i]; return a; }
/* a + b c, where b c is exact: fused or not, it is one. */
INLINE F f_add_exact(F a, F b, F c) { return f_add(a, f_mul(b, c)); }
/* Lane l and lane l + half (1, 2, 4 or 8) become their sum and their difference. */
INLINE F f_butterfly(F a, int half) {
    F r;
    EACH(l, 16) r.v[l] = l & half ? a.v[l - half] - a.v[l] : a.v[l] + a.v[l + half];
    return r;
}
INLINE float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023, bits;
    float value;
    if (exponent == 0) {
        value = (float)fraction * 5.9604644775390625e-8f; /* 2^-24 */
        memcpy(&bits, &value, 4);
        bits |= sign;
    } else {
        bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    }
    memcpy(&value, &bits, 4);
    return value;
}
INLINE F f_half(const uint16_t *p) { F r; EACH(i, 16) { uint16_t h; memcpy(&h, p + i, 2); r.v[i] = half_to_float(h); } return r; }
/* bfloat16, at any address */
INLINE F f_bfloat(const void *p) {
    F r;
    EACH(i, 16) {
        uint16_t half;
        memcpy(&half, (const char *)p + 2 * i, 2);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&r.v[i], &bits, 4);
    }
    return r;
}
INLINE void f_to_half(uint16_t *p, F a) { EACH(i, 16) p[i] = float_to_half(a.v[i]); }
/* The nearest integers, ties to even; of NaN any. */
INLINE A f_round(F a) {
    A r;
    EACH(i, 16) r.v[i] = a.v[i] == a.v[i] ? (int32_t)((a.v[i] + 12582912.0f) - 12582912.0f) : 0;
    return r;
}
/* 16 pairs of 16-bit integers */
INLINE void a_store_pairs(int32_t *p, A low, A high) {
    EACH(i, 16) {
        int16_t pair[2] = {(int16_t)low.v[i], (int16_t)high.v[i]};
        memcpy(p + i, pair, 4);
    }
}
INLINE float f_fold(F a) {
    for (int half = 8; half; half /= 2) EACH(i, half) a.v[i] += a.v[i + half];
    return a.v[0];
}
INLINE void prefetch(const void *p) { (void)p; }
INLINE void prefetch_once(const void *p) { (void)p; }
