#include "pool.h"

#include <stdlib.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
typedef HANDLE thread_handle;
typedef CRITICAL_SECTION mutex;
typedef CONDITION_VARIABLE condition;
#define mutex_init(m) InitializeCriticalSection(m)
#define mutex_free(m) DeleteCriticalSection(m)
#define mutex_lock(m) EnterCriticalSection(m)
#define mutex_unlock(m) LeaveCriticalSection(m)
#define condition_init(c) InitializeConditionVariable(c)
#define condition_free(c) ((void)(c))
#define condition_wait(c, m) SleepConditionVariableCS(c, m, INFINITE)
#define condition_wake(c) WakeAllConditionVariable(c)
#define yield_thread() SwitchToThread()
#define watch_forks() ((void)0)
static double now(void) {
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return (double)count.QuadPart / (double)frequency.QuadPart;
}
#else
#include <pthread.h>
#include <sched.h>
#include <time.h>
typedef pthread_t thread_handle;
typedef pthread_mutex_t mutex;
typedef pthread_cond_t condition;
#define mutex_init(m) pthread_mutex_init(m, NULL)
#define mutex_free(m) pthread_mutex_destroy(m)
#define mutex_lock(m) pthread_mutex_lock(m)
#define mutex_unlock(m) pthread_mutex_unlock(m)
#define condition_init(c) pthread_cond_init(c, NULL)
#define condition_free(c) pthread_cond_destroy(c)
#define condition_wait(c, m) pthread_cond_wait(c, m)
#define condition_wake(c) pthread_cond_broadcast(c)
#define yield_thread() sched_yield()
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
typedef volatile long counter;
#define counter_load(c) _InterlockedOr(c, 0)
#define counter_store(c, v) _InterlockedExchange(c, v)
#define counter_add(c, v) _InterlockedExchangeAdd(c, v)
#define counter_exchange(c, v) _InterlockedExchange(c, v)
#else
typedef long counter;
#define counter_load(c) __atomic_load_n(c, __ATOMIC_ACQUIRE)
#define counter_store(c, v) __atomic_store_n(c, v, __ATOMIC_RELEASE)
#define counter_add(c, v) __atomic_fetch_add(c, v, __ATOMIC_ACQ_REL)
#define counter_exchange(c, v) __atomic_exchange_n(c, v, __ATOMIC_ACQ_REL)
#endif

#if defined(__x86_64__) || defined(_M_X64) || defined(__i386__)
#include <immintrin.h>
#define relax() _mm_pause()
#elif defined(__aarch64__) && !defined(_MSC_VER)
#define relax() __asm__ __volatile__("yield")
#else
#define relax() ((void)0)
#endif

enum { SPINS = 20000, SPINS_AT_END = 2000, LINE = 64 };

/* A worker that does not come back has lost its processor for milliseconds. That happens now and then on any machine;
 * where another program wants the processor it would happen again in the next job, and one thread is several times
 * faster than that. So the caller goes on alone for a moment, and for twice as long each time that it happens again
 * soon after. */
static const double STALL_SECONDS = 0.001, ALONE_SECONDS = 0.002, MOST_ALONE_SECONDS = 0.8, SOON_SECONDS = 0.02;

struct pool {
    counter round; /* a change means a new job, or the end; it may wrap, for a worker misses none */
    char pad1[LINE];
    counter next; /* the next task of the job */
    char pad2[LINE];
    counter busy; /* workers still in the job */
    char pad3[LINE];
    counter running; /* a thread has a job here */
    counter sleeping;
    counter stop;
    double alone_until; /* seconds: till then the caller does all jobs itself */
    double alone_for;   /* how long that was, the last time */
    long forks; /* of the process that has the workers */
    pool_task task;
    void *context;
    long count;
    int threads;
    mutex lock;
    condition wake;
    thread_handle *handles;
};

/* How many forks lie between this process and the first: a child has none of its parent's threads. */
static counter forks;

#if !defined(_WIN32)
static void count_fork(void) { counter_add(&forks, 1); }
static void ask_for_forks(void) { pthread_atfork(NULL, NULL, count_fork); }
static void watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask_for_forks);
}
#endif

static int in_child(const pool *p) { return p->forks != counter_load(&forks); }

/* The number of tasks done. */
static long work(pool *p) {
    for (long done = 0;; done++) {
        long index = counter_add(&p->next, 1);
        if (index >= p->count) return done;
        p->task(p->context, index);
    }
}

static void wait_for_round(pool *p, long seen) {
    for (int spin = 0; spin < SPINS; spin++) {
        if (counter_load(&p->round) != seen) return;
        relax();
    }
    mutex_lock(&p->lock);
    counter_add(&p->sleeping, 1);
    while (counter_load(&p->round) == seen) condition_wait(&p->wake, &p->lock);
    counter_add(&p->sleeping, -1);
    mutex_unlock(&p->lock);
}

static void worker_loop(pool *p) {
    long seen = 0;
    for (;;) {
        wait_for_round(p, seen);
        seen = counter_load(&p->round);
        if (counter_load(&p->stop)) return;
        work(p);
        counter_add(&p->busy, -1);
    }
}

#if defined(_WIN32)
static DWORD WINAPI worker_main(LPVOID argument) {
    worker_loop((pool *)argument);
    return 0;
}
#else
static void *worker_main(void *argument) {
    worker_loop((pool *)argument);
    return NULL;
}
#endif

static int start_thread(thread_handle *handle, pool *p) {
#if defined(_WIN32)
    *handle = CreateThread(NULL, 0, worker_main, p, 0, NULL);
    return *handle != NULL;
#else
    return pthread_create(handle, NULL, worker_main, p) == 0;
#endif
}

static void join_thread(thread_handle handle) {
#if defined(_WIN32)
    WaitForSingleObject(handle, INFINITE);
    CloseHandle(handle);
#else
    pthread_join(handle, NULL);
#endif
}

static void begin_round(pool *p) {
    mutex_lock(&p->lock);
    counter_add(&p->round, 1);
    if (counter_load(&p->sleeping)) condition_wake(&p->wake);
    mutex_unlock(&p->lock);
}

pool *pool_new(int threads) {
    pool *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->handles = calloc((size_t)threads, sizeof *p->handles);
    if (p->handles == NULL) {
        free(p);
        return NULL;
    }
    watch_forks();
    mutex_init(&p->lock);
    condition_init(&p->wake);
    p->forks = counter_load(&forks);
    p->threads = 1;
    while (p->threads < threads) {
        if (!start_thread(&p->handles[p->threads - 1], p)) {
            pool_free(p);
            return NULL;
        }
        p->threads++;
    }
    return p;
}

void pool_free(pool *p) {
    if (p == NULL) return;
    if (!in_child(p)) {
        counter_store(&p->stop, 1);
        begin_round(p);
        for (int i = 0; i < p->threads - 1; i++) join_thread(p->handles[i]);
        condition_free(&p->wake);
        mutex_free(&p->lock);
    }
    free(p->handles);
    free(p);
}

int pool_threads(const pool *p) { return p->threads; }

static int alone(pool *p) {
    return p->alone_until > 0 && now() < p->alone_until;
}

/* Wait for the workers; one task of theirs should take `task_seconds`. */
static void wait_for_workers(pool *p, double task_seconds) {
    for (long spin = 0; spin < SPINS_AT_END; spin++) {
        if (!counter_load(&p->busy)) return;
        relax();
    }
    double begin = now();
    while (counter_load(&p->busy)) yield_thread(); /* with fewer free processors than threads they need ours */
    double end = now();
    if (end - begin <= STALL_SECONDS || end - begin <= 2 * task_seconds) return;
    double calm = begin - p->alone_until;
    int soon = calm < p->alone_for || calm < SOON_SECONDS;
    p->alone_for = soon ? 2 * p->alone_for : ALONE_SECONDS;
    if (p->alone_for > MOST_ALONE_SECONDS) p->alone_for = MOST_ALONE_SECONDS;
    p->alone_until = end + p->alone_for;
}

void pool_run(pool *p, pool_task task, void *context, long count) {
    int ours = p->threads > 1 && count > 1 && !in_child(p) && !counter_exchange(&p->running, 1);
    if (!ours || alone(p)) {
        for (long index = 0; index < count; index++) task(context, index);
        if (ours) counter_store(&p->running, 0);
        return;
    }
    p->task = task;
    p->context = context;
    p->count = count;
    counter_store(&p->next, 0);
    counter_store(&p->busy, p->threads - 1);
    begin_round(p);
    double begin = now();
    long done = work(p);
    wait_for_workers(p, done ? (now() - begin) / (double)done : 1.0);
    counter_store(&p->running, 0);
}
