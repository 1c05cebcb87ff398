"""What kill -9 does to a small streaming count, with this project and with others: ``python -m benchmarks.kills``."""
