"""Result tables as values: what a write means, and the net effect of signed rows."""
