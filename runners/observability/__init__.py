"""What people see of a job, while it runs and afterwards: read from its store, never from its processes."""
