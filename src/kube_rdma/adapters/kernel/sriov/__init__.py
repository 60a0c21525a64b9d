"""Makes, removes and binds virtual functions, gives them addresses; reads uses of interfaces."""
