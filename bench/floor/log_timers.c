/* The floor of durable timers: records appended to a plain file, and a heap of deadlines in memory.
 *
 *   log_timers FILE bulk COUNT        appends in batches, a sync each          -> seconds, bytes of memory each
 *   log_timers FILE single N EACH     N callers, one record at a time          -> seconds, median of one
 *   log_timers FILE restart           reads the file, builds the heap          -> seconds, how many
 *   log_timers FILE drain             the same, then completes all of them     -> seconds
 *   log_timers FILE late COUNT        COUNT are due within one second          -> their lateness in milliseconds, a line each
 *
 * Callers share a sync: who comes while one runs is in the next. A completion is a record too, synced before it is
 * told. It knows no pause, no message, no owner. Whatever a real store does more costs more than this.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 10000, FEW = 1000 };

struct record {
    long long due;      /* nanoseconds of the calendar; 0: the timer of this number is complete */
    long long number;
    char text[48];
};

struct entry {
    long long due, number;
};

static struct entry *heap;
static size_t used, room;
static int file;

static long long now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void push(long long due, long long number)
{
    if (used == room) {
        room = room ? room * 2 : 1024;
        if (!(heap = realloc(heap, room * sizeof *heap)))
            exit(1);
    }
    size_t at = used++;
    for (; at && heap[(at - 1) / 2].due > due; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = (struct entry){due, number};
}

static struct entry pop(void)
{
    struct entry first = heap[0], last = heap[--used];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < used; at = child) {
        if (child + 1 < used && heap[child + 1].due < heap[child].due)
            child++;
        if (heap[child].due >= last.due)
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return first;
}

static void keep(const struct record *records, size_t count)
{
    size_t size = count * sizeof *records;
    if (write(file, records, size) != (ssize_t)size || fdatasync(file))
        exit(1);
}

static struct record record(long long due, long long number)
{
    struct record made = {.due = due, .number = number};
    snprintf(made.text, sizeof made.text, "look at the logs of the build");
    return made;
}

static long resident(void)
{
    long pages = 0, all = 0;
    FILE *about = fopen("/proc/self/statm", "r");
    if (!about || fscanf(about, "%ld %ld", &all, &pages) != 2)
        exit(1);
    fclose(about);
    return pages * sysconf(_SC_PAGESIZE);
}

static void bulk(long count)
{
    static struct record batch[BATCH];
    long before = resident();
    long long start = now(CLOCK_MONOTONIC), day = now(CLOCK_REALTIME);
    for (long made = 0; made < count;) {
        long size = count - made < BATCH ? count - made : BATCH;
        for (long i = 0; i < size; i++, made++) {
            batch[i] = record(day + (3600 + made % 86400) * 1000000000LL, made);
            push(batch[i].due, made);
        }
        keep(batch, size);
    }
    double seconds = (now(CLOCK_MONOTONIC) - start) / 1e9;
    printf("%.6f %.1f\n", seconds, (double)(resident() - before) / count);
}

/* One shared buffer: a caller adds its record and waits until a sync has taken it along. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct record waiting[4096], taken[4096];
static size_t waits;
static long long added, synced;
static int syncing;
static long each;
static long long *took;

static void *caller(void *place)
{
    long long *mine = place;
    for (long i = 0; i < each; i++) {
        long long start = now(CLOCK_MONOTONIC);
        pthread_mutex_lock(&lock);
        long long ticket = ++added;
        waiting[waits++] = record(start + 36000000000000LL, ticket);
        while (synced < ticket) {
            if (syncing) {
                pthread_cond_wait(&changed, &lock);
                continue;
            }
            syncing = 1;
            size_t count = waits;
            long long upto = added;
            memcpy(taken, waiting, count * sizeof *waiting);
            waits = 0;
            pthread_mutex_unlock(&lock);
            keep(taken, count);
            pthread_mutex_lock(&lock);
            for (size_t n = 0; n < count; n++)
                push(taken[n].due, taken[n].number);
            synced = upto;
            syncing = 0;
            pthread_cond_broadcast(&changed);
        }
        pthread_mutex_unlock(&lock);
        mine[i] = now(CLOCK_MONOTONIC) - start;
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static void single(int count)
{
    pthread_t threads[1024];
    took = calloc(count * each, sizeof *took);
    long long start = now(CLOCK_MONOTONIC);
    for (int i = 0; i < count; i++)
        if (pthread_create(threads + i, NULL, caller, took + i * each))
            exit(1);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    double seconds = (now(CLOCK_MONOTONIC) - start) / 1e9;
    qsort(took, count * each, sizeof *took, by_size);
    printf("%.6f %.9f\n", seconds, took[count * each / 2] / 1e9);
}

static void restart(void)
{
    static struct record batch[BATCH];
    for (ssize_t n; (n = read(file, batch, sizeof batch)) > 0;)
        for (size_t i = 0; i < n / sizeof *batch; i++)
            push(batch[i].due, batch[i].number);
}

static void drain(void)
{
    static struct record done[FEW];
    while (used) {
        size_t count = 0;
        while (used && count < FEW)
            done[count++] = record(0, pop().number);
        keep(done, count);
    }
}

static void late(long count)
{
    static struct record batch[BATCH];
    long long start = now(CLOCK_REALTIME) + 1000000000LL;
    for (long i = 0; i < count; i++) {
        batch[i % BATCH] = record(start + i * (1000000000LL / count), i);
        push(batch[i % BATCH].due, i);
        if (i % BATCH == BATCH - 1 || i == count - 1)
            keep(batch, i % BATCH + 1);
    }
    while (used) {
        struct timespec until = {.tv_sec = heap[0].due / 1000000000LL, .tv_nsec = heap[0].due % 1000000000LL};
        clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL);
        long long due[FEW], time = now(CLOCK_REALTIME);
        size_t ready = 0;
        while (used && ready < FEW && heap[0].due <= time) {
            struct entry first = pop();
            due[ready] = first.due;
            batch[ready++] = record(0, first.number);
        }
        keep(batch, ready);
        time = now(CLOCK_REALTIME);
        for (size_t i = 0; i < ready; i++)
            printf("%.3f\n", (time - due[i]) / 1e6);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    long count = argc > 3 ? atol(argv[3]) : 0;
    if (argc < 3 || (file = open(argv[1], O_RDWR | O_CREAT | O_APPEND, 0600)) < 0)
        return 2;
    long long start = now(CLOCK_MONOTONIC);
    if (!strcmp(what, "bulk")) {
        bulk(count);
    } else if (!strcmp(what, "single") && argc > 4 && count <= 1024) {
        each = atol(argv[4]);
        single(count);
    } else if (!strcmp(what, "restart") || !strcmp(what, "drain")) {
        restart();
        size_t found = used;
        if (*what == 'd') {
            start = now(CLOCK_MONOTONIC);
            drain();
        }
        printf("%.6f %zu\n", (now(CLOCK_MONOTONIC) - start) / 1e9, found);
    } else if (!strcmp(what, "late")) {
        late(count);
    } else {
        return 2;
    }
    return 0;
}
