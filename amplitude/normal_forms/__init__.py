"""Normal forms of any order for any block, and what the block itself says of them."""
