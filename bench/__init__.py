"""Speed and size, measured: `python -m bench [NAME …] [--json]`.

One module per benchmark, each with `measure(context) -> tuple[Figure, ...]`. Ratios are taken
within one run. Nothing here fails a build: bounds stand beside the figures, for people.
"""
