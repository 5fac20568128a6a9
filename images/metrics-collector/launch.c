/* The first process of a trial's container: starts the user's program and tells the collector how it ends.
 *
 *   launch -i TARGET                                    copy this file to TARGET and end
 *   launch -d DIRECTORY [OPTIONS] -- PROGRAM ARGUMENT...
 *
 *   -d DIRECTORY  shared with the collector; holds `state` and `orders`
 *   -o FILE       copy standard output and standard error to this file, too
 *   -w SECONDS    after a program that ended well, wait so long for the collector
 *   -g SECONDS    grace period of the pod
 *   -r DIRECTORY  make this tree readable for all users when the program has ended
 *
 * It is static and needs nothing of the image: no shell, no library, no file.
 *
 * Laws:
 * - The program has the arguments, the environment, the directory, the descriptors, the umask and the signals that it
 *   would have without us. It leads a process group of its own.
 * - Every signal that can be passed on is. Zombies are reaped. We end as the program did: with its exit code or, where
 *   the kernel lets us, by its signal (the first process of a container cannot end by one: 128 and its number then).
 * - The container's log has every byte at once. The file has every byte of each stream in order, in whole lines: a line
 *   waits for its end (`\n`, `\r`) unless it is longer than LINE_BYTES. Output that was printed before the program's
 *   end is in both before `state` tells of the end; all of it or, if the file cannot be written, no success.
 * - `state` is one record, `RUN WORD CODE`: of a number that is new at every start, and running, completed, stopped or
 *   failed. It is overwritten in place, which needs no room on a full disk.
 * - `orders` is a named pipe that we alone read, so that a writer who finds no reader knows that we are gone. `stop RUN`
 *   ends the program early: SIGTERM to its process group, SIGKILL after the grace period, and success. `done RUN` ends
 *   the wait. Orders for another run are for one that is over. Of the grace period we wait a quarter after SIGTERM, the collector has the rest; a program whose pod is ended
 *   before its readings are stored counts as ended by the signal, so that its job runs it again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 64 << 10, RECORD_BYTES = 64, PATH_BYTES = 4096, CANNOT_RUN = 125 };

struct stream {
    int in, out;
    size_t held; /* bytes of a line that has not ended */
    char bytes[LINE_BYTES];
};

static struct stream streams[2] = {{.in = -1, .out = STDOUT_FILENO}, {.in = -1, .out = STDERR_FILENO}};
static struct stream *half_line; /* whose line at the end of the file has not ended */
static int file = -1, state = -1, file_error;
static long long run;

static void die(const char *what, const char *name) {
    dprintf(STDERR_FILENO, "katib: cannot %s %s: %s\n", what, name, strerror(errno));
    _exit(CANNOT_RUN);
}

static long long clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static long long now_ms(void) { return clock_ns(CLOCK_MONOTONIC) / 1000000; }

static int write_all(int to, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t written = write(to, bytes, count);
        if (written < 0 && errno == EAGAIN) /* somebody else made the descriptor non-blocking */
            poll(&(struct pollfd){.fd = to, .events = POLLOUT}, 1, -1);
        else if (written < 0 && errno != EINTR)
            return -1;
        else if (written > 0)
            bytes += written, count -= (size_t)written;
    }
    return 0;
}

static int install(const char *target) {
    char draft[PATH_BYTES];
    snprintf(draft, sizeof draft, "%s.%d", target, getpid());
    int from = open("/proc/self/exe", O_RDONLY), to = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    ssize_t copied = from < 0 || to < 0 ? -1 : 1;
    while (copied > 0)
        copied = sendfile(to, from, NULL, 1 << 30);
    if (copied < 0 || fchmod(to, 0755) != 0 || close(to) != 0 || rename(draft, target) != 0)
        die("write", target);
    return 0;
}

/* Move bytes to the file. What is no whole line may be continued by its own stream alone. */
static void store(struct stream *stream, size_t count) {
    if (count == 0)
        return;
    int joins = half_line != NULL && half_line != stream;
    if (!file_error && ((joins && write_all(file, "\n", 1) != 0) || write_all(file, stream->bytes, count) != 0)) {
        file_error = errno;
        dprintf(STDERR_FILENO, "katib: cannot write the output for the collector: %s\n", strerror(file_error));
    }
    half_line = memchr("\n\r", stream->bytes[count - 1], 2) ? NULL : stream;
    stream->held -= count;
    memmove(stream->bytes, stream->bytes + count, stream->held);
}

/* Read once, at most so many bytes; return how many. A stream that has ended is closed. */
static size_t copy(struct stream *stream, size_t most) {
    size_t room = LINE_BYTES - stream->held;
    char *begin = stream->bytes + stream->held;
    ssize_t count = read(stream->in, begin, most < room ? most : room);
    if (count <= 0) {
        if (count == 0 || errno != EINTR)
            close(stream->in), stream->in = -1;
        return 0;
    }
    if (stream->out >= 0 && write_all(stream->out, begin, (size_t)count) != 0)
        stream->out = -1; /* nobody reads the container's log any more */
    size_t end = stream->held += (size_t)count;
    while (end > 0 && !memchr("\n\r", stream->bytes[end - 1], 2))
        end--;
    store(stream, end > 0 ? end : stream->held == LINE_BYTES ? LINE_BYTES : 0);
    return (size_t)count;
}

/* Take what the program has left in its pipes; processes that it left behind may go on writing. */
static void drain(struct stream *stream) {
    int waiting = 0;
    if (stream->in >= 0 && ioctl(stream->in, FIONREAD, &waiting) != 0)
        waiting = 0;
    for (size_t left = (size_t)waiting; left > 0 && stream->in >= 0;)
        left -= copy(stream, left);
    store(stream, stream->held);
}

static void tell(const char *word, int code) {
    char text[RECORD_BYTES - 1], record[RECORD_BYTES + 1];
    snprintf(text, sizeof text, "%lld %s %d", run, word, code);
    snprintf(record, sizeof record, "%-*s\n", RECORD_BYTES - 1, text);
    if (pwrite(state, record, RECORD_BYTES, 0) != RECORD_BYTES)
        dprintf(STDERR_FILENO, "katib: cannot tell the collector: %s\n", strerror(errno));
}

static int make_readable(const char *path, const struct stat *status, int type, struct FTW *place) {
    mode_t mode = status->st_mode | 0444 | (S_ISDIR(status->st_mode) || status->st_mode & 0111 ? 0111 : 0);
    (void)place;
    if (type != FTW_SL && type != FTW_NS && mode != status->st_mode)
        (void)!chmod(path, mode & 07777);
    return 0;
}

static void open_file(const char *path) {
    char last = '\n';
    if ((file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) < 0)
        die("write", path);
    off_t size = lseek(file, 0, SEEK_END); /* an earlier run may have left half a line */
    if (size > 0 && pread(file, &last, 1, size - 1) == 1 && last != '\n' && write_all(file, "\n", 1) != 0)
        die("write", path);
}

/* Begin a run: nobody can take a word of an earlier one for its own. Return where orders come from. */
static int open_orders(const char *directory) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/orders", directory);
    unlink(path);
    int orders = mkfifo(path, 0666) == 0 ? open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
    if (orders < 0)
        die("make", path);
    snprintf(path, sizeof path, "%s/state", directory);
    if ((state = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) < 0)
        die("write", path);
    run = clock_ns(CLOCK_REALTIME);
    return orders;
}

static pid_t start(char **program, const sigset_t *signals, mode_t mask) {
    int pipes[2][2];
    for (int i = 0; i < 2 && file >= 0; i++)
        if (pipe2(pipes[i], O_CLOEXEC) != 0)
            die("make", "a pipe");
    pid_t child = fork();
    if (child < 0)
        die("start", program[0]);
    if (child == 0) {
        for (int i = 0; i < 2 && file >= 0; i++)
            dup2(pipes[i][1], streams[i].out);
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        umask(mask);
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, signals, NULL);
        execvp(program[0], program);
        int is_missing = errno == ENOENT;
        dprintf(STDERR_FILENO, "katib: cannot run %s: %s\n", program[0], is_missing ? "not found" : strerror(errno));
        _exit(is_missing ? 127 : 126);
    }
    setpgid(child, child); /* by whoever comes first */
    for (int i = 0; i < 2 && file >= 0; i++)
        close(pipes[i][1]), streams[i].in = pipes[i][0];
    return child;
}

/* Reap what has ended; return whether the program has. */
static int reap(pid_t child, int *status) {
    int ended = 0, how;
    for (pid_t pid; (pid = waitpid(-1, &how, WNOHANG)) > 0;)
        if (pid == child)
            ended = 1, *status = how;
    return ended;
}

/* Run the program to its end and wait for the collector. Return the exit code; `status` is the program's own. */
static int attend(pid_t child, int signals, int orders, long long patience, long long grace, const char *shared, int *status) {
    int code = 0, has_ended = 0, is_stopped = 0, is_told = 0;
    long long deadline = -1; /* of a program that is stopped, then of the wait */
    char done[RECORD_BYTES], stop[RECORD_BYTES];
    snprintf(done, sizeof done, "done %lld\n", run);
    snprintf(stop, sizeof stop, "stop %lld\n", run);
    for (;;) {
        long long left = deadline < 0 ? 60000 : deadline - now_ms();
        if (left <= 0 && has_ended)
            return is_told ? 128 + SIGTERM : code;
        if (left <= 0)
            kill(-child, SIGKILL), left = 60000, deadline = -1;
        struct pollfd ready[] = {{signals, POLLIN, 0}, {orders, POLLIN, 0}, {streams[0].in, POLLIN, 0}, {streams[1].in, POLLIN, 0}};
        poll(ready, 4, left < 60000 ? (int)left : 60000);
        for (struct signalfd_siginfo one; read(signals, &one, sizeof one) == sizeof one;) {
            int number = (int)one.ssi_signo;
            is_told |= number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
            if (number != SIGCHLD && !has_ended)
                kill(child, number);
        }
        char order[256] = "";
        if (read(orders, order, sizeof order - 1) > 0) {
            if (has_ended && strstr(order, done) != NULL)
                return code;
            if (!has_ended && !is_stopped && strstr(order, stop) != NULL) {
                kill(-child, SIGTERM);
                is_stopped = 1, deadline = now_ms() + grace;
            }
        }
        for (int i = 0; i < 2; i++)
            if (ready[2 + i].revents && streams[i].in >= 0)
                copy(&streams[i], LINE_BYTES);
        if (reap(child, status)) {
            drain(&streams[0]), drain(&streams[1]);
            if (is_stopped)
                dprintf(STDOUT_FILENO, "Training Container was Early Stopped\n");
            else
                code = WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status);
            if (code == 0 && file_error)
                code = CANNOT_RUN;
            if (shared != NULL)
                nftw(shared, make_readable, 16, FTW_PHYS);
            tell(code ? "failed" : is_stopped ? "stopped" : "completed", code);
            if (code != 0 || patience < 0)
                return code;
            has_ended = 1, deadline = now_ms() + patience;
        }
        if (has_ended && is_told && deadline > now_ms() + grace / 4)
            deadline = now_ms() + grace / 4;
    }
}

int main(int count, char **words) {
    const char *directory = NULL, *shared = NULL, *output = NULL;
    long long patience = -1, grace = 30000;
    mode_t mask = umask(0);
    for (int option; (option = getopt(count, words, "+i:d:o:w:g:r:")) != -1;) {
        switch (option) {
        case 'i': return install(optarg);
        case 'd': directory = optarg; break;
        case 'o': output = optarg; break;
        case 'w': patience = (long long)(1000 * atof(optarg)); break;
        case 'g': grace = (long long)(1000 * atof(optarg)); break;
        case 'r': shared = optarg; break;
        default: return CANNOT_RUN;
        }
    }
    errno = EINVAL;
    if (directory == NULL || optind == count)
        die("run", "without -d DIRECTORY and a program");
    sigset_t before, taken;
    sigfillset(&taken);
    for (const int *fault = (int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPIPE, 0}; *fault; fault++)
        sigdelset(&taken, *fault);
    sigprocmask(SIG_BLOCK, &taken, &before);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* a program's orphans are ours, also where we are not process 1 */
    int signals = signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC), orders = open_orders(directory), status = 0;
    if (output != NULL)
        open_file(output);
    tell("running", 0);
    int code = attend(start(words + optind, &before, mask), signals, orders, patience, grace, shared, &status);
    if (WIFSIGNALED(status) && code == 128 + WTERMSIG(status)) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(code - 128, SIG_DFL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        raise(code - 128);
    }
    _exit(code);
}
