/* What the levels (one a processor generation) offer, and the data that they work on.
 * The arithmetic is the contract in docs/arithmetic.md; every level gives the same bits. */
#ifndef PRISM_KERNELS_H
#define PRISM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Packed types. A block of `group` weights of 16 rows takes, in panel layout, `registers` times 64 code
 * bytes and `pieces` times 32 small bytes (16 fp16 scales; then 16 fp16 minimums or 16 pairs of trit bytes).
 * A code byte holds 8 / bits codes, lowest bits first; for trits it holds five. */
typedef struct {
    int group, bits, registers, pieces;
    int file_bytes;   /* bytes of a block in the file */
    int codes_at;     /* offset of the codes in the file's block */
    int scale_at;     /* offset of the fp16 scale */
    int extra_at;     /* offset of the fp16 minimum or the trit pair, -1 for none */
    int step, zero, largest;
    int order;        /* activations are stored in this many interleaved runs, see quantise */
} packed_type;

enum packed_id { Q1_0, Q2_0, PQ2_0, PTQ1_0, Q4_0, Q4_1, Q8_0, PACKED_TYPES };
extern const packed_type packed_types[PACKED_TYPES];

/* `panels` holds rows / 16 panels of 16 rows; a last group of fewer rows lies, padded, in `tail`. */
typedef struct {
    enum packed_id id;
    int64_t rows, inputs;
    uint8_t *panels, *tail;
} packed_matrix;

enum dense_id { DENSE_F32, DENSE_F16, DENSE_BF16 };
typedef struct {
    enum dense_id id;
    int64_t rows, inputs;
    const void *weights; /* row after row */
} dense_matrix;

/* Integer activations of 8 bits (one part) or 16 bits (two parts, value = 256 high + low).
 * Four inputs of one token and part are one unit of 4 bytes. Units lie as [tile][inputs / 4][token][part],
 * where a tile is TILE_TOKENS tokens, or one if there is only one, so that a kernel that multiplies several
 * tokens reads on at fixed offsets. A level with tile registers has WIDE_TOKENS tokens a tile when there are so
 * many, and then they lie as [block][tile][run][token][part][inputs of the run], where a run is a block, or
 * half a block of 128: what one register holds is together, and so is what follows it. Each block of inputs is
 * in the order of its packed type. `tile` tells these layouts apart. */
enum { TILE_TOKENS = 8, WIDE_TOKENS = 16, LONGEST_RUN = 64 };
typedef struct {
    int64_t tokens, inputs, blocks;
    int tile, parts;
    int8_t *units;
    float *scales; /* [tokens][blocks] */
    int32_t *sums; /* [tokens][blocks], of all parts together */
} activations;

/* A head view of activations: element (t, h, i) is at t * token_stride + h * head_stride + i. */
typedef struct {
    const float *data;
    int64_t tokens, heads, dim, token_stride, head_stride;
} head_view;

typedef struct {
    const float *cosines, *sines; /* rows of the first token's position on, `pairs` each */
    int64_t pairs;
    int adjacent;
} rope_rows;

typedef struct {
    head_view query;
    const uint16_t *keys, *values; /* fp16 [positions][kv_heads][dim] */
    int64_t positions, kv_heads, value_dim;
    float scale;
    float *out; /* [tokens][heads][value_dim] */
} attention_job;

typedef struct {
    const float *inputs;        /* [tokens][channels]: queries, keys and values of all heads */
    const float *gate;          /* [tokens][value_heads][value_dim] */
    const float *alpha, *beta;  /* [tokens][value_heads] */
    float *recent;              /* [taps - 1][channels]: the inputs before these */
    float *state;               /* [value_heads][key_dim][value_dim] */
    const float *convolution;   /* [taps][channels] */
    const float *a, *dt, *norm; /* [value_heads], [value_heads], [value_dim] */
    float epsilon, query_factor;
    int64_t tokens, channels, taps, key_heads, value_heads, key_dim, value_dim;
    float *heads; /* [tokens][channels]: the inputs after convolution and norm */
    float *out;   /* [tokens][value_heads][value_dim] */
} delta_job;

typedef struct {
    const char *name;
    void (*packed)(const packed_matrix *m, const activations *x, float *out, int64_t first, int64_t last);
    void (*dense)(const dense_matrix *m, const float *x, int64_t tokens, float *out, int64_t first, int64_t last);
    /* Fill units, scales and sums of tokens first .. last - 1 of `a`, whose other fields are set; x is
     * [tokens][inputs]. */
    void (*quantise)(const float *x, int group, int order, activations *a, int64_t first, int64_t last);
    void (*rms_norm)(float *x, const float *add, const float *weight, float epsilon, int64_t tokens,
                     int64_t width, float *out);
    void (*heads)(const head_view *x, const float *norm, float epsilon, const rope_rows *rope, float *out);
    void (*heads_half)(const head_view *x, const float *norm, float epsilon, const rope_rows *rope, uint16_t *out);
    /* Tokens first .. last - 1 of up to MOST_HEADS kv heads; scratch for each, see attention_scratch. */
    void (*attention)(const attention_job *job, int64_t kv_head, int64_t heads, int64_t first, int64_t last,
                      float *scratch);
    /* Heads first .. last - 1: of queries, keys and values; of values. */
    void (*delta_inputs)(const delta_job *job, int64_t first, int64_t last);
    void (*delta_heads)(const delta_job *job, int64_t first, int64_t last);
    void (*silu_product)(const float *gate, const float *up, int64_t count, float *out);
    void (*sigmoid_product)(const head_view *gate, const float *values, float *out);
    void (*hadamard)(const float *x, const int64_t *order, const float *before, const float *after,
                     int64_t tokens, int64_t width, int64_t block, float *out);
    uint64_t (*read)(const uint8_t *data, int64_t nbytes);
    int wide; /* whether it has tile registers, and the layout of activations for them */
} level;

/* Whether the compiler knows AVX-VNNI: GCC from 11 on, Clang from 12 on, any MSVC of today. */
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<avxvnniintrin.h>)
#define HAS_AVX_VNNI 1
#endif
#elif defined(_M_X64)
#define HAS_AVX_VNNI 1
#endif

/* Whether the compiler knows AMX: GCC and Clang from 11 on. Elsewhere than on Linux the level is left out: Windows
 * enables the tiles of each process by a call that nobody has tried with this code. */
#if defined(__linux__) && defined(__x86_64__) && defined(__has_include)
#if __has_include(<amxint8intrin.h>) || (defined(__clang__) && __has_include(<amxintrin.h>))
#define HAS_AMX 1
#endif
#endif

/* Levels that this build has, best last; `level_usable` asks the processor and the system. */
extern const level *const levels[];
extern const int level_count;
int level_usable(const level *l);
/* Whether a usable level may be used: one that could not be run before it was shipped must first agree here, in
 * a few small products, with one that could. It is asked once. */
int level_proved(const level *l);
int levels_agree(const level *a, const level *b);
/* How many tokens of `tokens` share a tile of activations at this level. */
int tile_tokens(const level *l, int64_t tokens);

/* Attention mixes the values of SPAN positions at a time, and scores up to MOST_QUERIES queries, see attention.h. */
enum { SPAN = 32, MOST_QUERIES = 8, MOST_HEADS = 16 };
/* Of a head, in operations that need room for one. */
enum { MAX_DIM = 1024 };
/* Floats of scratch that one kv head needs for up to `tokens` tokens: whole cache lines. */
int64_t attention_scratch(const attention_job *job, int64_t tokens);

/* Bring `panels` groups of 16 rows from the file's layout to panel layout, in place; `rows` is a scratch
 * buffer of 16 rows. */
void repack(enum packed_id id, uint8_t *panels, int64_t inputs, int64_t first, int64_t last, uint8_t *rows);
/* One row of a matrix in panel layout, dequantised. */
void select_row(const packed_matrix *m, int64_t row, float *out);
int64_t panel_bytes(enum packed_id id, int64_t inputs);

/* Ids of the `count` (1 to size) highest of `size` values that are not NaN, highest first, equal ones by id. */
void highest(const float *x, int64_t size, int64_t count, int64_t *ids);

#endif
