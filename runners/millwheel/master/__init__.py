"""The master of a job: who owns which range, how ranges are cut, how far event time has come."""
