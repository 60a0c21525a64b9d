"""Claims: how they are written and judged, what other drivers tell of them, what they get here."""
