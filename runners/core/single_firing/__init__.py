"""Groupings whose windows all fire once, without a cell and a timer for each window."""
