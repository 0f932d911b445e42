"""What a block is made of: kernels, heads, feed-forward, normalisations, and the files that hold them."""
