/* The floor of a terminal session: the least that any program must do to keep terminals over MCP on stdio.
 *
 * One tool, `terminal_session`, with the actions start, read_output, send_input, list and kill. A session is a shell
 * on a pty; its unread bytes wait in memory. A read that finds no whole line waits in the one loop, which sleeps in
 * epoll; with `until`, a plain piece of text, it waits for that. It has no log, no screen, no tree, no limits, and
 * forgets everything when it ends. Whatever a real tool does more costs more than this.
 */
#define _GNU_SOURCE
#include "json.h"
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum { MOST_SESSIONS = 4096, STDIN = MOST_SESSIONS };

struct session {
    int live, fd;
    pid_t pid;
    struct bytes unread;
    char reader[64];    /* the id of the call that waits for output, or empty */
    char *until;        /* what it waits for, or NULL for a whole line */
};

static struct session sessions[MOST_SESSIONS];
static int events;

static void say(const char *id, const char *session, const char *text, size_t length)
{
    struct bytes quoted = {0}, result = {0};
    add_quoted(&quoted, text, length);
    add_text(&result, "{\"content\":[{\"type\":\"text\",\"text\":\"");
    add(&result, quoted.at, quoted.used);
    add_text(&result, "\"}],\"structuredContent\":{\"text\":\"");
    add(&result, quoted.at, quoted.used);
    add_text(&result, "\",\"session_id\":\"");
    add_text(&result, session);
    add(&result, "\"}}", 4);
    answer(id, result.at);
    free(quoted.at);
    free(result.at);
}

static void name_of(const struct session *session, char name[32]) { snprintf(name, 32, "%d", (int)(session - sessions)); }

/* Answers the waiting reader if there is something for it. */
static void hand_out(struct session *session)
{
    if (!*session->reader)
        return;
    const char *wanted = session->until ? session->until : "\n";
    if (!memmem(session->unread.at, session->unread.used, wanted, strlen(wanted)) && session->fd >= 0)
        return;
    char name[32];
    name_of(session, name);
    say(session->reader, name, session->unread.at, session->unread.used);
    session->unread.used = 0;
    *session->reader = 0;
    free(session->until);
    session->until = NULL;
}

static void start(const char *id, const char *command)
{
    struct session *session = sessions;
    while (session < sessions + MOST_SESSIONS && session->live)
        session++;
    if (session == sessions + MOST_SESSIONS)
        exit(1);
    struct winsize size = {.ws_row = 40, .ws_col = 120};
    session->pid = forkpty(&session->fd, NULL, NULL, &size);
    if (session->pid < 0)
        exit(1);
    if (session->pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    fcntl(session->fd, F_SETFD, FD_CLOEXEC);
    fcntl(session->fd, F_SETFL, O_NONBLOCK);
    session->live = 1;
    session->unread.used = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = session - sessions};
    epoll_ctl(events, EPOLL_CTL_ADD, session->fd, &event);
    char name[32], text[64];
    name_of(session, name);
    say(id, name, text, snprintf(text, sizeof text, "Session '%s' started", name));
}

static void stop(struct session *session)
{
    if (session->fd >= 0)
        close(session->fd);
    session->fd = -1;
    hand_out(session);
}

static void type(const struct session *session, const char *text)
{
    for (size_t sent = 0, length = strlen(text); sent < length;) {
        ssize_t n = write(session->fd, text + sent, length - sent);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return;
        if (n > 0)
            sent += n;
    }
}

static void list(const char *id)
{
    struct bytes text = {0};
    for (struct session *session = sessions; session < sessions + MOST_SESSIONS; session++)
        if (session->live) {
            char name[40];
            add(&text, name, snprintf(name, sizeof name, "%d running\n", (int)(session - sessions)));
        }
    say(id, "", text.at, text.used);
    free(text.at);
}

static void act(const char *id, const char *arguments)
{
    char *action = text_of(member(arguments, "action"));
    char *name = text_of(member(arguments, "session_id"));
    unsigned number = name ? (unsigned)atoi(name) : MOST_SESSIONS;
    struct session *session = number < MOST_SESSIONS && sessions[number].live ? sessions + number : NULL;
    if (action && !strcmp(action, "start")) {
        char *command = text_of(member(arguments, "command"));
        start(id, command ? command : "");
        free(command);
    } else if (action && !strcmp(action, "list")) {
        list(id);
    } else if (!action || !session) {
        answer(id, "{\"content\":[],\"isError\":true}");
    } else if (!strcmp(action, "read_output")) {
        snprintf(session->reader, sizeof session->reader, "%s", id);
        session->until = text_of(member(arguments, "until"));
        hand_out(session);
    } else if (!strcmp(action, "send_input")) {
        char *input = text_of(member(arguments, "input"));
        type(session, input ? input : "");
        free(input);
        say(id, name, "", 0);
    } else {
        kill(session->pid, SIGKILL);
        waitpid(session->pid, NULL, 0);
        stop(session);
        session->live = 0;
        say(id, name, "killed", 6);
    }
    free(action);
    free(name);
}

static void take(char *line)
{
    char id[64] = "";
    const char *at = member(line, "id");
    if (at)
        snprintf(id, sizeof id, "%.*s", (int)(skip_value(at) - at), at);
    char *method = text_of(member(line, "method"));
    if (method && *id) {
        if (!strcmp(method, "initialize"))
            answer(id, "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},"
                       "\"serverInfo\":{\"name\":\"floor\",\"version\":\"1\"}}");
        else if (!strcmp(method, "tools/list"))
            answer(id, "{\"tools\":[{\"name\":\"terminal_session\",\"inputSchema\":{\"type\":\"object\"}}]}");
        else if (!strcmp(method, "tools/call"))
            act(id, member(member(line, "params"), "arguments"));
        else
            answer(id, "{}");
    }
    free(method);
}

static void read_terminal(struct session *session)
{
    need(&session->unread, 65536);
    ssize_t n = read(session->fd, session->unread.at + session->unread.used, 65536);
    if (n > 0) {
        session->unread.used += n;
        hand_out(session);
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
        stop(session);
    }
}

int main(void)
{
    events = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = STDIN}, ready[64];
    epoll_ctl(events, EPOLL_CTL_ADD, 0, &event);
    for (;;) {
        int count = epoll_wait(events, ready, 64, -1);
        for (int i = 0; i < count; i++)
            if (ready[i].data.u32 == STDIN)
                read_input(take);
            else if (sessions[ready[i].data.u32].fd >= 0)
                read_terminal(sessions + ready[i].data.u32);
    }
}
