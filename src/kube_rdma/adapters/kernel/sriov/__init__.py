"""Makes, removes and binds virtual functions, gives them addresses, and reads interfaces' uses."""
