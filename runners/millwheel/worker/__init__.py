"""A worker: its round, its computations, what makes their work durable, and the memory that they keep."""
