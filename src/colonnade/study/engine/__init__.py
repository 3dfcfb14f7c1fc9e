"""Where a party's workers run: in processes of its own machine, or as actors of its own Ray cluster."""
