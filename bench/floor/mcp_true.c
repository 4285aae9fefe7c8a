/* The floor of a shell call: the least that any program must do to answer one over MCP on stdio.
 *
 * It reads one JSON message a line (initialize, tools/list, tools/call of `shell`), starts /bin/sh -c,
 * captures both streams through pipes, waits, and answers. Calls overlap: one poll loop serves them all.
 * It has no limits, no log, no tree, no memory of anything. Whatever a real tool does more costs more than this.
 */
#define _GNU_SOURCE
#include "json.h"
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

enum { MOST_CALLS = 256 };

struct call {
    int live;
    char id[64];
    pid_t pid;
    int fd[2];            /* stdout and stderr of the child, -1 once closed */
    struct bytes out[2];
};

static struct call calls[MOST_CALLS];

static void begin(const char *id, const char *command)
{
    struct call *call = calls;
    while (call < calls + MOST_CALLS && call->live)
        call++;
    if (call == calls + MOST_CALLS)
        exit(1);
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
        exit(1);
    posix_spawn_file_actions_t act;
    posix_spawn_file_actions_init(&act);
    posix_spawn_file_actions_addopen(&act, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&act, out[1], 1);
    posix_spawn_file_actions_adddup2(&act, err[1], 2);
    char *argv[] = {"sh", "-c", (char *)command, NULL};
    if (posix_spawn(&call->pid, "/bin/sh", &act, NULL, argv, environ))
        exit(1);
    posix_spawn_file_actions_destroy(&act);
    close(out[1]);
    close(err[1]);
    call->live = 1;
    snprintf(call->id, sizeof call->id, "%s", id);
    call->fd[0] = out[0];
    call->fd[1] = err[0];
    call->out[0].used = call->out[1].used = 0;
}

static void finish(struct call *call)
{
    int status = 0;
    waitpid(call->pid, &status, 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    char number[32];
    snprintf(number, sizeof number, "%d", code);
    struct bytes text = {0}, result = {0};
    add_text(&text, "STATUS: ");
    add_text(&text, code ? "ERROR" : "SUCCESS");
    add_text(&text, "\\nRETURN_CODE: ");
    add_text(&text, number);
    add_text(&text, "\\nSTDOUT:\\n");
    add_quoted(&text, call->out[0].at, call->out[0].used);
    add_text(&text, "\\nSTDERR:\\n");
    add_quoted(&text, call->out[1].at, call->out[1].used);
    add_text(&result, "{\"content\":[{\"type\":\"text\",\"text\":\"");
    add(&result, text.at, text.used);
    add_text(&result, "\"}],\"structuredContent\":{\"text\":\"");
    add(&result, text.at, text.used);
    add_text(&result, "\",\"exit_code\":");
    add_text(&result, number);
    add(&result, "}}", 3);
    answer(call->id, result.at);
    free(text.at);
    free(result.at);
    call->live = 0;
}

static void take(char *line)
{
    char id[64] = "";
    const char *at = member(line, "id");
    if (at)
        snprintf(id, sizeof id, "%.*s", (int)(skip_value(at) - at), at);
    char *method = text_of(member(line, "method"));
    if (!method || !*id) {
        free(method);
        return;
    }
    if (!strcmp(method, "initialize")) {
        answer(id, "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},"
                   "\"serverInfo\":{\"name\":\"floor\",\"version\":\"1\"}}");
    } else if (!strcmp(method, "tools/list")) {
        answer(id, "{\"tools\":[{\"name\":\"shell\",\"inputSchema\":{\"type\":\"object\","
                   "\"properties\":{\"command\":{\"type\":\"string\"}},\"required\":[\"command\"]}}]}");
    } else if (!strcmp(method, "tools/call")) {
        char *command = text_of(member(member(member(line, "params"), "arguments"), "command"));
        if (command)
            begin(id, command);
        else
            answer(id, "{\"content\":[],\"isError\":true}");
        free(command);
    } else {
        answer(id, "{}");
    }
    free(method);
}

static void read_child(struct call *call, int stream)
{
    struct bytes *out = &call->out[stream];
    need(out, 65536);
    ssize_t n = read(call->fd[stream], out->at + out->used, 65536);
    if (n > 0) {
        out->used += n;
    } else if (n == 0 || errno != EINTR) {
        close(call->fd[stream]);
        call->fd[stream] = -1;
        if (call->fd[!stream] < 0)
            finish(call);
    }
}

int main(void)
{
    for (;;) {
        struct pollfd ask[1 + 2 * MOST_CALLS] = {{.fd = 0, .events = POLLIN}};
        struct { struct call *call; int stream; } whose[1 + 2 * MOST_CALLS];
        int count = 1;
        for (struct call *call = calls; call < calls + MOST_CALLS; call++)
            for (int stream = 0; call->live && stream < 2; stream++)
                if (call->fd[stream] >= 0) {
                    ask[count] = (struct pollfd){.fd = call->fd[stream], .events = POLLIN};
                    whose[count].call = call;
                    whose[count++].stream = stream;
                }
        if (poll(ask, count, -1) < 0)
            continue;
        for (int i = 1; i < count; i++)
            if (ask[i].revents)
                read_child(whose[i].call, whose[i].stream);
        if (ask[0].revents)
            read_input(take);
    }
}
