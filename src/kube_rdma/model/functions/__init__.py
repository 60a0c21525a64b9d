"""Virtual functions as a configuration wishes for them, and what is done to one for a pod."""
