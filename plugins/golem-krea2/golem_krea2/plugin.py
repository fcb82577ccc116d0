"""The hooks of the package."""
