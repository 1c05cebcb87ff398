"""The semantic core: windows, panes, retraction, lateness and timers as values, for every engine.

Reads no clock, opens no socket, knows no Spark and no SQL (ADR 0003).
"""
