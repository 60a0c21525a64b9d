"""Objects with holes, of which an installation is filled, and the values that fill them."""
