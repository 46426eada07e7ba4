/* The thread pool: every task of every job once, whether its workers spin, sleep, are many or none, whether
 * the pool is busy with another thread's job, or in a child process; and what a worker that stays away costs. */
#include "pool.h"

#include <stdio.h>
#include <string.h>

#include "compare.h"

enum { MOST_TASKS = 1000 };

typedef struct {
    pool *p;
    long round;
    int done[MOST_TASKS];
    long results[MOST_TASKS];
    int right, started, ended;
} job;

static void task(void *context, long index) {
    job *j = context;
    j->done[index]++;
    j->results[index] = j->round * 3 + index;
}

/* One job of `count` tasks; whether each ran once, and its result is seen here. */
static int run(job *j, long count) {
    memset(j->done, 0, sizeof j->done);
    j->round++;
    pool_run(j->p, task, j, count);
    for (long i = 0; i < MOST_TASKS; i++)
        if (j->done[i] != (i < count) || (i < count && j->results[i] != j->round * 3 + i)) return 0;
    return 1;
}

static int run_many(job *j, int rounds) {
    static const long counts[] = {0, 1, 2, MOST_TASKS, 3};
    int right = 1;
    for (int round = 0; round < rounds; round++) right &= run(j, counts[round % COUNT_OF(counts)]);
    return right;
}

typedef struct {
    int nap;       /* whether tasks of workers sleep */
    int by_others; /* tasks that workers did */
} shared_job;

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
static void rest(void) { Sleep(20); }
static void beside_a_sleeper(pool *p) { (void)p; }
static void beside_another(pool *p) { (void)p; }
static void in_a_child(pool *p) { (void)p; }
#else
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void rest(void) {
    struct timespec time = {0, 20000000};
    nanosleep(&time, NULL);
}

static pthread_t caller;

static void shared_task(void *context, long index) {
    shared_job *j = context;
    (void)index;
    if (pthread_equal(pthread_self(), caller)) return;
    __atomic_fetch_add(&j->by_others, 1, __ATOMIC_RELAXED);
    if (j->nap) rest();
}

/* Tasks that workers did of up to 200 jobs, until there is one. */
static int tasks_of_others(pool *p, int nap) {
    shared_job j = {nap, 0};
    caller = pthread_self();
    for (int again = 0; again < 200 && !j.by_others; again++) pool_run(p, shared_task, &j, MOST_TASKS);
    return j.by_others;
}

/* A worker that stays away in the middle of a task costs one job; then it is left out, and later let in again. */
static void beside_a_sleeper(pool *p) {
    int left_out = 0, back = 0;
    for (int again = 0; again < 20 && !left_out; again++)
        left_out = tasks_of_others(p, 1) && !tasks_of_others(p, 0);
    for (int again = 0; again < 100 && !back; again++) {
        rest();
        back = tasks_of_others(p, 0);
    }
    expect(0, left_out, "a worker that stays away is waited for again");
    expect(0, back, "a worker that was left out is not let in again");
}

static void *other_thread(void *context) {
    job *j = context;
    j->right = 1;
    while (!__atomic_load_n(&j->ended, __ATOMIC_ACQUIRE)) {
        j->right &= run_many(j, 5);
        __atomic_store_n(&j->started, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void beside_another(pool *p) {
    static job mine, others;
    pthread_t thread;
    mine.p = others.p = p;
    others.started = others.ended = 0;
    if (pthread_create(&thread, NULL, other_thread, &others)) return;
    while (!__atomic_load_n(&others.started, __ATOMIC_ACQUIRE)) rest();
    int right = run_many(&mine, 500);
    __atomic_store_n(&others.ended, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    expect(0, right && others.right, "jobs of two threads disturbed each other");
}

/* The child ends with 0 if the pool still works there and can be freed. */
static void in_a_child(pool *p) {
    static job j;
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        j.p = p;
        int right = run_many(&j, 20);
        pool_free(p);
        _exit(!right);
    }
    expect(0, child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child of the process failed");
}
#endif

static void check(int threads) {
    static job j;
    pool *p = j.p = pool_new(threads);
    describe("pool of %d threads", threads);
    expect(0, p != NULL && pool_threads(p) == threads, "there are fewer threads");
    if (p == NULL) return;
    expect(0, run_many(&j, 300), "a task was not run once");
    for (int again = 0; again < 5; again++) {
        rest(); /* long enough for the workers to fall asleep */
        expect(0, run(&j, MOST_TASKS), "a task was not run once after a rest");
    }
    if (threads == 2) beside_a_sleeper(p);
    beside_another(p);
    in_a_child(p);
    expect(0, run_many(&j, 50), "a task was not run once at the end");
    pool_free(p);
}

void check_pool(void) {
    for (int threads = 1; threads <= 4; threads++) check(threads);
    for (int again = 0; again < 30; again++) pool_free(pool_new(1 + again % 4));
}
