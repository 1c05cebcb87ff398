"""The scripted source of the shipped test kit, under the name that the tests use."""

from runners.testing.scripted_source import Batch, ScriptedSource

__all__ = ["Batch", "ScriptedSource"]
