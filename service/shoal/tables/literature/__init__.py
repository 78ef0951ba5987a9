"""Algorithms of the literature that `--algorithm` reaches; each is beaten by a default."""

__all__: list[str] = []
