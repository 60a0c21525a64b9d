"""The runtime's messages: our own .proto files and the code that tools/protos makes of them."""
