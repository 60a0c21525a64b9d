"""Defines the frozen values that the other packages share. Nothing here acts or decides."""
