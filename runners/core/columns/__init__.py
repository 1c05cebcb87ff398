"""Numbers as columns: windows assigned, values folded and partials kept without an object for each."""
