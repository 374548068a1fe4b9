"""The pod side of Stowplan, and its command line: inventory, measure, plan, apply, validate, serve."""

__version__ = "0.1.0"
