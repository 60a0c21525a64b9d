"""Speed and size, measured: `python -m bench [NAME …] [--json] [--short]`.

One module per benchmark, each with `measure(context)`, which gives figures as soon as it has them.
Ratios are taken within one run. No figure fails a build: bounds stand beside them, for people.
"""
