"""What the master and the workers of a job send each other, and how."""
