/* A process that speaks to the daemon in ways that hide who it is. The tests of identity build and run it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(9);
    }
}

/* The whole content of a file; a named pipe is read until its writer closes it. */
static size_t content(const char *path, char *into, size_t room) {
    int fd = open(path, O_RDONLY);
    check(fd >= 0, path);
    size_t length = 0;
    ssize_t count;
    while ((count = read(fd, into + length, room - length)) > 0) length += count;
    close(fd);
    return length;
}

static void send_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t count = write(fd, bytes, length);
        check(count > 0, "write");
        bytes += count;
        length -= count;
    }
}

static void copy_to(int from, int to) {
    char bytes[4096];
    ssize_t count;
    while ((count = read(from, bytes, sizeof bytes)) > 0) send_all(to, bytes, count);
}

static int connect_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    check(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    return fd;
}

static int connect_tcp(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    return fd;
}

/* Connects, says its own number, and ends. A child goes on with the connection. */
static void leave(char **args) {
    static char request[1 << 16];
    int fd = connect_unix(args[0]);
    int number = open(args[1], O_WRONLY);
    check(number >= 0, args[1]);
    dprintf(number, "%d\n", getpid());
    close(number);
    if (fork() != 0) _exit(0);
    size_t length = content(args[2], request, sizeof request);
    send_all(fd, request, length);
    int out = open(args[3], O_WRONLY);
    check(out >= 0, args[3]);
    copy_to(fd, out);
}

/* Connects, says what is in a file, and prints whether anything is answered before the connection is closed. */
static void say(char **args) {
    static char message[1 << 12];
    size_t length = content(args[1], message, sizeof message);
    int fd = connect_unix(args[0]);
    char byte;
    /* Where the connection is closed at once, this may come too late. */
    if (write(fd, message, length) < 0) check(errno == EPIPE, "write");
    puts(read(fd, &byte, 1) > 0 ? "accepted" : "refused");
}

/* A process that has the given number. */
static void take(char **args) {
    pid_t number = atoi(args[0]);
    struct clone_args clone = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};
    long pid = syscall(SYS_clone3, &clone, sizeof clone);
    check(pid >= 0, "clone3");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    puts("taken");
    fflush(stdout);
    pause();
}

/* Whether an answer waits in the connection that begins at this port. */
static int has_answer(int port) {
    FILE *table = fopen("/proc/net/tcp", "r");
    char line[512];
    int found = 0;
    while (fgets(line, sizeof line, table)) {
        unsigned local, remote, here, there, state, out, in;
        if (sscanf(line, " %*d: %x:%x %x:%x %x %x:%x", &local, &here, &remote, &there, &state, &out, &in) == 7 &&
            (int)here == port && in > 0)
            found = 1;
    }
    fclose(table);
    return found;
}

/* Sends a request and puts its connection into a message that nobody receives until the answer has come. */
static void park(char **args) {
    static char request[1 << 16];
    size_t length = content(args[1], request, sizeof request);
    int fd = connect_tcp(args[0]), pair[2];
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    check(getsockname(fd, (struct sockaddr *)&own, &size) == 0, "getsockname");
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    /* The kernel keeps a small request back for a moment, so the connection is parked before it leaves. */
    int on = 1;
    check(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on) == 0, "TCP_CORK");
    send_all(fd, request, length);
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    check(sendmsg(pair[0], &message, 0) == 1, "sendmsg");
    close(fd);
    while (!has_answer(ntohs(own.sin_port))) usleep(1000);
    check(recvmsg(pair[1], &message, 0) == 1, "recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    copy_to(fd, 1);
}

/* Lets nobody look into it. */
static void hide(void) {
    prctl(PR_SET_DUMPABLE, 0);
    puts("hidden");
    fflush(stdout);
    pause();
}

/* Like an ssh server that forwards a connection for its user: it was root, and nobody can look into it. */
static void tunnel(char **args) {
    static char request[1 << 16];
    if (args[2]) {
        int group = open(args[2], O_WRONLY);
        check(group >= 0 && write(group, "0", 1) == 1, args[2]);
        close(group);
        check(setgid(65534) == 0 && setuid(65534) == 0, "setuid");
    }
    prctl(PR_SET_DUMPABLE, 0);
    size_t length = content(args[1], request, sizeof request);
    int fd = connect_tcp(args[0]);
    send_all(fd, request, length);
    copy_to(fd, 1);
}

int main(int count, char **args) {
    signal(SIGPIPE, SIG_IGN);
    if (count < 2) return 2;
    if (!strcmp(args[1], "leave")) leave(args + 2);
    if (!strcmp(args[1], "say")) say(args + 2);
    if (!strcmp(args[1], "take")) take(args + 2);
    if (!strcmp(args[1], "park")) park(args + 2);
    if (!strcmp(args[1], "hide")) hide();
    if (!strcmp(args[1], "tunnel")) tunnel(args + 2);
    return 0;
}
