/* Attention: one token and many, kv heads alone and together, and all between levels. */
#include <string.h>

#include "compare.h"

/* All kv heads, `heads` at a time, tokens first .. last - 1. */
static void attend_heads(const level *l, const attention_job *job, int64_t heads, int64_t first, int64_t last) {
    float *scratch = memory(4 * heads * attention_scratch(job, last - first), 0);
    for (int64_t head = 0; head < job->kv_heads; head += heads)
        l->attention(job, head, job->kv_heads - head < heads ? job->kv_heads - head : heads, first, last, scratch);
}

static void attend(const level *l, const attention_job *job, int64_t first, int64_t last) {
    attend_heads(l, job, 1, first, last);
}

static void one_case(int64_t tokens, int64_t positions, int64_t dim, int64_t value_dim, enum flavour flavour) {
    const int64_t kv_heads = random_between(1, 3), group = random_between(1, kv_heads == 1 ? 6 : 2);
    const int64_t heads = kv_heads * group, count = tokens * heads * value_dim, stride = dim + random_below(2) * 8;
    float *query = random_floats(tokens * heads * stride, flavour);
    uint16_t *keys = random_halves(positions * kv_heads * dim, flavour);
    uint16_t *values = random_halves(positions * kv_heads * value_dim, flavour);
    attention_job job = {{query, tokens, heads, dim, heads * stride, stride}, keys, values, positions, kv_heads, value_dim,
                         0.088388346f, NULL};
    int64_t cut = random_between(1, tokens);
    describe("attention, %d tokens, %d positions, %d kv heads of %d, dimensions %d and %d", (int)tokens, (int)positions,
             (int)kv_heads, (int)group, (int)dim, (int)value_dim);
    EACH_LEVEL(n) {
        float *whole = job.out = floats(count);
        attend(usable[n], &job, 0, tokens);
        compare(n, 0, whole, count, FLOATS);
        float *single = job.out = floats(count);
        for (int64_t t = 0; t < tokens; t++) attend(usable[n], &job, t, t + 1);
        expect_same(n, single, whole, count, FLOATS, "token by token differs");
        float *parts = job.out = floats(count);
        attend(usable[n], &job, 0, cut);
        attend(usable[n], &job, cut, tokens);
        expect_same(n, parts, whole, count, FLOATS, "two runs of tokens differ from one");
        float *together = job.out = floats(count);
        attend_heads(usable[n], &job, 2, 0, tokens);
        expect_same(n, together, whole, count, FLOATS, "two kv heads at a time differ from one");
        attention_job alone = job; /* the first token before the others were there */
        alone.query.tokens = 1;
        alone.positions = positions - tokens + 1;
        alone.out = floats(heads * value_dim);
        attend(usable[n], &alone, 0, 1);
        expect_same(n, alone.out, whole, heads * value_dim, FLOATS, "the first token alone differs");
    }
    end_case();
}

void compare_attention(void) {
    static const int64_t tokens[] = {1, 2, 3, 4, 5, 7, 16, 17}, dims[] = {16, 32, 48, 64, 80, 96, 128, 256};
    for (int t = 0; t < COUNT_OF(tokens); t++)
        for (int d = 0; d < COUNT_OF(dims); d++)
            for (int round = 0; round < 2; round++) {
                int64_t positions = tokens[t] + (round ? random_below(200) : random_below(20));
                int64_t value_dim = random_below(2) ? dims[d] : 16 * random_between(1, 16);
                one_case(tokens[t], positions, dims[d], value_dim, random_flavour());
            }
    one_case(64, 200, 64, 128, PLAIN);
    one_case(64, 64, 256, 16, HARSH);
}
