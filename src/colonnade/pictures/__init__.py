"""Pictures for notebooks: what is drawn as plain values, and how, in the colours of the report."""
