/* The floor of a shell call: the least that any program must do to answer one over MCP on stdio.
 *
 * It reads one JSON message a line (initialize, tools/list, tools/call of `shell`), starts /bin/sh -c,
 * captures both streams through pipes, waits, and answers. Calls overlap: one poll loop serves them all.
 * It has no limits, no log, no tree, no memory of anything. Whatever a real tool does more costs more than this.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MOST_CALLS = 256 };

struct bytes {
    char *at;
    size_t used, room;
};

struct call {
    int live;
    char id[64];
    pid_t pid;
    int fd[2];            /* stdout and stderr of the child, -1 once closed */
    struct bytes out[2];
};

static struct call calls[MOST_CALLS];
static struct bytes input;

static void need(struct bytes *b, size_t more)
{
    if (b->used + more <= b->room)
        return;
    while (b->room < b->used + more)
        b->room = b->room ? b->room * 2 : 4096;
    b->at = realloc(b->at, b->room);
    if (!b->at)
        abort();
}

static void add(struct bytes *b, const char *text, size_t length)
{
    need(b, length);
    memcpy(b->at + b->used, text, length);
    b->used += length;
}

static void add_text(struct bytes *b, const char *text) { add(b, text, strlen(text)); }

/* Text as the inside of a JSON string. Bytes above 127 pass as they are. */
static void add_quoted(struct bytes *b, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = text[i];
        char escape[8];
        if (c == '"' || c == '\\') {
            escape[0] = '\\';
            escape[1] = c;
            add(b, escape, 2);
        } else if (c == '\n') {
            add(b, "\\n", 2);
        } else if (c < 32) {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            add(b, escape, 6);
        } else {
            add(b, text + i, 1);
        }
    }
}

static void send_all(const struct bytes *b)
{
    for (size_t sent = 0; sent < b->used;) {
        ssize_t n = write(1, b->at + sent, b->used - sent);
        if (n < 0 && errno != EINTR)
            exit(0);
        if (n > 0)
            sent += n;
    }
}

/* The end of the JSON value that starts at `at`. */
static const char *skip_value(const char *at)
{
    int depth = 0, quoted = 0;
    for (; *at; at++) {
        if (quoted) {
            if (*at == '\\' && at[1])
                at++;
            else if (*at == '"') {
                quoted = 0;
                if (!depth)
                    return at + 1;
            }
        } else if (*at == '"') {
            quoted = 1;
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if (*at == '}' || *at == ']') {
            if (!depth)
                return at;
            if (!--depth)
                return at + 1;
        } else if (*at == ',' && !depth) {
            return at;
        }
    }
    return at;
}

/* The value of a member of the object that starts at `at`, or NULL. */
static const char *member(const char *at, const char *name)
{
    size_t length = strlen(name);
    if (!at || *at != '{')
        return NULL;
    at++;
    for (;;) {
        while (*at == ' ' || *at == ',')
            at++;
        if (*at != '"')
            return NULL;
        const char *key = at + 1;
        at = skip_value(at);
        int same = (size_t)(at - 1 - key) == length && !memcmp(key, name, length);
        while (*at == ' ' || *at == ':')
            at++;
        if (same)
            return at;
        at = skip_value(at);
    }
}

/* A JSON string as a C string that the caller frees. Only the escapes a command needs. */
static char *text_of(const char *at)
{
    if (!at || *at != '"')
        return NULL;
    const char *end = skip_value(at) - 1;
    char *text = malloc(end - at), *to = text;
    for (at++; at < end; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        at++;
        if (*at == 'u') {
            unsigned code = 0;
            sscanf(at + 1, "%4x", &code);
            *to++ = (char)code;
            at += 4;
        } else {
            *to++ = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at == 'r' ? '\r' : *at;
        }
    }
    *to = 0;
    return text;
}

static void answer(const char *id, const char *result)
{
    struct bytes line = {0};
    add_text(&line, "{\"jsonrpc\":\"2.0\",\"id\":");
    add_text(&line, id);
    add_text(&line, ",\"result\":");
    add_text(&line, result);
    add_text(&line, "}\n");
    send_all(&line);
    free(line.at);
}

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

static void read_input(void)
{
    need(&input, 65537);
    ssize_t n = read(0, input.at + input.used, 65536);
    if (n <= 0)
        exit(0);
    input.used += n;
    char *line = input.at, *end = input.at + input.used, *stop;
    while ((stop = memchr(line, '\n', end - line))) {
        *stop = 0;
        take(line);
        line = stop + 1;
    }
    input.used = end - line;
    memmove(input.at, line, input.used);
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
            read_input();
    }
}
