"""The command from the outside: what it prints, what it writes, how it exits."""
