"""Engines that run pipelines: direct, batch and streaming, over one semantic core."""
