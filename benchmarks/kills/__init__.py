"""Kill a small streaming count with SIGKILL, of this project and of others: ``python -m benchmarks.kills``."""
