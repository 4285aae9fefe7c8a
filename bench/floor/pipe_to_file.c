/* pipe_to_file FILE COMMAND ARG...: the floor of keeping output. Runs the command with its stdout in a pipe
 * and copies that pipe to the file, 64 KiB at a time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static char page[65536];
    int ends[2], file, status = 1;
    if (argc < 3 || pipe2(ends, O_CLOEXEC) || (file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) < 0)
        return 2;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execv(argv[2], argv + 2);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], page, sizeof page)) > 0;)
        for (ssize_t sent = 0, n; sent < got; sent += n)
            if ((n = write(file, page + sent, got - sent)) < 0)
                return 3;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
