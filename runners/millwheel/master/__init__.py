"""The master of a job: which worker owns which range, how ranges are divided, how far event time has come."""
