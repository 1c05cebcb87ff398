"""Why a window has not fired: a sentence, and the chain of what holds event time back, from evidence of any engine."""
