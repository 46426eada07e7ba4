/* The thread pool: every task of every job once, whether the workers spin, sleep, are many or none. */
#include "pool.h"

#include <string.h>

#include "compare.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
static void pause_briefly(void) { Sleep(10); }
#else
#include <time.h>
static void pause_briefly(void) {
    struct timespec time = {0, 10000000};
    nanosleep(&time, NULL);
}
#endif

enum { MOST_TASKS = 1000 };

typedef struct {
    int done[MOST_TASKS];
    long round;
    long results[MOST_TASKS];
} job;

static void task(void *context, long index) {
    job *j = context;
    j->done[index]++;
    j->results[index] = j->round * 3 + index;
}

static int all_once(const job *j, long count) {
    for (long i = 0; i < count; i++)
        if (j->done[i] != 1 || j->results[i] != j->round * 3 + i) return 0;
    for (long i = count; i < MOST_TASKS; i++)
        if (j->done[i]) return 0;
    return 1;
}

static void jobs(int threads, int rounds) {
    static const long counts[] = {0, 1, 2, MOST_TASKS, 3};
    pool *p = pool_new(threads);
    int right = p != NULL && pool_threads(p) == threads;
    for (int round = 0; right && round < rounds; round++) {
        long count = counts[round % COUNT_OF(counts)];
        job j = {{0}, round, {0}};
        if (round % (rounds / 3) == 1) pause_briefly(); /* long enough for the workers to fall asleep */
        pool_run(p, task, &j, count);
        right = all_once(&j, count);
    }
    pool_free(p);
    expect(0, right, "a task was not run once");
}

void check_pool(void) {
    for (int threads = 1; threads <= 4; threads++) {
        describe("pool of %d threads", threads);
        jobs(threads, 3000);
        for (int again = 0; again < 20; again++) pool_free(pool_new(threads));
        jobs(threads, 12);
    }
}
