"""The API server: the contract on the fake and, in the lab, on the real one."""
