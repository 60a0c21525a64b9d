"""What developers run: it writes files made from the product, makes load, judges installations.

tools/crds, tools/metrics, `make release` and the tests start it from a checkout; neither wheel nor
image has it.
"""
