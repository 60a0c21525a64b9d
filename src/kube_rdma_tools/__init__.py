"""Programs of developers: they write files made from the product, make load, judge installations.

tools/crds, tools/metrics, `make release` and the tests start them from a checkout; neither wheel
nor image has them.
"""
