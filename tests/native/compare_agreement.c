/* The check that a level must pass before this process uses it: it passes every level, and no broken one. */
#include <string.h>

#include "compare.h"

static int calls, wrong_call;

/* Wrong in one element of one call. */
static void almost(const packed_matrix *m, const activations *x, float *out, int64_t first, int64_t last) {
    usable[0]->packed(m, x, out, first, last);
    if (calls++ == wrong_call) out[x->tokens * m->rows - 1] += 1.0f;
}

void compare_agreement(void) {
    level broken = *usable[0];
    broken.packed = almost;
    describe("agreement of levels");
    EACH_LEVEL(n) expect(n, levels_agree(usable[n], usable[0]), "a good level is refused");
    for (wrong_call = 0; wrong_call < 2 * PACKED_TYPES; wrong_call++) {
        calls = 0;
        expect(0, !levels_agree(&broken, usable[0]), "a broken level is not noticed");
    }
    calls = 0;
    expect(0, levels_agree(&broken, usable[0]), "nothing was broken");
}
