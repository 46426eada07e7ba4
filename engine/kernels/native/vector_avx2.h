/* vector_portable.h in AVX2 with F16C; AVX_VNNI chooses the dot product. */
typedef struct { __m256i a, b; } V; /* rows 0..7, rows 8..15 */
typedef struct { __m256i a, b; } A;
typedef struct { __m256 a, b; } F;
typedef __m256i X;
typedef A P;

enum { STEP_TOKENS_8 = 4, STEP_TOKENS_16 = 2, CHAINS = 2, SIDE = 1, QUERIES = 4, FEWEST = 1, MIXED_ROWS = 4, MIXED_VECTORS = 1 };

INLINE V v_load(const uint8_t *p) {
    V r = {_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32))};
    return r;
}
INLINE void v_store(uint8_t *p, V x) {
    _mm256_storeu_si256((__m256i *)p, x.a);
    _mm256_storeu_si256((__m256i *)(p + 32), x.b);
}
INLINE V v_field(V x, int shift, int mask) {
    const __m256i m = _mm256_set1_epi8((char)mask);
    V r = {_mm256_and_si256(_mm256_srli_epi16(x.a, shift), m), _mm256_and_si256(_mm256_srli_epi16(x.b, shift), m)};
    return r;
}
INLINE __m256i triple(__m256i x) { return _mm256_add_epi8(x, _mm256_add_epi8(x, x)); }
INLINE V v_triple(V x) {
    V r = {triple(x.a), triple(x.b)};
    return r;
}
INLINE __m256i digit(__m256i x) {
    const __m256i one = _mm256_set1_epi8(1);
    __m256i first = _mm256_min_epu8(_mm256_subs_epu8(x, _mm256_set1_epi8(85)), one);
    return _mm256_add_epi8(first, _mm256_min_epu8(_mm256_subs_epu8(x, _mm256_set1_epi8((char)170)), one));
}
INLINE V v_digit(V x) {
    V r = {digit(x.a), digit(x.b)};
    return r;
}
INLINE V v_pairs(const uint8_t *p) {
    __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 16)));
    V r = {_mm256_or_si256(a, _mm256_slli_epi32(triple(a), 16)), _mm256_or_si256(b, _mm256_slli_epi32(triple(b), 16))};
    return r;
}
INLINE A a_zero(void) {
    A r = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    return r;
}
INLINE __m256i dot(__m256i sum, __m256i w, __m256i x, int largest) {
#if AVX_VNNI
    (void)largest;
#if defined(__GNUC__) /* see vector_avx512.h */
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
    return sum;
#else
    return _mm256_dpbusd_avx_epi32(sum, w, x);
#endif
#else
    const __m256i one = _mm256_set1_epi16(1), nibble = _mm256_set1_epi8(15);
    /* A block's pair sums of codes up to 15 fit 16 bits: 32 steps of 2 * 3 * 128, or 8 of 2 * 15 * 128. */
    if (largest <= 15) return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
    /* 16-bit pair sums could saturate: low and high nibbles apart */
    __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(w, nibble), x);
    __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(w, 4), nibble), x);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low, one));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
#endif
}
INLINE X x_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, 4);
    return _mm256_set1_epi32(four);
}
INLINE A a_dot_four(A s, V w, X x, int largest) {
    A r = {dot(s.a, w.a, x, largest), dot(s.b, w.b, x, largest)};
    return r;
}
INLINE A a_dot(A s, V w, const int8_t *q, int largest) { return a_dot_four(s, w, x_four(q), largest); }
INLINE A a_total(A x, int largest) {
#if AVX_VNNI
    (void)largest;
    return x;
#else
    const __m256i one = _mm256_set1_epi16(1);
    A r = {_mm256_madd_epi16(x.a, one), _mm256_madd_epi16(x.b, one)};
    return largest <= 15 ? r : x;
#endif
}
INLINE P p_zero(void) { return a_zero(); }
INLINE __m256i pair_dot(__m256i sum, __m256i x, __m256i y) {
#if AVX_VNNI && defined(__GNUC__)
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
    return sum;
#elif AVX_VNNI
    return _mm256_dpwssd_avx_epi32(sum, x, y);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, y));
#endif
}
INLINE P p_dot(P s, const int32_t *pairs, const int32_t *pair) {
    const __m256i y = _mm256_set1_epi32(*pair), *x = (const __m256i *)pairs;
    P r = {pair_dot(s.a, _mm256_loadu_si256(x), y), pair_dot(s.b, _mm256_loadu_si256(x + 1), y)};
    return r;
}
INLINE A p_total(P x) { return x; }
INLINE A a_add(A x, A y) {
    A r = {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
    return r;
}
INLINE A a_scale(A x, int shift) {
    A r = {_mm256_slli_epi32(x.a, shift), _mm256_slli_epi32(x.b, shift)};
    return r;
}
INLINE A a_minus(A x, int32_t y) {
    const __m256i v = _mm256_set1_epi32(y);
    A r = {_mm256_sub_epi32(x.a, v), _mm256_sub_epi32(x.b, v)};
    return r;
}
INLINE F f_int(A x) {
    F r = {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
    return r;
}
INLINE F f_set(float x) {
    F r = {_mm256_set1_ps(x), _mm256_set1_ps(x)};
    return r;
}
INLINE F f_load(const float *p) {
    F r = {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
    return r;
}
INLINE void f_store(float *p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
INLINE F f_add(F x, F y) {
    F r = {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
    return r;
}
INLINE F f_mul(F x, F y) {
    F r = {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
    return r;
}
INLINE F f_add_exact(F x, F y, F z) {
    F r = {_mm256_fmadd_ps(y.a, z.a, x.a), _mm256_fmadd_ps(y.b, z.b, x.b)};
    return r;
}
INLINE __m256 butterfly(__m256 a, int half) {
    __m256 b;
    switch (half) {
        case 1: b = _mm256_permute_ps(a, 0xb1); return _mm256_blend_ps(_mm256_add_ps(a, b), _mm256_sub_ps(b, a), 0xaa);
        case 2: b = _mm256_permute_ps(a, 0x4e); return _mm256_blend_ps(_mm256_add_ps(a, b), _mm256_sub_ps(b, a), 0xcc);
        default:
            b = _mm256_permute2f128_ps(a, a, 1);
            return _mm256_blend_ps(_mm256_add_ps(a, b), _mm256_sub_ps(b, a), 0xf0);
    }
}
INLINE F f_butterfly(F x, int half) {
    F apart = {_mm256_add_ps(x.a, x.b), _mm256_sub_ps(x.a, x.b)};
    if (half == 8) return apart;
    F r = {butterfly(x.a, half), butterfly(x.b, half)};
    return r;
}
INLINE F f_half(const uint16_t *p) {
    F r = {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
    return r;
}
#define OWN_TRANSPOSE 1 /* of attention.h */
/* Eight rows and eight columns. */
INLINE void transpose_eight(const float *rows, int64_t stride, float *out) {
    __m256 a[8], b[8];
    UNROLL
    for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(rows + i * stride);
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) { /* a[i + c]: columns c and c + 4 of rows i … i + 3 */
            a[i + 2 * k] = _mm256_shuffle_ps(b[i + k], b[i + k + 2], 0x44);
            a[i + 2 * k + 1] = _mm256_shuffle_ps(b[i + k], b[i + k + 2], 0xee);
        }
    UNROLL
    for (int c = 0; c < 4; c++) {
        _mm256_storeu_ps(out + 16 * c, _mm256_permute2f128_ps(a[c], a[c + 4], 0x20));
        _mm256_storeu_ps(out + 16 * (c + 4), _mm256_permute2f128_ps(a[c], a[c + 4], 0x31));
    }
}
INLINE void transpose(const void *rows, int64_t stride, void *columns) {
    for (int row = 0; row < 16; row += 8)
        for (int column = 0; column < 16; column += 8)
            transpose_eight((const float *)rows + row * stride + column, stride, (float *)columns + 16 * column + row);
}
INLINE F f_bfloat(const void *p) {
    const __m128i *halves = (const __m128i *)p;
    F r = {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(halves)), 16)),
           _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(halves + 1)), 16))};
    return r;
}
INLINE void f_to_half(uint16_t *p, F x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE A f_round(F x) {
    A r = {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
    return r;
}
INLINE void a_store_pairs(int32_t *p, A low, A high) {
    _mm256_storeu_si256((__m256i *)p, _mm256_blend_epi16(low.a, _mm256_slli_epi32(high.a, 16), 0xaa));
    _mm256_storeu_si256((__m256i *)(p + 8), _mm256_blend_epi16(low.b, _mm256_slli_epi32(high.b, 16), 0xaa));
}
INLINE float f_fold(F x) {
    __m256 eight = _mm256_add_ps(x.a, x.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
INLINE void prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
/* For what is read once: it need not push other things out of the caches. */
INLINE void prefetch_once(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_NTA); }
