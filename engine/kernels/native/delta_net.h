/* Gated DeltaNet between its projections: first `delta_inputs` for all heads of queries, keys and values, then
 * `delta_heads` for all value heads. Heads do not depend on each other. */

enum { GATE_TOKENS = 64 };

/* Row t of the sequence that starts taps - 1 tokens before the first of this call. */
INLINE float *history(const delta_job *job, int64_t t) {
    const int64_t before = job->taps - 1;
    return t < before ? job->recent + t * job->channels : (float *)job->inputs + (t - before) * job->channels;
}

/* silu of the convolution of `count` channels from `start` on; then what the next call needs of its inputs. */
INLINE void convolve(const delta_job *job, int64_t start, int64_t count) {
    enum { WIDTH = 64 };
    for (int64_t end = start + count, width; start < end; start += width) {
        width = end - start < WIDTH ? end - start : WIDTH;
        for (int64_t t = 0; t < job->tokens; t++) {
            float sum[WIDTH] = {0}, *out = job->heads + t * job->channels + start;
            for (int64_t tap = 0; tap < job->taps; tap++) {
                const float *w = job->convolution + tap * job->channels + start, *x = history(job, t + tap) + start;
                for (int64_t c = 0; c < width; c++) sum[c] = sum[c] + w[c] * x[c];
            }
            for (int64_t c = 0; c < width; c++) out[c] = sum[c] * canon_sigmoid(sum[c]);
        }
        for (int64_t t = 0; t < job->taps - 1; t++)
            memmove(history(job, t) + start, history(job, job->tokens + t) + start, sizeof(float) * (size_t)width);
    }
}

/* Heads first .. last - 1, of queries, then keys, then values: convolved, queries and keys brought to unit length. */
static void delta_inputs(const delta_job *job, int64_t first, int64_t last) {
    const int64_t dim = job->key_dim, keys = job->key_heads;
    for (int64_t head = first; head < last; head++) {
        if (head >= 2 * keys) {
            convolve(job, 2 * keys * dim + (head - 2 * keys) * job->value_dim, job->value_dim);
            continue;
        }
        convolve(job, head * dim, dim);
        const float factor = head < keys ? job->query_factor : 1.0f;
        for (int64_t t = 0; t < job->tokens; t++) {
            float *x = job->heads + t * job->channels + head * dim;
            const float inverse = 1.0f / sqrtf(lane_dot(x, x, dim) + job->epsilon);
            for (int64_t i = 0; i < dim; i++) x[i] = (x[i] * inverse) * factor;
        }
    }
}

/* One token of 16 value columns: their `state` in rows `step` floats apart goes `to` rows `to_step` apart, which may be
 * the same. Unless `soon` is NULL, the 16 * dim floats there are asked for meanwhile. */
INLINE F delta_step(int64_t dim, const float *state, int64_t step, float *to, int64_t to_step, const float *query,
                    const float *key, F value, float decay, float strength, const float *soon) {
    F lanes[16];
    UNROLL
    for (int l = 0; l < 16; l++) lanes[l] = f_set(0.0f);
    for (int64_t i = 0; i < dim; i += 16) {
        UNROLL
        for (int l = 0; l < 16; l++) {
            if (soon && l % 2) prefetch(soon + 16 * (i + l));
            F s = f_mul(f_load(state + (i + l) * step), f_set(decay));
            lanes[l] = f_add(lanes[l], f_mul(s, f_set(key[i + l])));
        }
    }
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] = f_add(lanes[l], lanes[l + half]);
    const F delta = f_mul(f_set(strength), f_add(value, f_mul(lanes[0], f_set(-1.0f))));
    UNROLL
    for (int l = 0; l < 16; l++) lanes[l] = f_set(0.0f);
    for (int64_t i = 0; i < dim; i += 16) {
        UNROLL
        for (int l = 0; l < 16; l++) {
            if (soon && l % 2 == 0) prefetch(soon + 16 * (i + l));
            F s = f_mul(f_load(state + (i + l) * step), f_set(decay));
            s = f_add(s, f_mul(f_set(key[i + l]), delta));
            f_store(to + (i + l) * to_step, s);
            lanes[l] = f_add(lanes[l], f_mul(s, f_set(query[i + l])));
        }
    }
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] = f_add(lanes[l], lanes[l + half]);
    return lanes[0];
}

/* x = silu(gate) * norm(x), of a head. */
INLINE void gated_norm(const delta_job *job, const float *gate, float *x) {
    const int64_t dim = job->value_dim;
    const float factor = 1.0f / sqrtf(lane_dot(x, x, dim) / (float)dim + job->epsilon);
    for (int64_t i = 0; i < dim; i++)
        x[i] = (gate[i] * canon_sigmoid(gate[i])) * ((x[i] * factor) * job->norm[i]);
}

/* Value heads first .. last - 1. */
static void delta_heads(const delta_job *job, int64_t first, int64_t last) {
    const int64_t dim = job->key_dim, value_dim = job->value_dim, width = job->value_heads * job->value_dim;
    float columns[MAX_DIM * 16], decay[GATE_TOKENS], strength[GATE_TOKENS];
    for (int64_t head = first; head < last; head++) {
        float *state = job->state + head * dim * value_dim;
        const float *query = job->heads + head % job->key_heads * dim, *key = query + job->key_heads * dim;
        const float *value = job->heads + 2 * job->key_heads * dim + head * value_dim;
        for (int64_t token = 0; token < job->tokens; token += GATE_TOKENS) {
            const int64_t count = job->tokens - token < GATE_TOKENS ? job->tokens - token : GATE_TOKENS;
            for (int64_t t = 0; t < count; t++) {
                const int64_t at = (token + t) * job->value_heads + head;
                decay[t] = canon_exp(job->a[head] * canon_softplus(job->alpha[at] + job->dt[head]));
                strength[t] = canon_sigmoid(job->beta[at]);
            }
            float *out = job->out + token * width + head * value_dim;
            for (int64_t v = 0; v < value_dim; v += 16) {
                const float *from = state + v;
                int64_t step = value_dim;
                for (int64_t t = 0; t < count; t++) {
                    const int64_t at = (token + t) * job->channels;
                    const F x = f_load(value + at + v);
                    float *to = t + 1 < count ? columns : state + v;
                    const int64_t to_step = t + 1 < count ? 16 : value_dim;
                    F y;
                    if (t || token) /* the state of the head is in cache */
                        y = delta_step(dim, from, step, to, to_step, query + at, key + at, x, decay[t], strength[t], NULL);
                    else
                        y = delta_step(dim, from, step, to, to_step, query + at, key + at, x, decay[t], strength[t],
                                       state + dim * (value_dim + v));
                    f_store(out + t * width + v, y);
                    from = to;
                    step = to_step;
                }
            }
            const float *gate = job->gate + token * width + head * value_dim;
            for (int64_t t = 0; t < count; t++) {
                const int64_t at = t * width;
                gated_norm(job, gate + at, out + at);
            }
        }
    }
}
