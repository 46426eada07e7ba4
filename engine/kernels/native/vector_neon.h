/* vector_portable.h in NEON with the dot product instructions (Armv8.2 dotprod; every Apple core).
 *
 * SDOT takes signed bytes on both sides. Codes up to 127 are their own signed value; Q8_0's unsigned codes
 * are turned back by flipping the top bit, and 128 times the four activations is added. */
typedef struct { uint8x16_t v[4]; } V; /* rows 0..3, 4..7, 8..11, 12..15 */
typedef struct { int32x4_t v[4]; } A;
typedef struct { float32x4_t v[4]; } F;
typedef int8x16_t X;
typedef struct { int32x4_t v[8]; } P; /* both products of a pair apart */

enum { STEP_TOKENS_8 = 4, STEP_TOKENS_16 = 2, CHAINS = 2, SIDE = 1, QUERIES = 2, FEWEST = 1, MIXED_ROWS = 2, MIXED_VECTORS = 2 };

#define EACH(i, n) for (int i = 0; i < (n); i++)

INLINE V v_load(const uint8_t *p) { V r; EACH(i, 4) r.v[i] = vld1q_u8(p + 16 * i); return r; }
INLINE void v_store(uint8_t *p, V a) { EACH(i, 4) vst1q_u8(p + 16 * i, a.v[i]); }
INLINE V v_field(V a, int shift, int mask) {
    EACH(i, 4) a.v[i] = vandq_u8(vshlq_u8(a.v[i], vdupq_n_s8((int8_t)-shift)), vdupq_n_u8((uint8_t)mask));
    return a;
}
INLINE V v_triple(V a) { EACH(i, 4) a.v[i] = vaddq_u8(a.v[i], vaddq_u8(a.v[i], a.v[i])); return a; }
INLINE V v_digit(V a) {
    /* comparisons give 255, which is -1 */
    EACH(i, 4) a.v[i] = vreinterpretq_u8_s8(vnegq_s8(vreinterpretq_s8_u8(
        vaddq_u8(vcgeq_u8(a.v[i], vdupq_n_u8(86)), vcgeq_u8(a.v[i], vdupq_n_u8(171))))));
    return a;
}
INLINE V v_pairs(const uint8_t *p) {
    V r;
    EACH(i, 4) {
        uint32x4_t low = vmovl_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i)));
        uint8x16_t bytes = vreinterpretq_u8_u32(low), triple = vaddq_u8(bytes, vaddq_u8(bytes, bytes));
        r.v[i] = vorrq_u8(bytes, vreinterpretq_u8_u32(vshlq_n_u32(vreinterpretq_u32_u8(triple), 16)));
    }
    return r;
}
INLINE A a_zero(void) { A r; EACH(i, 4) r.v[i] = vdupq_n_s32(0); return r; }
INLINE X x_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
INLINE A a_dot_four(A a, V w, X x, int largest) {
    if (largest <= 127) {
        EACH(i, 4) a.v[i] = vdotq_s32(a.v[i], vreinterpretq_s8_u8(w.v[i]), x);
        return a;
    }
    int32x4_t offset = vshlq_n_s32(vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(1), x), 7);
    EACH(i, 4) {
        int8x16_t code = vreinterpretq_s8_u8(veorq_u8(w.v[i], vdupq_n_u8(0x80)));
        a.v[i] = vaddq_s32(vdotq_s32(a.v[i], code, x), offset);
    }
    return a;
}
INLINE A a_dot(A a, V w, const int8_t *q, int largest) { return a_dot_four(a, w, x_four(q), largest); }
INLINE A a_total(A a, int largest) { (void)largest; return a; }
INLINE P p_zero(void) { P r; EACH(i, 8) r.v[i] = vdupq_n_s32(0); return r; }
INLINE P p_dot(P a, const int32_t *pairs, const int32_t *pair) {
    const int16x8_t y = vreinterpretq_s16_s32(vdupq_n_s32(*pair));
    EACH(i, 4) {
        const int16x8_t x = vreinterpretq_s16_s32(vld1q_s32(pairs + 4 * i));
        a.v[2 * i] = vmlal_s16(a.v[2 * i], vget_low_s16(x), vget_low_s16(y));
        a.v[2 * i + 1] = vmlal_high_s16(a.v[2 * i + 1], x, y);
    }
    return a;
}
INLINE A p_total(P a) { A r; EACH(i, 4) r.v[i] = vpaddq_s32(a.v[2 * i], a.v[2 * i + 1]); return r; }
INLINE A a_add(A a, A b) { EACH(i, 4) a.v[i] = vaddq_s32(a.v[i], b.v[i]); return a; }
INLINE A a_scale(A a, int shift) { EACH(i, 4) a.v[i] = vshlq_s32(a.v[i], vdupq_n_s32(shift)); return a; }
INLINE A a_minus(A a, int32_t b) { EACH(i, 4) a.v[i] = vsubq_s32(a.v[i], vdupq_n_s32(b)); return a; }
INLINE F f_int(A a) { F r; EACH(i, 4) r.v[i] = vcvtq_f32_s32(a.v[i]); return r; }
INLINE F f_set(float x) { F r; EACH(i, 4) r.v[i] = vdupq_n_f32(x); return r; }
INLINE F f_load(const float *p) { F r; EACH(i, 4) r.v[i] = vld1q_f32(p + 4 * i); return r; }
INLINE void f_store(float *p, F a) { EACH(i, 4) vst1q_f32(p + 4 * i, a.v[i]); }
INLINE F f_add(F a, F b) { EACH(i, 4) a.v[i] = vaddq_f32(a.v[i], b.v[i]); return a; }
INLINE F f_mul(F a, F b) { EACH(i, 4) a.v[i] = vmulq_f32(a.v[i], b.v[i]); return a; }
INLINE F f_add_exact(F a, F b, F c) { EACH(i, 4) a.v[i] = vfmaq_f32(a.v[i], b.v[i], c.v[i]); return a; }
INLINE F f_butterfly(F a, int half) {
    static const uint32_t odd_lanes[4] = {0, 0xffffffff, 0, 0xffffffff};
    const uint32x4_t odd = vld1q_u32(odd_lanes);
    F r;
    if (half >= 4) { /* whole registers */
        EACH(i, 4) r.v[i] = i & half / 4 ? vsubq_f32(a.v[i - half / 4], a.v[i]) : vaddq_f32(a.v[i], a.v[i + half / 4]);
        return r;
    }
    EACH(i, 4) {
        float32x4_t b = half == 2 ? vextq_f32(a.v[i], a.v[i], 2) : vrev64q_f32(a.v[i]);
        float32x4_t sum = vaddq_f32(a.v[i], b), difference = vsubq_f32(b, a.v[i]);
        r.v[i] = half == 2 ? vcombine_f32(vget_low_f32(sum), vget_high_f32(difference)) : vbslq_f32(odd, difference, sum);
    }
    return r;
}
INLINE F f_half(const uint16_t *p) {
    F r;
    EACH(i, 4) r.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
    return r;
}
INLINE F f_bfloat(const void *p) {
    F r;
    EACH(i, 4) {
        uint16x4_t halves = vreinterpret_u16_u8(vld1_u8((const uint8_t *)p + 8 * i));
        r.v[i] = vreinterpretq_f32_u32(vshll_n_u16(halves, 16));
    }
    return r;
}
INLINE void f_to_half(uint16_t *p, F a) {
    EACH(i, 4) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
}
INLINE A f_round(F a) { A r; EACH(i, 4) r.v[i] = vcvtnq_s32_f32(a.v[i]); return r; }
INLINE void a_store_pairs(int32_t *p, A low, A high) { EACH(i, 4) vst1q_s32(p + 4 * i, vsliq_n_s32(low.v[i], high.v[i], 16)); }
INLINE float f_fold(F a) {
    float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
#if defined(__GNUC__) || defined(__clang__)
INLINE void prefetch(const void *p) { __builtin_prefetch(p); }
INLINE void prefetch_once(const void *p) { __builtin_prefetch(p, 0, 0); }
#else
INLINE void prefetch(const void *p) { (void)p; }
INLINE void prefetch_once(const void *p) { (void)p; }
#endif
