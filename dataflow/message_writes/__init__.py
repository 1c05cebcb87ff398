"""WriteToNats and WriteToRedis: elements become messages in a step of their own, and then are written by their sink."""
