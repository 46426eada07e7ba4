/* A fixed set of threads that run numbered tasks of one job at a time. The caller takes part in its job.
 * Workers spin for a moment after a job, because a decode step is a quick succession of jobs, then sleep. While
 * other programs keep them from running, the caller works alone. */
#ifndef PRISM_POOL_H
#define PRISM_POOL_H

typedef void (*pool_task)(void *context, long index);
typedef struct pool pool;

/* NULL when threads or memory could not be had. `threads` counts the caller. */
pool *pool_new(int threads);
void pool_free(pool *p);
int pool_threads(const pool *p);

/* Run task(context, 0 .. count - 1) once each, in any order, and return when all are done. The caller does
 * all of it alone if another thread has a job here, or in a child of the process that made the pool, which
 * has no workers. */
void pool_run(pool *p, pool_task task, void *context, long count);

#endif
