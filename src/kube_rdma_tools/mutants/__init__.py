"""Do the unit tests notice a fault? Single random faults are put into the product, one at a time.

A developer's tool, `make mutants`. faults.py knows which faults a file can have, places.py which
tests concern a file, run.py tries them in a copy of the source. docs/benchmarks has what came out.
"""
