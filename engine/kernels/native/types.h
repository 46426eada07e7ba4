/* The packed types: group, bits, registers, pieces, file bytes, codes at, scale at, extra at, step, zero,
 * largest code, order. Block layouts are those of engine/quantisation.py. */
#define TYPE_Q1_0   {128, 1, 4, 1, 18, 2, 0, -1, 2, 1, 1, 8}
#define TYPE_Q2_0   {64, 2, 4, 1, 18, 2, 0, -1, 1, 1, 3, 4}
#define TYPE_PQ2_0  {128, 2, 8, 1, 34, 2, 0, -1, 1, 1, 3, 4}
#define TYPE_PTQ1_0 {128, 0, 6, 2, 28, 0, 26, 24, 1, 1, 2, 1}
#define TYPE_Q4_0   {32, 4, 4, 1, 18, 2, 0, -1, 1, 8, 15, 16}
#define TYPE_Q4_1   {32, 4, 4, 2, 20, 4, 0, 2, 1, 0, 15, 16}
#define TYPE_Q8_0   {32, 8, 8, 1, 34, 2, 0, -1, 1, 128, 255, 1}
