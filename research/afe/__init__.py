"""Split networks on real data: the paper's figures and tables again, ours beside them, and attacks on all of them."""
