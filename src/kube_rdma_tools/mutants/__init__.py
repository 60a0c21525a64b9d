"""Do the unit tests notice a fault? Single random faults are put into the product, one at a time.

A developer's tool, `make mutants`. places.py says which files get faults, faults.py which faults a
file can have, calls.py notes which test calls which function. run.py tries faults in copies of the
source, most of them by host.py. docs/benchmarks.md has the results.
"""
