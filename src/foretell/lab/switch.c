/* Hosts that are not there: network namespaces joined by pipes of a known rate and a known delay.
 *
 *   switch HOSTS MTU WINDOW < wiring   and it answers   ready FD FD ...   (a namespace a host, under /proc/PID/fd)
 *
 * Wiring, a line each, then `go`:
 *   pipe RATE                        bytes a second; pipes are numbered from 0
 *   path FROM TO DELAY NEAR.. / FAR..  nanoseconds; pipes before the delay, and after it
 * While it runs:
 *   rate PIPE RATE                   a pipe becomes faster or slower
 *   stats                            packets, bytes and drops of every path
 *
 * A packet takes each of its pipes from the moment it is free, for bytes / rate; it is out when the slowest has let it
 * through. Its head goes on while its tail still comes (cut-through), so a message of m bytes takes delay + m / rate
 * however many packets it is. The namespaces have no names and the devices belong to this process: when it is gone, and
 * nobody is in them any more, nothing is left. It ends with its parent, and at the end of its input. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_HOSTS = 64, MOST_PIPES = 4096, MOST_ON_PATH = 8, BURST = 64 };
#define LONGEST_QUEUE 2000000000LL /* ns that a pipe may be behind; what comes then is dropped */

typedef int64_t ns;
typedef struct { int count, pipe[MOST_ON_PATH]; } pipes;
typedef struct { ns delay; pipes near, far; long packets, bytes, dropped; int known; } path;
typedef struct { ns at, tail; long order; path *way; int to, arrived, size; char *bytes; } packet;

static long window;
static int hosts, mtu, device[MOST_HOSTS];
static double rate[MOST_PIPES];
static ns free_at[MOST_PIPES];
static path ways[MOST_HOSTS][MOST_HOSTS];
static packet *heap;
static long held, room, numbered;

static void fail(const char *what) { fprintf(stderr, "%s: %s\n", what, strerror(errno)); exit(1); }

static ns now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Packets that wait for a moment, the soonest first; of the same moment, the one that came first. */

static int sooner(const packet *a, const packet *b) { return a->at != b->at ? a->at < b->at : a->order < b->order; }

static void swap(long a, long b) { packet kept = heap[a]; heap[a] = heap[b]; heap[b] = kept; }

static void wait_for(packet p) {
    if (held == room && !(heap = realloc(heap, (room = 2 * room + 256) * sizeof *heap))) fail("memory");
    long at = held++;
    p.order = numbered++;
    heap[at] = p;
    for (; at && sooner(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2) swap(at, (at - 1) / 2);
}

static packet soonest(void) {
    packet first = heap[0];
    heap[0] = heap[--held];
    for (long at = 0, child; (child = 2 * at + 1) < held; at = child) {
        if (child + 1 < held && sooner(&heap[child + 1], &heap[child])) child++;
        if (!sooner(&heap[child], &heap[at])) break;
        swap(at, child);
    }
    return first;
}

/* Through pipes, one after the other: when the head enters the last one, and when the tail is out of all. */

static void through(const pipes *p, int size, ns *head, ns *tail) {
    for (int i = 0; i < p->count; i++) {
        int pipe = p->pipe[i];
        if (free_at[pipe] > *head) *head = free_at[pipe];
        free_at[pipe] = *head + (ns)(1e9 * size / rate[pipe]);
        if (free_at[pipe] > *tail) *tail = free_at[pipe];
    }
}

static int too_late(const pipes *p, ns moment) {
    for (int i = 0; i < p->count; i++)
        if (free_at[p->pipe[i]] - moment > LONGEST_QUEUE) return 1;
    return 0;
}

/* An acknowledgement without data takes its delay and no room: behind what the same host sends it would wait so long that
 * the other side sends again. (A real host hands its port little at a time; a TUN device takes all that TCP may send.) */

static int only_acknowledges(const unsigned char *b, int size) {
    int ip = (b[0] & 15) * 4;
    return b[9] == IPPROTO_TCP && size >= ip + 20 && size == ip + (b[ip + 12] >> 4) * 4 && (b[ip + 13] & 7) == 0;
}

static void sent(int from, char *bytes, int size, ns moment) {
    int to = size >= 20 && bytes[0] >> 4 == 4 ? (unsigned char)bytes[19] - 1 : -1;
    path *way = to >= 0 && to < hosts ? &ways[from][to] : NULL;
    if (!way || !way->known) return; /* not for a host: IPv6 neighbours, multicast */
    if (too_late(&way->near, moment)) { way->dropped++; return; }
    packet p = {.way = way, .to = to, .size = size, .bytes = malloc(size)};
    if (!p.bytes) fail("memory");
    memcpy(p.bytes, bytes, size);
    ns head = moment, tail = moment;
    p.arrived = only_acknowledges((unsigned char *)bytes, size);
    if (!p.arrived) through(&way->near, size, &head, &tail);
    p.at = head + way->delay;
    p.tail = tail + way->delay;
    wait_for(p);
}

static void deliver(packet p) {
    if (write(device[p.to], p.bytes, p.size) == p.size) p.way->packets++, p.way->bytes += p.size;
    else p.way->dropped++;
    free(p.bytes);
}

static void due(ns moment) {
    while (held && heap[0].at <= moment) {
        packet p = soonest();
        if (p.arrived) { deliver(p); continue; }
        if (too_late(&p.way->far, moment)) { p.way->dropped++; free(p.bytes); continue; }
        ns head = p.at, tail = p.tail;
        through(&p.way->far, p.size, &head, &tail);
        p.at = tail;
        p.arrived = 1;
        wait_for(p);
    }
}

/* A host: a namespace with one device, whose other end is here. */

static void set(const char *file, const char *value) { /* what cannot be set stays as it is */
    int fd = open(file, O_WRONLY);
    if (fd < 0) return;
    if (write(fd, value, strlen(value)) < 0) errno = 0;
    close(fd);
}

static void buffers(const char *file, long size) { /* of every connection, from its start */
    char sizes[64];
    sprintf(sizes, "4096 %ld %ld", size, size);
    set(file, sizes);
}

static void address(struct ifreq *r, int a, int b, int c, int d) {
    struct sockaddr_in *in = (struct sockaddr_in *)&r->ifr_addr;
    memset(in, 0, sizeof *in);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(a << 24 | b << 16 | c << 8 | d);
}

static void up(int s, struct ifreq *r) {
    if (ioctl(s, SIOCGIFFLAGS, r) < 0) fail("flags of a device");
    r->ifr_flags |= IFF_UP | IFF_RUNNING;
    if (ioctl(s, SIOCSIFFLAGS, r) < 0) fail("a device does not come up");
}

static int made(int host) {
    if (unshare(CLONE_NEWNET) < 0) fail("a network namespace");
    int space = open("/proc/self/ns/net", O_RDONLY);
    device[host] = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (space < 0 || device[host] < 0) fail("/dev/net/tun");
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(r.ifr_name, "lab0");
    if (ioctl(device[host], TUNSETIFF, &r) < 0) fail("a TUN device");
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    address(&r, 10, 77, 0, host + 1);
    if (s < 0 || ioctl(s, SIOCSIFADDR, &r) < 0) fail("an address");
    address(&r, 255, 255, 255, 0);
    if (ioctl(s, SIOCSIFNETMASK, &r) < 0) fail("a netmask");
    r.ifr_mtu = mtu;
    if (ioctl(s, SIOCSIFMTU, &r) < 0) fail("the size of packets");
    r.ifr_qlen = 10000;
    if (ioctl(s, SIOCSIFTXQLEN, &r) < 0) fail("the length of a queue");
    up(s, &r);
    strcpy(r.ifr_name, "lo");
    up(s, &r);
    close(s);
    /* Connections stay warm, and may have a whole long pipe in flight: the pipes are what is studied, not TCP. */
    /* Reno has no clock of its own: a sender that paces itself (BBR) would spread a message over the time of the next. */
    set("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
    set("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0");
    set("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
    buffers("/proc/sys/net/ipv4/tcp_wmem", window);
    /* A packet takes more room than it has bytes: what a full sender has on its way must never be thrown away. */
    buffers("/proc/sys/net/ipv4/tcp_rmem", window < 1 << 28 ? 4 * window : 1 << 30);
    set("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    set("/proc/sys/net/ipv4/tcp_early_retrans", "0"); /* nothing is lost here: what waits in a pipe is not sent again */
    if (system("ip route change 10.77.0.0/24 dev lab0 initcwnd 400 initrwnd 400 rto_min 2s 2>/dev/null"))
        fprintf(stderr, "without `ip` connections start slowly\n");
    return space;
}

/* What it is told. */

static int number(const char *word, int below) {
    char *end;
    long n = word ? strtol(word, &end, 10) : -1;
    if (!word || *end || n < 0 || n >= below) { fprintf(stderr, "not a number below %d: %s\n", below, word); exit(2); }
    return n;
}

static void stats(void) {
    for (int a = 0; a < hosts; a++)
        for (int b = 0; b < hosts; b++)
            if (ways[a][b].known)
                printf("%d %d %ld %ld %ld\n", a, b, ways[a][b].packets, ways[a][b].bytes, ways[a][b].dropped);
    printf("end\n");
    fflush(stdout);
}

static int told(char *line, int *laid) { /* 0 when the wiring is complete */
    char *word = strtok(line, " \n");
    if (!word) return 1;
    if (!strcmp(word, "go")) return 0;
    if (!strcmp(word, "stats")) { stats(); return 1; }
    if (!strcmp(word, "pipe") || !strcmp(word, "rate")) {
        int pipe = word[0] == 'p' ? (*laid)++ : number(strtok(NULL, " \n"), MOST_PIPES);
        if (pipe >= MOST_PIPES) { fprintf(stderr, "more than %d pipes\n", MOST_PIPES); exit(2); }
        rate[pipe] = atof(strtok(NULL, " \n"));
        return 1;
    }
    if (strcmp(word, "path")) { fprintf(stderr, "not known: %s\n", word); exit(2); }
    int from = number(strtok(NULL, " \n"), hosts), to = number(strtok(NULL, " \n"), hosts);
    path *way = &ways[from][to];
    way->known = 1;
    way->delay = atoll(strtok(NULL, " \n"));
    for (pipes *side = &way->near; (word = strtok(NULL, " \n"));) {
        if (!strcmp(word, "/")) { side = &way->far; continue; }
        if (side->count == MOST_ON_PATH) { fprintf(stderr, "more than %d pipes on a path\n", MOST_ON_PATH); exit(2); }
        side->pipe[side->count++] = number(word, *laid);
    }
    return 1;
}

static void listen_on_input(int *laid) {
    static char kept[65536];
    static int have;
    ssize_t n = read(0, kept + have, sizeof kept - 1 - have);
    if (n <= 0) exit(0); /* whoever started this is gone, or has had enough */
    have += n;
    kept[have] = 0;
    for (char *end; (end = strchr(kept, '\n'));) {
        *end = 0;
        told(kept, laid);
        have -= end + 1 - kept;
        memmove(kept, end + 1, have + 1);
    }
}

static void run(int *laid) {
    char *buffer = malloc(65536);
    struct pollfd ready[MOST_HOSTS + 1] = {{.fd = 0, .events = POLLIN}};
    for (int i = 0; i < hosts; i++) ready[i + 1] = (struct pollfd){.fd = device[i], .events = POLLIN};
    for (;;) {
        ns moment = now();
        due(moment);
        ns left = held ? heap[0].at - now() : 0;
        struct timespec wait = {left > 0 ? left / 1000000000LL : 0, left > 0 ? left % 1000000000LL : 0};
        if (ppoll(ready, hosts + 1, held ? &wait : NULL, NULL) < 0 && errno != EINTR) fail("poll");
        if (ready[0].revents) listen_on_input(laid);
        for (int i = 0; i < hosts; i++)
            for (int k = 0; ready[i + 1].revents && k < BURST; k++) {
                int size = read(device[i], buffer, 65536);
                if (size <= 0) break;
                sent(i, buffer, size, now());
            }
    }
}

/* Cores that sleep are given to others where this machine is emulated itself, and come back late. So no core sleeps while
 * there are hosts. Whoever wants one gets it at once: these threads run only where nobody else does, or not at all.
 * Linux shares cores between sessions first (sched(7), autogroups): an idle thread has half a core beside a rank of another
 * session. So this session comes last, too; the thread that switches has a real-time priority, and that is in no group.
 * Where no tick was ever stolen (proc(5), /proc/stat), nobody borrows cores, and busy ones would only take power. */

static int lent(void) {
    unsigned long long stolen = 0;
    FILE *counted = fopen("/proc/stat", "r");
    if (!counted) return 0;
    if (fscanf(counted, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &stolen) != 1) stolen = 0;
    fclose(counted);
    return stolen > 0;
}

static void *awake(void *core) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET((int)(intptr_t)core, &own);
    struct sched_param last = {.sched_priority = 0};
    if (sched_setscheduler(0, SCHED_IDLE, &last) < 0 || sched_setaffinity(0, sizeof own, &own) < 0) return NULL;
    for (;;)
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#else
        __asm__ volatile("" ::: "memory");
#endif
}

static int comes_last(void) {
    FILE *group = fopen("/proc/self/autogroup", "w");
    if (!group) return 1; /* this kernel has none */
    fputs("19", group);
    return fclose(group) == 0;
}

static void keep_awake(void) {
    cpu_set_t ours;
    if (!lent() || !comes_last() || sched_getaffinity(0, sizeof ours, &ours) < 0) return;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        pthread_t thread;
        if (CPU_ISSET(core, &ours)) pthread_create(&thread, NULL, awake, (void *)(intptr_t)core);
    }
}

int main(int count, char **words) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "foretell-lab");
    prctl(PR_SET_TIMERSLACK, 1000UL);
    if (count != 4) { fprintf(stderr, "switch HOSTS MTU WINDOW\n"); return 2; }
    hosts = number(words[1], MOST_HOSTS + 1);
    mtu = number(words[2], 65536);
    window = number(words[3], 1 << 30); /* bytes that a connection may have on its way */
    /* It sleeps nearly always, and must wake in time: before others, where that is allowed. */
    struct sched_param soon = {.sched_priority = 2};
    if (sched_setscheduler(0, SCHED_FIFO, &soon) < 0) setpriority(PRIO_PROCESS, 0, -20);
    int space[MOST_HOSTS], laid = 0;
    for (int i = 0; i < hosts; i++) space[i] = made(i);
    char line[4096];
    do if (!fgets(line, sizeof line, stdin)) return 2;
    while (told(line, &laid));
    setvbuf(stdin, NULL, _IONBF, 0);
    keep_awake();
    printf("ready");
    for (int i = 0; i < hosts; i++) printf(" %d", space[i]);
    printf("\n");
    fflush(stdout);
    run(&laid);
}
