"""Groupings whose windows all fire once: no cell and no timer for each."""
