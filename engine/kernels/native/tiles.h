/* The tile instructions of AMX int8; a tile's number is a literal 0 to 7.
 *
 * They are written out, because GCC 12's intrinsics do not say which memory they read: stores before a load of
 * tiles were dropped. What a tile is, palette 1: up to 16 rows of up to 64 bytes. */

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* Until the release, this thread has tiles of these shapes, and a larger state to be saved. */
INLINE void tile_config(const tile_shapes *shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(*shapes)); }
INLINE void tile_release(void) { __asm__ volatile("tilerelease"); }

#define tile_zero(TILE) __asm__ volatile("tilezero %%tmm" #TILE : :)
/* Rows are `STRIDE` bytes apart. */
#define tile_load(TILE, FROM, STRIDE) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #TILE : : "r"(FROM), "r"((int64_t)(STRIDE)) : "memory")
#define tile_store(TILE, TO, STRIDE) \
    __asm__ volatile("tilestored %%tmm" #TILE ", (%0,%1,1)" : : "r"(TO), "r"((int64_t)(STRIDE)) : "memory")
/* sums[m][n] += a[m][4 k + i] * b[k][4 n + i] over k and i < 4, all bytes signed, sums of 32 bits. */
#define tile_dot(SUMS, A, B) __asm__ volatile("tdpbssd %%tmm" #B ", %%tmm" #A ", %%tmm" #SUMS : :)
