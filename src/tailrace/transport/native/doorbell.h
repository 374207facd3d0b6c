/* A doorbell: something to sleep on that another process can ring by name.
 *
 * It is a datagram socket in Linux's abstract namespace. That gives three things at once: it can
 * stand in an epoll beside any other socket, a process needs only the name to ring it, and it is
 * gone the moment its owner is, however the owner ends. A rung bell stays rung until it is cleared,
 * so a ring before the sleep is never lost; ringing a rung bell does nothing.
 *
 * Whoever can reach the name can ring it. A needless ring costs the owner one look at its ring.
 */
#ifndef TAILRACE_DOORBELL_H
#define TAILRACE_DOORBELL_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define DOORBELL_NAME_BYTES 16

typedef struct doorbell {
    int fd;
    uint8_t name[DOORBELL_NAME_BYTES];
} doorbell;

static inline socklen_t doorbell_address(const uint8_t *name, struct sockaddr_un *address) {
    static const char prefix[] = "\0tailrace-"; /* the leading 0: the abstract namespace */
    static const char hex[] = "0123456789abcdef";
    char *out = address->sun_path + sizeof prefix - 1;
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, prefix, sizeof prefix - 1);
    for (int i = 0; i < DOORBELL_NAME_BYTES; i++) {
        *out++ = hex[name[i] >> 4];
        *out++ = hex[name[i] & 15];
    }
    return (socklen_t)(out - (char *)address);
}

/* 0, or -errno. */
static inline int doorbell_open(doorbell *bell) {
    struct sockaddr_un address;
    if (getrandom(bell->name, sizeof bell->name, 0) != (ssize_t)sizeof bell->name) return -EIO;
    bell->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bell->fd < 0) return -errno;
    socklen_t length = doorbell_address(bell->name, &address);
    if (bind(bell->fd, (struct sockaddr *)&address, length) < 0) {
        int error = errno;
        close(bell->fd);
        bell->fd = -1;
        return -error;
    }
    return 0;
}

static inline void doorbell_close(doorbell *bell) {
    if (bell->fd >= 0) close(bell->fd);
    bell->fd = -1;
}

static inline int doorbell_send(int fd, const uint8_t *name) {
    struct sockaddr_un address;
    socklen_t length = doorbell_address(name, &address);
    ssize_t sent;
    do {
        sent = sendto(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address, length);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

/* Ring the bell of that name, from any socket of ours. False: nobody there can hear it. */
static inline bool doorbell_ring(const doorbell *from, const uint8_t *name) {
    int error = doorbell_send(from->fd, name);
    if (error == 0) return true;
    /* No room at the bell: it has been rung and not yet cleared. No room at our end (rings that
     * others have not cleared count against the socket they came from), or our own bell is
     * closed: ring from another socket. */
    struct pollfd ours = {.fd = from->fd, .events = POLLOUT};
    bool full = error == EAGAIN || error == ENOBUFS;
    if (full && poll(&ours, 1, 0) > 0 && ours.revents & POLLOUT) return true;
    if (!full && error != EBADF) return false;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return false;
    error = doorbell_send(fd, name);
    close(fd);
    return error == 0 || error == EAGAIN;
}

/* Could we ring it? Does not ring. */
static inline bool doorbell_reaches(const uint8_t *name) {
    struct sockaddr_un address;
    socklen_t length = doorbell_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool reached = fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0;
    if (fd >= 0) close(fd);
    return reached;
}

/* Take back one ring. One is what a sleeper gets; a second makes the next sleep end at once. */
static inline void doorbell_clear(const doorbell *bell) {
    char byte;
    while (recv(bell->fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EINTR) {
    }
}

/* Sleep until a descriptor is readable (true), until timeout_ns (UINT64_MAX: never) has passed, or
 * until a signal comes (false, with errno EINTR). */
static inline bool descriptor_wait(int fd, uint64_t timeout_ns) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                             .tv_nsec = (long)(timeout_ns % 1000000000u)};
    errno = 0;
    return ppoll(&one, 1, timeout_ns == UINT64_MAX ? NULL : &limit, NULL) > 0;
}

/* Sleep until rung (true, and the ring is taken back), until timeout_ns (UINT64_MAX: never) has
 * passed, or until a signal comes (false, with errno EINTR). */
static inline bool doorbell_wait(const doorbell *bell, uint64_t timeout_ns) {
    if (!descriptor_wait(bell->fd, timeout_ns)) return false;
    doorbell_clear(bell);
    return true;
}

#endif
