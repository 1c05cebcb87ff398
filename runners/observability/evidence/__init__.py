"""What a driver knows of its job, as the store has it for whoever wants to know why."""
