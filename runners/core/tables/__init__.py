"""Result tables as values: the meaning of a write, and the net effect of signed rows."""
