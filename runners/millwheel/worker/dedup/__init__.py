"""Which records of a source have been read before."""
