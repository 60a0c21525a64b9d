"""The API server as a caller: HTTPS that admission webhooks are asked by."""
