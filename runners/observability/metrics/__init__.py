"""What is measured of jobs, for Prometheus: one table makes the answers, their reference, a dashboard and alerts."""
