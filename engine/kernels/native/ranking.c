/* The highest logits in their order. */
#include "kernels.h"

/* Whether a ranks below b: by value, and among equals (both zeros are) the lower id ranks higher. */
static int below(const float *x, int64_t a, int64_t b) { return x[a] < x[b] || (x[a] == x[b] && a > b); }

/* Restore a heap whose root ranks lowest, from `at` down. */
static void sink(const float *x, int64_t *heap, int64_t count, int64_t at) {
    for (;;) {
        int64_t lowest = at;
        for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (below(x, heap[child], heap[lowest])) lowest = child;
        if (lowest == at) return;
        int64_t id = heap[at];
        heap[at] = heap[lowest], heap[lowest] = id;
        at = lowest;
    }
}

void highest(const float *x, int64_t size, int64_t count, int64_t *ids) {
    enum { LANES = 16, BLOCK = 128 };
    for (int64_t i = 0; i < count; i++) ids[i] = i;
    for (int64_t at = count / 2; at-- > 0;) sink(x, ids, count, at);
    for (int64_t first = count; first < size; first += BLOCK) {
        const int64_t last = first + BLOCK < size ? first + BLOCK : size;
        int64_t i = first;
        int reached = last < first + BLOCK; /* after the first thousands hardly a block has one */
        if (!reached) {
            float most[LANES];
            for (int l = 0; l < LANES; l++) most[l] = x[first + l];
            for (i = first + LANES; i < last; i += LANES)
                for (int l = 0; l < LANES; l++) most[l] = x[i + l] > most[l] ? x[i + l] : most[l];
            for (int l = 0; l < LANES; l++) reached |= most[l] > x[ids[0]];
        }
        if (!reached) continue;
        for (i = first; i < last; i++)
            if (x[i] > x[ids[0]]) ids[0] = i, sink(x, ids, count, 0);
    }
    for (int64_t rest = count - 1; rest > 0; rest--) {
        int64_t id = ids[0];
        ids[0] = ids[rest], ids[rest] = id;
        sink(x, ids, rest, 0);
    }
}
