"""Stores this version's objects; see the package."""

from stored_version import store

store()
