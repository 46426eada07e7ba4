/* What the parts of compare_levels share: seeded input, memory of exact size, and comparisons by bytes.
 * A case runs at every level in `usable`; the first, portable, gives what the others must equal. */
#ifndef PRISM_COMPARE_H
#define PRISM_COMPARE_H

#include "kernels.h"

#define EACH_LEVEL(n) for (int n = 0; n < usable_count; n++)
#define COUNT_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

extern const level *usable[16];
extern int usable_count;

/* The same numbers on every machine, as long as no two calls stand in one expression. */
void random_seed(uint64_t seed);
uint64_t random_bits(void);
int64_t random_below(int64_t count);
int64_t random_between(int64_t first, int64_t last);

/* PLAIN are moderate numbers; HARSH has zeros, subnormals, huge numbers and edges of exp, all finite; WILD
 * has infinities and NaNs, too. */
enum flavour { PLAIN, HARSH, WILD, FLAVOURS };
enum flavour random_flavour(void);
float random_float(enum flavour flavour);
uint16_t random_half(enum flavour flavour);

/* Memory until the end of the case: `nbytes` exactly, `offset` bytes after a multiple of 64, filled with a
 * pattern, so that the sanitizers see a step too far and a comparison sees what was left out. */
void *memory(int64_t nbytes, int offset);
float *floats(int64_t count);
float *random_floats(int64_t count, enum flavour flavour);
uint16_t *random_halves(int64_t count, enum flavour flavour);
void *copy_of(const void *data, int64_t nbytes);
void end_case(void);

/* Name the case for the report of a difference. */
void describe(const char *format, ...);

enum element { BYTES = 1, HALVES = 2, FLOATS = 4 };
/* NaNs are equal whatever their payload; everything else is equal by bits. */
void expect_same(int n, const void *data, const void *expected, int64_t count, enum element element, const char *what);
/* Remember level 0's result under a slot; compare that of the others with it. */
void compare(int n, int slot, const void *data, int64_t count, enum element element);
void expect(int n, int fact, const char *what);

/* fp16 by definition, slowly. */
float slow_from_half(uint16_t half);
uint16_t slow_to_half(float value);

/* The level that this processor lacks and that runs here all the same, see emulate_amx.c; NULL if none does. */
extern const level *emulated;
int emulate(const level *l);
/* How often the emulated tiles were given back since the last call; -1 if they are held. */
int tiles_released(void);

void compare_halves(void);
void compare_packed(void);
void compare_dense(void);
void compare_vectors(void);
void compare_heads(void);
void compare_attention(void);
void compare_recurrence(void);
void compare_agreement(void);
void check_pool(void);

#endif
