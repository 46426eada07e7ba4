/* AMX where the processor has none: its instructions raise SIGILL, and the handler does what they would have done.
 *
 * So the level's machine code is proved as it is shipped, by the operations that Intel publishes for LDTILECFG,
 * TILERELEASE, TILEZERO, TILELOADD, TILESTORED and TDPBSSD. What the processor would refuse ends the program: another
 * instruction, a tile without a shape, shapes that do not fit each other. */
#define _GNU_SOURCE
#include "compare.h"

#include <string.h>

#if HAS_AMX
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { TILES = 8, MOST_ROWS = 16, MOST_ROW_BYTES = 64 };
enum { NO_PREFIX, PREFIX_66, PREFIX_F3, PREFIX_F2 }; /* as VEX numbers them */

typedef struct {
    int rows, row_bytes;
    uint8_t data[MOST_ROWS][MOST_ROW_BYTES];
} tile;

static _Thread_local tile tiles[TILES];
static _Thread_local int configured, releases;

static void refuse(const char *why) {
    fprintf(stderr, "emulated AMX: %s\n", why);
    abort();
}

static tile *shaped(int index) {
    if (!configured || index >= TILES || tiles[index].rows == 0) refuse("a tile without a shape");
    return &tiles[index];
}

static void load_config(const uint8_t *from) {
    uint8_t config[64];
    memcpy(config, from, sizeof config);
    if (config[0] != 1) refuse("not palette 1");
    for (int i = 1; i < 64; i++)
        if ((i < 16 || (i >= 32 && i < 48) || i >= 56) && config[i]) refuse("a reserved byte, or a restart");
    memset(tiles, 0, sizeof tiles);
    for (int i = 0; i < TILES; i++) {
        tiles[i].row_bytes = config[16 + 2 * i] | config[17 + 2 * i] << 8;
        tiles[i].rows = config[48 + i];
        if (tiles[i].row_bytes > MOST_ROW_BYTES || tiles[i].rows > MOST_ROWS) refuse("a shape too large");
        if (!tiles[i].row_bytes != !tiles[i].rows) refuse("half a shape");
    }
    configured = 1;
}

static void load(int index, const uint8_t *from, int64_t stride) {
    tile *t = shaped(index);
    memset(t->data, 0, sizeof t->data);
    for (int m = 0; m < t->rows; m++) memcpy(t->data[m], from + m * stride, (size_t)t->row_bytes);
}

static void store(int index, uint8_t *to, int64_t stride) {
    const tile *t = shaped(index);
    for (int m = 0; m < t->rows; m++) memcpy(to + m * stride, t->data[m], (size_t)t->row_bytes);
}

static void dot_signed(int sums, int left, int right) {
    tile *c = shaped(sums);
    const tile *a = shaped(left), *b = shaped(right);
    if (sums == left || sums == right || left == right) refuse("one tile twice");
    if (a->rows != c->rows || b->row_bytes != c->row_bytes || a->row_bytes != 4 * b->rows || c->row_bytes % 4)
        refuse("shapes that do not fit");
    for (int m = 0; m < c->rows; m++)
        for (int k = 0; k < a->row_bytes / 4; k++)
            for (int n = 0; n < c->row_bytes / 4; n++) {
                uint32_t sum; /* which wraps */
                memcpy(&sum, &c->data[m][4 * n], 4);
                for (int i = 0; i < 4; i++)
                    sum += (uint32_t)((int8_t)a->data[m][4 * k + i] * (int8_t)b->data[k][4 * n + i]);
                memcpy(&c->data[m][4 * n], &sum, 4);
            }
    for (int m = c->rows; m < MOST_ROWS; m++) memset(c->data[m], 0, MOST_ROW_BYTES);
}

/* A memory operand: base and displacement, index and scale, and the bytes that it takes from ModRM on. */
typedef struct {
    uint64_t base, index;
    int length, is_sib;
} operand;

static uint64_t general_register(const ucontext_t *context, int number) {
    static const int order[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)context->uc_mcontext.gregs[order[number]];
}

static operand memory_operand(const ucontext_t *context, const uint8_t *code, int extra_index, int extra_base) {
    const uint8_t *at = code + 5; /* after VEX, opcode and ModRM */
    const int mod = code[4] >> 6, low = code[4] & 7;
    operand o = {0, 0, 0, low == 4};
    int base = low | extra_base << 3, wide = mod == 2;
    if (o.is_sib) {
        int index = ((*at >> 3) & 7) | extra_index << 3;
        if (index != 4) o.index = general_register(context, index) << (*at >> 6);
        base = (*at++ & 7) | extra_base << 3;
    }
    if (mod == 0 && (base & 7) == 5) wide = 1; /* a displacement of 32 bits alone, or from the next instruction on */
    else o.base = general_register(context, base);
    if (wide) {
        int32_t displacement;
        memcpy(&displacement, at, 4);
        at += 4;
        o.base += (uint64_t)(int64_t)displacement;
    } else if (mod == 1) {
        o.base += (uint64_t)(int64_t)(int8_t)*at++;
    }
    o.length = (int)(at - code);
    if (mod == 0 && low == 5) o.base += (uint64_t)(uintptr_t)at;
    return o;
}

static void on_illegal(int number, siginfo_t *information, void *opaque) {
    (void)number;
    (void)information;
    ucontext_t *context = opaque;
    greg_t *next = &context->uc_mcontext.gregs[REG_RIP];
    const uint8_t *code = (const uint8_t *)(uintptr_t)*next;
    /* Three bytes of VEX, map 0F38, W 0, 128 bits; registers' bits in them are inverted. */
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84)) refuse("an illegal instruction of another kind");
    const int prefix = code[2] & 3, second = ~(code[2] >> 3) & 15, opcode = code[3];
    const int is_register = code[4] >> 6 == 3, reg = ((code[4] >> 3) & 7) | (~code[1] >> 7 & 1) << 3;
    operand o = {0, 0, 5, 0};
    if (!is_register) o = memory_operand(context, code, ~code[1] >> 6 & 1, ~code[1] >> 5 & 1);
    uint8_t *memory_at = (uint8_t *)(uintptr_t)o.base;
    if (opcode == 0x49 && prefix == NO_PREFIX && !is_register && reg == 0) load_config(memory_at);
    else if (opcode == 0x49 && prefix == NO_PREFIX && code[4] == 0xc0) configured = 0, releases++;
    else if (opcode == 0x49 && prefix == PREFIX_F2 && is_register)
        memset(shaped(reg)->data, 0, sizeof(((tile *)0)->data));
    else if (opcode == 0x4b && prefix == PREFIX_F2 && o.is_sib) load(reg, memory_at, (int64_t)o.index);
    else if (opcode == 0x4b && prefix == PREFIX_F3 && o.is_sib) store(reg, memory_at, (int64_t)o.index);
    else if (opcode == 0x5e && prefix == PREFIX_F2 && is_register) dot_signed(reg, code[4] & 7, second);
    else refuse("an instruction that it does not know");
    *next += o.length;
}

int emulate(const level *l) {
    if (strcmp(l->name, "amx")) return 0;
    for (int i = 0; i < level_count; i++)
        if (!strcmp(levels[i]->name, "avx512-vnni") && level_usable(levels[i])) {
            struct sigaction action;
            memset(&action, 0, sizeof action);
            action.sa_sigaction = on_illegal;
            action.sa_flags = SA_SIGINFO;
            return sigaction(SIGILL, &action, NULL) == 0;
        }
    return 0;
}

int tiles_released(void) {
    int count = configured ? -1 : releases;
    releases = 0;
    return count;
}

#else
int emulate(const level *l) {
    (void)l;
    return 0;
}

int tiles_released(void) { return 0; }
#endif
