"""Every table and figure of five papers beside what this repository gives: `make papers`."""
