"""From one version of a pipeline to the next: what its state is made of, what is kept and what is lost."""
