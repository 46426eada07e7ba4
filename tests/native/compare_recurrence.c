/* The gated delta rule: outputs and memory between levels, and a run of tokens against one after the other. */
#include "compare.h"

static void run(const level *l, delta_job job, int64_t first, int64_t tokens) {
    job.query += first * job.key_heads * job.key_dim;
    job.key += first * job.key_heads * job.key_dim;
    job.value += first * job.value_heads * job.value_dim;
    job.out += first * job.value_heads * job.value_dim;
    job.decay += first * job.value_heads;
    job.beta += first * job.value_heads;
    job.tokens = tokens;
    for (int64_t head = 0; head < job.value_heads; head++) l->delta_rule(&job, head);
}

static void one_case(int64_t key_dim, int64_t value_dim, enum flavour flavour) {
    const int64_t tokens = random_between(1, 6), key_heads = random_between(1, 3), repeats = random_between(1, 3);
    const int64_t value_heads = key_heads * repeats, memory_size = value_heads * key_dim * value_dim;
    const int64_t count = tokens * value_heads * value_dim, keys = tokens * key_heads * key_dim;
    float *start = random_floats(memory_size, flavour), *query = random_floats(keys, flavour);
    float *key = random_floats(keys, flavour), *value = random_floats(count, flavour);
    float *decay = random_floats(tokens * value_heads, PLAIN), *beta = random_floats(tokens * value_heads, flavour);
    delta_job job = {start,  query,     key,         value,   decay,     beta,
                     tokens, key_heads, value_heads, key_dim, value_dim, NULL};
    describe("delta_rule, %d tokens, %d key heads, %d value heads, dimensions %d and %d", (int)tokens, (int)key_heads,
             (int)value_heads, (int)key_dim, (int)value_dim);
    EACH_LEVEL(n) {
        float *state = job.state = copy_of(start, 4 * memory_size), *out = job.out = floats(count);
        run(usable[n], job, 0, tokens);
        compare(n, 0, state, memory_size, FLOATS);
        compare(n, 1, out, count, FLOATS);
        job.state = copy_of(start, 4 * memory_size);
        job.out = floats(count);
        for (int64_t t = 0; t < tokens; t++) run(usable[n], job, t, 1);
        expect_same(n, job.state, state, memory_size, FLOATS, "memory after single tokens differs");
        expect_same(n, job.out, out, count, FLOATS, "outputs of single tokens differ");
    }
    end_case();
}

void compare_recurrence(void) {
    static const int64_t dims[] = {16, 32, 48, 128, 256};
    for (int k = 0; k < COUNT_OF(dims); k++)
        for (int v = 0; v < COUNT_OF(dims); v++)
            one_case(dims[k], dims[v], random_flavour());
    one_case(1024, 16, PLAIN);
}
