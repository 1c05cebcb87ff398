"""The programs that are measured, ours and others; each is a module that runs one `benchmarks.task.Task`.

They run in environments of their own, so they import nothing of this project but `benchmarks.task`, `benchmarks.cases`
and `benchmarks.workloads`; only those called ``ours...`` import the SDK.
"""
