"""Frames and data sources of Spark as input, and results as frames of Spark.  Imports PySpark when it is used."""
