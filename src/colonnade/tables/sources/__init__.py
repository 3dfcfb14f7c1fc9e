"""Where a party's rows lie: files, data sets, stores, databases and whatever speaks Arrow, behind one contract."""
