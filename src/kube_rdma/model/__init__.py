"""What is true: frozen values that every other package speaks in. Nothing here acts or decides."""
