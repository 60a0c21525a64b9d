/*
 * An allreduce over messages of growing size, each element of the sum looked at: for tests/kit/mpi.py.
 *
 * Open MPI is loaded when it runs, so that its headers are not needed; types and objects are those of
 * its ABI since 1.5 (libmpi.so.40: handles are addresses of objects that the library exports).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST 4096 /* elements */

static void *library;

static void *of_mpi(const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "allreduce: %s\n", dlerror());
        exit(1);
    }
    return symbol;
}

int main(int argc, char **argv) {
    static double own[LARGEST], sum[LARGEST];
    int rank, size;
    if (!(library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL))) {
        fprintf(stderr, "allreduce: %s\n", dlerror());
        return 1;
    }
    int (*init)(int *, char ***) = of_mpi("MPI_Init");
    int (*of_comm)(void *, int *) = of_mpi("MPI_Comm_rank");
    int (*size_of_comm)(void *, int *) = of_mpi("MPI_Comm_size");
    int (*allreduce)(const void *, void *, int, void *, void *, void *) = of_mpi("MPI_Allreduce");
    int (*finalize)(void) = of_mpi("MPI_Finalize");
    void *world = of_mpi("ompi_mpi_comm_world");
    void *number = of_mpi("ompi_mpi_double"), *add = of_mpi("ompi_mpi_op_sum");

    init(&argc, &argv);
    of_comm(world, &rank);
    size_of_comm(world, &size);
    for (int count = 1; count <= LARGEST; count *= 4) {
        for (int i = 0; i < count; i++)
            own[i] = rank * 1000.0 + i;
        if (allreduce(own, sum, count, number, add, world))
            return 1;
        for (int i = 0; i < count; i++)
            if (sum[i] != size * (size - 1) / 2 * 1000.0 + size * (double)i) {
                fprintf(stderr, "allreduce: element %d of %d is %g\n", i, count, sum[i]);
                return 1;
            }
        if (rank == 0)
            printf("allreduce of %zu bytes over %d\n", count * sizeof *own, size);
    }
    return finalize();
}
