/* flood BYTES: writes exactly that many bytes of numbered log-like lines to stdout, as fast as it can. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 1 << 18, WIDTH = 100 };

int main(int argc, char **argv)
{
    static char page[ROOM];
    unsigned long long left = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000000ULL, number = 0;
    while (left) {
        size_t used = 0;
        while (used + WIDTH <= ROOM && used < left) {
            char *line = page + used;
            memcpy(line, "2026-01-01T00:00:00Z INFO  worker[000] request 000000000000 handled GET /items/00000 200 in 4 ms ok\n", WIDTH);
            unsigned long long n = number++;
            for (int place = 58; place > 46; place--, n /= 10)
                line[place] = '0' + n % 10;
            line[WIDTH - 1] = '\n';
            used += WIDTH;
        }
        if (used > left)
            used = left;
        for (size_t sent = 0; sent < used;) {
            ssize_t n = write(1, page + sent, used - sent);
            if (n < 0 && errno != EINTR)
                return 1;
            if (n > 0)
                sent += n;
        }
        left -= used;
    }
    return 0;
}
