/* vector_portable.h in AVX-512 F, BW, VL; AVX512_VNNI chooses the dot product. */
typedef __m512i V;
typedef __m512i A;
typedef __m512 F;
typedef __m512i X;
typedef A P;

enum { STEP_TOKENS_8 = 8, STEP_TOKENS_16 = 8, CHAINS = 4, SIDE = 2, QUERIES = 8, FEWEST = 2, MIXED_ROWS = 4, MIXED_VECTORS = 4 };

INLINE V v_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
INLINE void v_store(uint8_t *p, V a) { _mm512_storeu_si512(p, a); }
INLINE V v_field(V a, int shift, int mask) {
    return _mm512_and_si512(_mm512_srli_epi16(a, (unsigned)shift), _mm512_set1_epi8((char)mask));
}
INLINE V v_triple(V a) { return _mm512_add_epi8(a, _mm512_add_epi8(a, a)); }
INLINE V v_digit(V a) {
    const V one = _mm512_set1_epi8(1);
    V first = _mm512_min_epu8(_mm512_subs_epu8(a, _mm512_set1_epi8(85)), one);
    V second = _mm512_min_epu8(_mm512_subs_epu8(a, _mm512_set1_epi8((char)170)), one);
    return _mm512_add_epi8(first, second);
}
INLINE V v_pairs(const uint8_t *p) {
    V low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_or_si512(low, _mm512_slli_epi32(v_triple(low), 16));
}
INLINE A a_zero(void) { return _mm512_setzero_si512(); }
INLINE X x_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, 4);
    return _mm512_set1_epi32(four);
}
INLINE A a_dot_four(A a, V w, X x, int largest) {
#if AVX512_VNNI && defined(__GNUC__)
    /* As an instruction of its own: GCC copies every accumulator of the intrinsic twice an iteration. */
    (void)largest;
    __asm__("vpdpbusd %2, %1, %0" : "+v"(a) : "v"(w), "v"(x));
    return a;
#elif AVX512_VNNI
    (void)largest;
    return _mm512_dpbusd_epi32(a, w, x);
#else
    const V one = _mm512_set1_epi16(1);
    /* A block's pair sums of codes up to 15 fit 16 bits: 32 steps of 2 * 3 * 128, or 8 of 2 * 15 * 128. */
    if (largest <= 15) return _mm512_add_epi16(a, _mm512_maddubs_epi16(w, x));
    /* 16-bit pair sums could saturate: low and high nibbles apart */
    V low = _mm512_maddubs_epi16(v_field(w, 0, 15), x), high = _mm512_maddubs_epi16(v_field(w, 4, 15), x);
    a = _mm512_add_epi32(a, _mm512_madd_epi16(low, one));
    return _mm512_add_epi32(a, _mm512_madd_epi16(high, _mm512_set1_epi16(16)));
#endif
}
INLINE A a_dot(A a, V w, const int8_t *q, int largest) {
#if AVX512_VNNI && defined(__GNUC__)
    (void)largest; /* four activations from memory at once */
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(a) : "v"(w), "m"(*(const int8_t(*)[4])q));
    return a;
#else
    return a_dot_four(a, w, x_four(q), largest);
#endif
}
INLINE A a_total(A a, int largest) {
#if AVX512_VNNI
    (void)largest;
    return a;
#else
    return largest <= 15 ? _mm512_madd_epi16(a, _mm512_set1_epi16(1)) : a;
#endif
}
INLINE P p_zero(void) { return a_zero(); }
INLINE P p_dot(P a, const int32_t *pairs, const int32_t *pair) {
    V x = v_load((const uint8_t *)pairs);
#if AVX512_VNNI && defined(__GNUC__)
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(a) : "v"(x), "m"(*pair));
    return a;
#elif AVX512_VNNI
    return _mm512_dpwssd_epi32(a, x, _mm512_set1_epi32(*pair));
#else
    return _mm512_add_epi32(a, _mm512_madd_epi16(x, _mm512_set1_epi32(*pair)));
#endif
}
INLINE A p_total(P a) { return a; }
INLINE A a_add(A a, A b) { return _mm512_add_epi32(a, b); }
INLINE A a_scale(A a, int shift) { return _mm512_slli_epi32(a, (unsigned)shift); }
INLINE A a_minus(A a, int32_t b) { return _mm512_sub_epi32(a, _mm512_set1_epi32(b)); }
INLINE F f_int(A a) { return _mm512_cvtepi32_ps(a); }
INLINE F f_set(float x) { return _mm512_set1_ps(x); }
INLINE F f_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void f_store(float *p, F a) { _mm512_storeu_ps(p, a); }
INLINE F f_add(F a, F b) { return _mm512_add_ps(a, b); }
INLINE F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
INLINE F f_add_exact(F a, F b, F c) { return _mm512_fmadd_ps(b, c, a); }
INLINE F f_butterfly(F a, int half) {
    F b;
    switch (half) {
        case 1: b = _mm512_permute_ps(a, 0xb1); return _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0xaaaa, b, a);
        case 2: b = _mm512_permute_ps(a, 0x4e); return _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0xcccc, b, a);
        case 4: b = _mm512_shuffle_f32x4(a, a, 0xb1); return _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0xf0f0, b, a);
        default: b = _mm512_shuffle_f32x4(a, a, 0x4e); return _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0xff00, b, a);
    }
}
INLINE F f_half(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
#define OWN_TRANSPOSE 1 /* of attention.h */
INLINE void transpose(const void *rows, int64_t stride, void *columns) {
    const float *in = rows;
    float *out = columns;
    __m512 a[16], b[16];
    UNROLL
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(in + i * stride);
    UNROLL
    for (int i = 0; i < 16; i += 2) { /* columns 4 k of rows i, i + 1, …: pairs, then quads within 128 bits */
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4)
        for (int k = 0; k < 2; k++) { /* a[i + c]: columns c, c + 4, c + 8, c + 12 of rows i … i + 3 */
            __m512d low = _mm512_castps_pd(b[i + k]), high = _mm512_castps_pd(b[i + k + 2]);
            a[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    UNROLL
    for (int c = 0; c < 4; c++) {
        __m512 even = _mm512_shuffle_f32x4(a[c], a[c + 4], 0x88), odd = _mm512_shuffle_f32x4(a[c], a[c + 4], 0xdd);
        __m512 more = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0x88);
        __m512 rest = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0xdd);
        _mm512_storeu_ps(out + 16 * c, _mm512_shuffle_f32x4(even, more, 0x88));
        _mm512_storeu_ps(out + 16 * (c + 4), _mm512_shuffle_f32x4(odd, rest, 0x88));
        _mm512_storeu_ps(out + 16 * (c + 8), _mm512_shuffle_f32x4(even, more, 0xdd));
        _mm512_storeu_ps(out + 16 * (c + 12), _mm512_shuffle_f32x4(odd, rest, 0xdd));
    }
}
INLINE F f_bfloat(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
INLINE void f_to_half(uint16_t *p, F a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE A f_round(F a) { return _mm512_cvtps_epi32(a); }
INLINE void a_store_pairs(int32_t *p, A low, A high) {
    _mm512_storeu_si512(p, _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16)));
}
INLINE float f_fold(F a) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a),
                                 _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
INLINE void prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
/* For what is read once: it need not push other things out of the caches. */
INLINE void prefetch_once(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_NTA); }
