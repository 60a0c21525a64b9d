// Reads files as a scrape has to: open, read, close for each, below a folder that is open.
//
//     scrape_floor < PATHS     one path a line, those of a folder together; at each further line
//                              "again" it reads them all and prints the milliseconds of CPU
//
// bench/scrape.py builds and runs it. PATHS end with an empty line.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 200000

static char *folders[MOST], *names[MOST];

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void read_all(int count) {
    int folder = -1;
    for (int file = 0; file < count; file++) {
        if (file == 0 || strcmp(folders[file], folders[file - 1])) {
            if (folder >= 0) close(folder);
            folder = open(folders[file], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }
        char text[64];
        int descriptor = openat(folder, names[file], O_RDONLY | O_CLOEXEC);
        if (descriptor < 0 || read(descriptor, text, sizeof text) < 0) {
            perror(names[file]);
            exit(1);
        }
        close(descriptor);
    }
    if (folder >= 0) close(folder);
}

int main(void) {
    static char line[4096];
    int count = 0;
    while (fgets(line, sizeof line, stdin) && line[0] != '\n' && count < MOST) {
        line[strcspn(line, "\n")] = 0;
        char *name = strrchr(line, '/');
        *name = 0;
        folders[count] = strdup(line);
        names[count++] = strdup(name + 1);
    }
    while (fgets(line, sizeof line, stdin)) {
        double begin = milliseconds();
        read_all(count);
        printf("%.3f\n", milliseconds() - begin);
        fflush(stdout);
    }
}
