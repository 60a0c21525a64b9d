"""Programs of developers: they write files made from the product, make load, judge installations.

They are started from a checkout; neither wheel nor image has them.
"""
