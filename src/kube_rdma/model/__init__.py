"""What is true: frozen values that every other floor speaks in. Nothing here acts or decides."""
