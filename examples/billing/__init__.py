"""Bills of a month, corrected by what comes late, with a journal in which nothing is overwritten."""
