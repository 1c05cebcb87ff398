"""Where rows come from, and the panes of a key: read from what a run has recorded of its lineage."""
