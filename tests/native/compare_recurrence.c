/* Gated DeltaNet: heads, outputs and memories between levels, and a run of tokens against one after the other. */
#include "compare.h"

static delta_job part(delta_job job, int64_t first, int64_t tokens) {
    const int64_t width = job.value_heads * job.value_dim;
    job.inputs += first * job.channels;
    job.heads += first * job.channels;
    job.gate += first * width;
    job.out += first * width;
    job.alpha += first * job.value_heads;
    job.beta += first * job.value_heads;
    job.tokens = tokens;
    return job;
}

/* Each head by a call of its own, or all of them by one. */
static void run(const level *l, delta_job job, int64_t step) {
    const int64_t heads = 2 * job.key_heads + job.value_heads;
    for (int64_t head = 0; head < heads; head += step)
        l->delta_inputs(&job, head, head + step < heads ? head + step : heads);
    for (int64_t head = 0; head < job.value_heads; head += step)
        l->delta_heads(&job, head, head + step < job.value_heads ? head + step : job.value_heads);
}

static void one_case(int64_t key_dim, int64_t value_dim, int64_t tokens, int64_t taps, enum flavour flavour) {
    const int64_t key_heads = random_between(1, 3), repeats = random_between(1, 3), value_heads = key_heads * repeats;
    const int64_t width = value_heads * value_dim, channels = 2 * key_heads * key_dim + width;
    const int64_t state_size = width * key_dim, recent_size = (taps - 1) * channels;
    float *start = random_floats(state_size, flavour), *before = random_floats(recent_size, flavour);
    delta_job job = {0};
    job.inputs = random_floats(tokens * channels, flavour);
    job.gate = random_floats(tokens * width, WILD);
    job.alpha = random_floats(tokens * value_heads, WILD);
    job.beta = random_floats(tokens * value_heads, WILD);
    job.convolution = random_floats(taps * channels, PLAIN);
    job.a = random_floats(value_heads, flavour);
    job.dt = random_floats(value_heads, flavour);
    job.norm = random_floats(value_dim, PLAIN);
    job.epsilon = 1e-6f;
    job.query_factor = 0.125f;
    job.tokens = tokens, job.channels = channels, job.taps = taps;
    job.key_heads = key_heads, job.value_heads = value_heads, job.key_dim = key_dim, job.value_dim = value_dim;
    describe("delta net, %d tokens, %d taps, %d key heads, %d value heads, dimensions %d and %d", (int)tokens,
             (int)taps, (int)key_heads, (int)value_heads, (int)key_dim, (int)value_dim);
    EACH_LEVEL(n) {
        float *state = job.state = copy_of(start, 4 * state_size), *out = job.out = floats(tokens * width);
        float *recent = job.recent = copy_of(before, 4 * recent_size);
        float *heads = job.heads = floats(tokens * channels);
        run(usable[n], job, 100);
        compare(n, 0, heads, tokens * channels, FLOATS);
        compare(n, 1, state, state_size, FLOATS);
        compare(n, 2, out, tokens * width, FLOATS);
        compare(n, 3, recent, recent_size, FLOATS);
        job.state = copy_of(start, 4 * state_size);
        job.recent = copy_of(before, 4 * recent_size);
        job.out = floats(tokens * width);
        job.heads = floats(tokens * channels);
        for (int64_t t = 0; t < tokens; t++) run(usable[n], part(job, t, 1), 1);
        expect_same(n, job.heads, heads, tokens * channels, FLOATS, "heads of single tokens differ");
        expect_same(n, job.state, state, state_size, FLOATS, "memory after single tokens differs");
        expect_same(n, job.out, out, tokens * width, FLOATS, "outputs of single tokens differ");
        expect_same(n, job.recent, recent, recent_size, FLOATS, "inputs kept of single tokens differ");
    }
    end_case();
}

void compare_recurrence(void) {
    static const int64_t dims[] = {16, 32, 48, 128, 256};
    for (int k = 0; k < COUNT_OF(dims); k++)
        for (int v = 0; v < COUNT_OF(dims); v++) {
            const int64_t tokens = random_between(1, 6), taps = random_between(1, 5);
            one_case(dims[k], dims[v], tokens, taps, random_flavour());
        }
    one_case(1024, 16, 3, 4, PLAIN);
    one_case(32, 16, 70, 4, PLAIN); /* more tokens than are gated together */
    one_case(16, 32, 128, 2, HARSH);
}
