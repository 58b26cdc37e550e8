"""The storage ownership registry: what its checker and its runner have in common.

`scripts/storage-ownership-contracts.toml` is the only machine authority for units,
edges, gates, cohorts, obligations, commands and states. Both tools read its rows and
keep no list beside them. Standard library only, so that they run before anything is
installed.
"""
