/* callers SOCKET CALLERS EACH REQUEST: the load of many clients, as little as a client can be.
 *
 * Opens so many connections to a unix socket. Each sends the bytes of the file REQUEST and waits for the whole answer
 * before it sends again, EACH times. Twelve `@` in the request become a number that no other request has. An answer is
 * HTTP with a content-length, or a line (Redis). Prints the seconds in all and the median of one answer, and ends with 1 if
 * an answer is not a good one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 65536, DIGITS = 12 };

struct caller {
    int fd;
    long left;
    long long sent_at;
    size_t used;
    char answer[MOST];
};

static char request[MOST];
static size_t length;
static char *place;
static unsigned long long number;
static long long *took;
static size_t answered;

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static void ask(struct caller *caller)
{
    if (place) {
        unsigned long long n = number++;
        for (int digit = DIGITS - 1; digit >= 0; digit--, n /= 10)
            place[digit] = '0' + n % 10;
    }
    caller->used = 0;
    caller->sent_at = now();
    if (write(caller->fd, request, length) != (ssize_t)length)
        fail("a request could not be sent at once");
}

/* 1 when the whole answer is there. */
static int whole(struct caller *caller)
{
    caller->answer[caller->used] = 0;
    if (strncmp(caller->answer, "HTTP/", caller->used < 5 ? caller->used : 5)) {
        if (*caller->answer == '-')
            fail(caller->answer);
        return caller->answer[caller->used - 1] == '\n';
    }
    char *body = strstr(caller->answer, "\r\n\r\n");
    if (!body)
        return 0;
    char *field = strcasestr(caller->answer, "content-length:");
    if (strncmp(caller->answer + 8, " 200", 4) || !field || field > body)
        fail(caller->answer);
    return caller->used >= (size_t)(body + 4 - caller->answer) + strtoul(field + 15, NULL, 10);
}

static int by_size(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    int count = atoi(argv[2]), file = open(argv[4], O_RDONLY), events = epoll_create1(0);
    long each = atol(argv[3]);
    length = read(file, request, sizeof request);
    place = memmem(request, length, "@@@@@@@@@@@@", DIGITS);
    struct caller *callers = calloc(count, sizeof *callers);
    took = calloc(count * each, sizeof *took);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
    for (int i = 0; i < count; i++) {
        callers[i].fd = socket(AF_UNIX, SOCK_STREAM, 0);
        callers[i].left = each;
        if (connect(callers[i].fd, (struct sockaddr *)&address, sizeof address))
            fail("nobody listens");
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = callers + i};
        epoll_ctl(events, EPOLL_CTL_ADD, callers[i].fd, &event);
    }
    long long start = now();
    for (int i = 0; i < count; i++)
        ask(callers + i);
    for (int open = count; open;) {
        struct epoll_event ready[64];
        int found = epoll_wait(events, ready, 64, -1);
        for (int i = 0; i < found; i++) {
            struct caller *caller = ready[i].data.ptr;
            ssize_t n = read(caller->fd, caller->answer + caller->used, MOST - 1 - caller->used);
            if (n <= 0)
                fail("a connection was closed");
            caller->used += n;
            if (!whole(caller))
                continue;
            took[answered++] = now() - caller->sent_at;
            if (--caller->left)
                ask(caller);
            else {
                close(caller->fd);
                open--;
            }
        }
    }
    double seconds = (now() - start) / 1e9;
    qsort(took, answered, sizeof *took, by_size);
    printf("%.6f %.9f\n", seconds, took[answered / 2] / 1e9);
}
