"""The arithmetic of finished tables: partitioners and their refinement over a matrix of records."""
