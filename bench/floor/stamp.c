/* stamp FIFO MICROSECONDS: for every byte that comes on the fifo it waits that long, and then writes a line with the
 * time of the monotonic clock in nanoseconds, read right before the write. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int bell;
    if (argc < 3 || (bell = open(argv[1], O_RDWR)) < 0)
        return 2;
    long wait = atol(argv[2]) * 1000;
    struct timespec pause = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000}, now;
    if (write(1, "ready\n", 6) != 6)
        return 1;
    for (char byte; read(bell, &byte, 1) == 1;) {
        char line[40];
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        int length = snprintf(line, sizeof line, "at %lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
        if (write(1, line, length) != length)
            return 1;
    }
    return 0;
}
