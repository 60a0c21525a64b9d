"""The shim and other CNI plugins, as Python functions."""
